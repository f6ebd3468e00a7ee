"""Which experts each token activated, how far the router moved, and how a replay went.

Shape suffixes besides the usual ones: D layers with a router, E experts, K experts per token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from grpodoctor.trainer.moe.routers import ABSENT, Routers, RoutingRecord


class Gates(NamedTuple):
    """The experts of each response token under the old policy, and their gate probabilities."""

    experts_BTDK: Tensor
    """Activated experts, int16."""
    logprobs_BTDK: Tensor
    """Logarithms of their gate probabilities among all experts, float32."""

    def rows(self, rows_B: Tensor) -> Gates:
        """The gates of some responses."""
        return Gates(self.experts_BTDK[rows_B], self.logprobs_BTDK[rows_B])


class Routes(NamedTuple):
    """The routing of a forward pass over a batch."""

    experts_BLDK: Tensor
    """The experts of each column, int16; `ABSENT` in the last column, which the model never reads.
    """
    gates: Gates


def routes_of(record: RoutingRecord, rows: int, length: int) -> Routes:
    """The routes of the latest forward pass.

    `length` is T, the number of last columns, which predict the response tokens.
    """
    experts_BLDK = record.experts(rows)
    experts_BTDK = experts_BLDK[:, -length:]
    return Routes(
        torch.nn.functional.pad(experts_BLDK, (0, 0, 0, 0, 0, 1), value=ABSENT),
        Gates(experts_BTDK, _gate_logprobs(record, experts_BTDK)),
    )


def join_routes(parts: Sequence[Routes | None]) -> Routes | None:
    """The routes of all parts of a batch; None if they were not recorded."""
    recorded = [part for part in parts if part is not None]
    if not recorded:
        return None
    gates = [part.gates for part in recorded]
    return Routes(
        torch.cat([part.experts_BLDK for part in recorded]),
        Gates(*(torch.cat(tensors) for tensors in zip(*gates, strict=True))),
    )


def router_shift(old: Gates, record: RoutingRecord) -> Tensor:
    """How far the routers moved from the old policy's at each response token, shape (B, T).

    exp(-mean over layers and experts of |log gate - log old gate|), over the experts that the old
    policy activated. It is 1 if nothing moved and has no gradient.

    Source: RSPO, arXiv 2510.23027.
    """
    moved_BTDK = _gate_logprobs(record, old.experts_BTDK) - old.logprobs_BTDK
    return torch.exp(-moved_BTDK.abs().mean(dim=(2, 3)))


def _gate_logprobs(record: RoutingRecord, experts_BTDK: Tensor) -> Tensor:
    rows, length = experts_BTDK.shape[:2]
    logits_BTDE = record.logits(rows)[:, -length:]
    return torch.log_softmax(logits_BTDE, dim=-1).gather(3, experts_BTDK.long())


class ReplayCounts(NamedTuple):
    """Counts of a replay over the loss tokens, per layer, shape (D,) each."""

    expected_D: Tensor
    """All loss tokens."""
    present_D: Tensor
    """Tokens whose experts were known."""
    obeyed_D: Tensor
    """Tokens with known experts whose layer activated exactly these experts."""


def sum_counts(counts: Sequence[ReplayCounts | None]) -> ReplayCounts | None:
    """The sum of all counts; None if there are none."""
    present = [count for count in counts if count is not None]
    return ReplayCounts(*(sum(parts) for parts in zip(*present, strict=True))) if present else None


def replay_counts(record: RoutingRecord, replay_BLDK: Tensor, mask_BT: Tensor) -> ReplayCounts:
    """Compare the experts to replay with the experts that the latest pass activated."""
    rows, length = mask_BT.shape
    wanted_NDK = replay_BLDK[:, -length:][mask_BT]
    used_NDK = record.experts(rows)[:, -length:][mask_BT]
    present_ND = (wanted_NDK >= 0).all(dim=2)
    same_ND = (wanted_NDK.sort(dim=2).values == used_NDK.sort(dim=2).values).all(dim=2)
    expected_D = torch.full_like(present_ND.sum(dim=0), present_ND.shape[0])
    return ReplayCounts(expected_D, present_ND.sum(dim=0), (present_ND & same_ND).sum(dim=0))


class ExpertBuffer:
    """Collects the experts of a batch while it is decoded; `ABSENT` for columns not yet read."""

    def __init__(
        self,
        record: RoutingRecord,
        routers: Routers,
        prompt_attention: Tensor,
        origin_B: Tensor,
        max_length: int,
    ) -> None:
        self._record, self._attention, self._origin_B = record, prompt_attention, origin_B
        self._width = prompt_attention.shape[1]
        shape = (len(origin_B), self._width + max_length, routers.depth, routers.slots)
        device = origin_B.device
        self._experts_BLDK = torch.full(shape, ABSENT, dtype=torch.int16, device=device)

    def store_prompt(self) -> None:
        """Store the experts of the pass over the distinct prompts."""
        experts = self._record.experts(len(self._attention))
        experts[~self._attention] = ABSENT
        self._experts_BLDK[:, : self._width] = experts[self._origin_B]

    def store_token(self, rows_R: Tensor, running_R: Tensor, index: int) -> None:
        """Store the experts of the pass that read response token `index` of the running rows."""
        experts_RDK = self._record.experts(len(rows_R))[:, 0]
        self._experts_BLDK[rows_R[running_R], self._width + index] = experts_RDK[running_R]

    def experts(self, length: int) -> Tensor:
        """The collected experts, int16, shape (B, L, D, K), for responses of `length` columns."""
        return self._experts_BLDK[:, : self._width + length]
