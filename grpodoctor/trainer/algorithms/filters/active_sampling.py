"""Active sampling: only what is missing is drawn again until the batch is full.

Formula
    While fewer than rollout.prompts_per_batch groups have max(reward) > min(reward), draw one
    prompt for each that is missing.

Denominator
    The batch, of its usual size.

Settings
    rollout.dynamic_sampling with rollout.refill = "missing"; rollout.resample_limit 4 rounds in
    all. At the limit groups without variance fill the batch up, and it is used as it is.

Effect on metrics
    As dynamic sampling, with a lower groups/generated_per_kept: nothing that has variance is thrown
    away. The rounds are smaller and the limit is reached more often.

Other implementations
    open-instruct's active_sampling refills while other responses are still being generated; here a
    round is complete before the next one begins.

Do not combine with
    rollout.filter_groups, which serves the same purpose without drawing again.

Source
    Olmo 3, arXiv 2512.13961.
"""

from __future__ import annotations


def active_sampling(wanted: int, varied: int) -> int:
    """How many prompts the next round draws.

    Args:
        wanted: groups of a batch.
        varied: groups with variance that are there.
    """
    return wanted - varied
