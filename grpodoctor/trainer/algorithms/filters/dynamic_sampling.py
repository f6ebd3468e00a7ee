"""Dynamic sampling: whole rounds of prompts are drawn until enough groups have variance.

Formula
    While fewer than rollout.prompts_per_batch groups have max(reward) > min(reward), draw as many
    prompts again. The first that have variance are the batch; the surplus is thrown away. The paper
    asks for 0 < right answers < group size, which is rollout.variance_of = "correct": a punishment
    of overlong responses gives variance to groups that are all wrong.

Denominator
    The batch, of its usual size.

Settings
    rollout.dynamic_sampling with rollout.refill = "rounds"; rollout.variance_of "reward", in the
    preset dapo "correct"; rollout.resample_limit 4 rounds in all. At the limit groups without
    variance fill the batch up, and it is used as it is.

Effect on metrics
    groups/zero_variance_rate falls to 0, for groups/generated_per_kept times the sampling;
    groups/limit_hit_rate says how often the limit came first. Choosing among samples moves
    mismatch/nll_gap a little.

Other implementations
    verl's recipe for DAPO (filter_groups); ms-swift's dynamic_sample. TRL has none.

Do not combine with
    rollout.filter_groups, which serves the same purpose without drawing again.

Source
    DAPO, arXiv 2503.14476, section 3.2.
"""

from __future__ import annotations


def dynamic_sampling(wanted: int, varied: int) -> int:  # noqa: ARG001  # one signature for both
    """How many prompts the next round draws.

    Args:
        wanted: groups of a batch.
        varied: groups with variance that are there.
    """
    return wanted
