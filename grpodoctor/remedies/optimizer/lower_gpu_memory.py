"""Less GPU memory for the learner and the sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class LowerGpuMemory(Remedy):
    """Use less GPU memory: smaller micro-batches, gradient checkpointing, less for the sampler.

    What it does:
        A smaller micro-batch holds the logits and activations of fewer responses at once.
        Gradient checkpointing computes activations again in the backward pass instead of keeping
        them. A sampler on the learner's GPUs that reserves less leaves more for the learner. The
        batch of an update stays the same, and so do the gradients, up to rounding.

    When it applies:
        The log ends with an out-of-memory error of a GPU. The first setting is usually enough;
        where the sampler fails, lower its share of the memory only if the learner holds the rest.

    What it costs:
        Time: more passes for an update, a second forward pass, and fewer responses sampled at once.

    What it overlaps:
        `larger-batch`, `larger-groups` and `longer-limit`, which need more memory.

    How it is judged:
        By a person, after the restart: the run passes the step at which it ended.

    References:
        PyTorch, CUDA semantics: memory management; Chen et al. 2016, arXiv 1604.06174 (gradient
        checkpointing).
    """

    id = "lower-gpu-memory"
    title = "Restart from the last checkpoint with less GPU memory"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("time/step", "down")
    paper = "Chen et al. 2016, arXiv 1604.06174"
    crash = "gpu-memory"
    how = (
        "Lower the micro-batch (or the tokens of a micro-batch) first. If that is not enough, "
        "switch on gradient checkpointing, lower the sampler's share of the GPU memory where it "
        "shares the GPUs, and shorten the responses."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {
        "small_micro_batch": True,
        "gradient_checkpointing": True,
        "sampler_memory": True,
    }
