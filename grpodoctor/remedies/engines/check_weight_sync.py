"""Check of the weight sync."""

from __future__ import annotations

from grpodoctor.remedies.base import Criterion, Remedy


class CheckWeightSync(Remedy):
    """Check that the sampler receives the learner's weights.

    What it does:
        If a sync sends nothing, only a part, or merges an adapter twice, the sampler generates with
        other weights than the learner trains. The mismatch then grows with the learning rate and
        the number of steps whatever the sync interval is, or jumps after a sync.

    When it applies:
        The mismatch grows steadily although the log reports syncs, or jumps at a sync
        or after a resume.

    What it costs:
        An hour of your time. Corrections hide this error without repairing it.

    What it overlaps:
        Nothing. A shorter sync interval does not help if nothing is sent.

    How it is judged:
        By a person: after a sync, both engines give the same log-probabilities to the same tokens.

    References:
        verl issue 7495 (weights that were never delivered); TRL issue 5312 (a jump after the second
        sync).
    """

    id = "check-weight-sync"
    title = "Check that the weights reach the sampler"
    applicability = "suggest"
    in_flight = False
    slots = ()
    target = Criterion("mismatch/logprob_diff_mean", "down")
    more_targets = (Criterion("mismatch/prob_diff_mean", "down"),)
    paper = "verl issue 7495"
    how = (
        "After a sync, score one response with both engines, and compare a checksum of a few "
        "weights on both sides: first layer, last layer, an adapter, the embedding. `grpodoctor "
        "probe` names tensors that differ. Look for adapters that are merged twice or not at all,"
        " and for tied embeddings that are not sent."
    )
    command = "grpodoctor probe --sampler vllm:MODEL --learner transformers:MODEL"
