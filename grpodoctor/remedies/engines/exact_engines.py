"""Bitwise-identical engines."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class ExactEngines(Remedy):
    """Use batch-invariant kernels in sampler and learner, so that both give the same bits.

    What it does:
        Two engines differ because their kernels sum in other orders, and the order depends on the
        batch. Batch-invariant kernels always sum in the same order. With the same kernels on both
        sides, ratios before the first update are exactly 1, and any other value is an error.

    When it applies:
        The mismatch ends the run or hides other errors, and both engines support batch-invariant
        kernels for this model.

    What it costs:
        About 10 % of the speed in published runs, more with older kernels. Every difference in
        layout, precision or attention backend has to be removed.

    What it overlaps:
        All corrections: with exact engines they have nothing to correct.

    How it is judged:
        By a person: `grpodoctor probe` reports identical log-probabilities, and the KL between the
        engines is 0.

    References:
        Diagnosing Training-Inference Mismatch, arXiv 2605.14220 (k3 of 0 throughout with
        batch-invariant engines); verl issue 7688; vLLM's batch invariance.
    """

    id = "exact-engines"
    title = "Make sampler and learner bitwise identical"
    applicability = "suggest"
    in_flight = False
    slots = ("precision",)
    target = Criterion("mismatch/logprob_diff_mean", "down")
    more_targets = (Criterion("mismatch/first_ratio_off", "down"),)
    paper = "arXiv 2605.14220"
    how = (
        "Switch on batch-invariant kernels in both engines (vLLM: VLLM_BATCH_INVARIANT=1; SGLang:"
        " --enable-deterministic-inference), with the same attention backend, precision and "
        "parallel layout, and verify with `grpodoctor probe`."
    )
    command = "grpodoctor probe --sampler vllm:MODEL --learner transformers:MODEL"
