"""The learner's precision for the sampler's routers and output head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class HigherPrecisionSampler(Remedy):
    """Restart the sampler with unquantized routers and output head, in the learner's precision.

    What it does:
        A router ranks a few logits, so a tiny error can send a token to another expert. Errors of
        the output head are errors of the probabilities. Both are a small part of the weights: at
        full precision they remove nearly all of the loss in accuracy, while the experts stay
        quantized.

    When it applies:
        The sampler is quantized, or computes its output head or its routers in a lower precision
        than the learner.

    What it costs:
        A little memory and speed. If the mismatch has another cause, this remedy does not help;
        `grpodoctor probe` finds the cause.

    What it overlaps:
        Routing replay, which makes the learner follow the sampler's choice; corrections, which
        weight the remaining difference.

    How it is judged:
        By a person, after the restart: fewer expert assignments differ between the engines, and
        their probabilities differ by less.

    References:
        MiniMax-M1, arXiv 2506.13585, section 3.2 (an output head in float32 raises the correlation
        of the two probabilities from .987 to .997).
    """

    id = "higher-precision-sampler"
    title = "Give the sampler's routers and output head the learner's precision"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("experts/churn_engine", "down")
    more_targets = (Criterion("mismatch/prob_diff_mean", "down"),)
    paper = "MiniMax-M1, arXiv 2506.13585"
    alternatives = ("float16-engines", "exact-engines")
    how = (
        "Leave the router (`mlp.gate`) and `lm_head` out of the quantization (`ignore` in "
        "compressed-tensors checkpoints), use the learner's dtype for the rest if memory allows, "
        "and compare again with `grpodoctor probe`."
    )
    command = "grpodoctor probe --sampler vllm:MODEL --learner transformers:MODEL"

    restart_with: ClassVar[Mapping[str, Setting]] = {
        "float32_head": True,
        "unquantized_sampler": True,
    }
