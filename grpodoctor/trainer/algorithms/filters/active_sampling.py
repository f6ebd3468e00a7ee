"""Active sampling: draws only the missing groups until the batch is full.

Formula
    While fewer than rollout.prompts_per_batch groups have max(reward) > min(reward), draw one
    prompt for each missing group.

Denominator
    The batch, at its usual size.

Settings
    rollout.dynamic_sampling with rollout.refill = "missing"; rollout.resample_limit 4 rounds. At
    the limit, groups without variance fill the batch.

Effect on metrics
    As dynamic_sampling, with a lower groups/generated_per_kept because no group with variance is
    discarded. The rounds are smaller, and the limit is reached more often.

Other implementations
    open-instruct's active_sampling refills while other responses are still being generated; here a
    round is complete before the next one begins.

Do not combine with
    rollout.filter_groups, which solves the same problem without drawing again.

Source
    Olmo 3, arXiv 2512.13961.
"""

from __future__ import annotations


def active_sampling(wanted: int, varied: int) -> int:
    """The number of prompts that the next round draws."""
    return wanted - varied
