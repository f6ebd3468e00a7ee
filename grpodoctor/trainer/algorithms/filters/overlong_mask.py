"""The overlong mask: excludes truncated responses from the loss.

Formula
    A truncated response has no loss tokens. Its reward stays in the group's mean and standard
    deviation.

Denominator
    A mean over tokens counts the remaining tokens. Masked responses still count if the denominator
    counts responses (sequence-mean, constant), as in DAPO and TRL.

Settings
    overlong.kind = "mask", or "mask-and-soft-punishment"; off by default.

Effect on metrics
    optimizer/loss_tokens falls and optimizer/left_out_rate rises by length/truncated_rate. It hides
    length hacking: the policy gets no signal against running into the limit.

Other implementations
    TRL's mask_truncated_completions and ms-swift's overlong_filter. verl has none; its notes say
    that the paper's best run did not use it.

Do not combine with
    stop_properly, another value of the same setting. The soft punishment can be combined with it,
    as in the ladder of DAPO's Table 1.

Source
    DAPO, arXiv 2503.14476, section 3.4.
"""

from __future__ import annotations

from torch import Tensor


def overlong_mask(loss_mask_BT: Tensor, truncated_B: Tensor) -> Tensor:
    """The loss mask without truncated responses, bool, shape (B, T)."""
    return loss_mask_BT & ~truncated_B[:, None]
