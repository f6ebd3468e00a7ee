"""Half precision (fp16) in both engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.vocabulary.knobs import Setting


class Float16Engines(Remedy):
    """Restart with fp16 instead of bf16 in sampler and learner.

    What it does:
        bf16 has 8 significant bits and fp16 has 11, so rounding errors are eight times smaller. The
        two engines add numbers in different orders; with smaller errors, their probabilities differ
        by far less.

    When it applies:
        Both engines compute in bf16, and the mismatch has no other cause (`grpodoctor probe`
        reports precision). Models with activations above 65,504 overflow in fp16.

    What it costs:
        The learner needs dynamic loss scaling, and skipped updates must be watched. A few models
        overflow.

    What it overlaps:
        Corrections of the mismatch, which compensate for what this removes.

    How it is judged:
        By a person, after the restart: the mean gap of log-probabilities is several times smaller,
        and no update is skipped for infinities.

    References:
        Defeating the Training-Inference Mismatch via FP16, arXiv 2510.26788.
    """

    id = "float16-engines"
    title = "Run sampler and learner in fp16"
    applicability = "suggest"
    in_flight = False
    slots = ("precision",)
    target = Criterion("mismatch/logprob_diff_mean", "down")
    more_targets = (Criterion("mismatch/prob_diff_mean", "down"),)
    paper = "arXiv 2510.26788"
    alternatives = ("exact-engines",)
    how = (
        "Set fp16 in both engines, with dynamic loss scaling in the learner, and compare them "
        "again with `grpodoctor probe`. Return to bf16 if activations overflow (infinite or NaN "
        "losses)."
    )
    restart_with: ClassVar[Mapping[str, Setting]] = {
        "sampler_dtype": "float16",
        "learner_dtype": "float16",
    }
