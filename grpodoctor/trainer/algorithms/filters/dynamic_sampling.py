"""Dynamic sampling: draws whole rounds of prompts until enough groups have variance.

Formula
    While fewer than rollout.prompts_per_batch groups have max(reward) > min(reward), draw as many
    prompts again. The first groups with variance form the batch; the surplus is discarded. The
    paper requires 0 < correct answers < group size, which is rollout.variance_of = "correct": a
    penalty on overlong responses gives variance to all-incorrect groups.

Denominator
    The batch, at its usual size.

Settings
    rollout.dynamic_sampling with rollout.refill = "rounds"; rollout.variance_of "reward", in the
    preset dapo "correct"; rollout.resample_limit 4 rounds. At the limit, groups without variance
    fill the batch.

Effect on metrics
    groups/zero_variance_rate falls to 0, at a sampling cost of groups/generated_per_kept.
    groups/limit_hit_rate shows how often the limit was reached. Selecting samples changes
    mismatch/nll_gap slightly.

Other implementations
    verl's recipe for DAPO (filter_groups) and ms-swift's dynamic_sample. TRL has none.

Do not combine with
    rollout.filter_groups, which solves the same problem without drawing again.

Source
    DAPO, arXiv 2503.14476, section 3.2.
"""

from __future__ import annotations


def dynamic_sampling(wanted: int, varied: int) -> int:  # noqa: ARG001  # one signature for both
    """The number of prompts that the next round draws."""
    return wanted
