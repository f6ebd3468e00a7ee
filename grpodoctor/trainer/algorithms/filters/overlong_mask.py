"""The overlong mask: responses cut by the length limit are left out of the loss.

Formula
    A truncated response has no loss token. Its reward stays in the group's mean and deviation.

Denominator
    A mean over tokens counts what is left; responses without loss tokens still count where a
    denominator counts responses (sequence-mean, constant), as DAPO's and TRL's do.

Settings
    overlong.kind = "mask", off by default.

Effect on metrics
    optimizer/loss_tokens falls and optimizer/left_out_rate rises by length/truncated_rate. It hides
    length hacking: a policy that runs into the limit is not told.

Other implementations
    TRL's mask_truncated_completions, ms-swift's overlong_filter. verl has none, and its notes say
    that the best run of the paper did without.

Do not combine with
    overlong.kind = "soft-punishment": it is one setting.

Source
    DAPO, arXiv 2503.14476, section 3.4.
"""

from __future__ import annotations

from torch import Tensor


def overlong_mask(loss_mask_BT: Tensor, truncated_B: Tensor) -> Tensor:
    """The loss mask without truncated responses, bool, shape (B, T)."""
    return loss_mask_BT & ~truncated_B[:, None]
