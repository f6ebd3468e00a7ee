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
    """Where the old policy sent each response token, and how surely."""

    experts_BTDK: Tensor
    """The experts it activated, int16."""
    logprobs_BTDK: Tensor
    """Logarithms of their gate probabilities among all experts, float32."""

    def rows(self, rows_B: Tensor) -> Gates:
        """Those of some responses."""
        return Gates(self.experts_BTDK[rows_B], self.logprobs_BTDK[rows_B])


class Routes(NamedTuple):
    """How a pass over a batch was routed."""

    experts_BLDK: Tensor
    """The experts of every column, int16; `ABSENT` in the last, which is never read."""
    gates: Gates


def routes_of(tape: RoutingRecord, rows: int, length: int) -> Routes:
    """The routes of the latest pass.

    Args:
        tape: of the pass.
        rows: responses that it read.
        length: T, its last columns, which predict the response tokens.
    """
    experts_BLDK = tape.experts(rows)
    experts_BTDK = experts_BLDK[:, -length:]
    return Routes(
        torch.nn.functional.pad(experts_BLDK, (0, 0, 0, 0, 0, 1), value=ABSENT),
        Gates(experts_BTDK, _gate_logprobs(tape, experts_BTDK)),
    )


def join_routes(parts: Sequence[Routes | None]) -> Routes | None:
    """The routes of all parts of a batch; None if nobody asked for them."""
    there = [part for part in parts if part is not None]
    if not there:
        return None
    gates = [part.gates for part in there]
    return Routes(
        torch.cat([part.experts_BLDK for part in there]),
        Gates(*(torch.cat(each) for each in zip(*gates, strict=True))),
    )


def router_shift(old: Gates, tape: RoutingRecord) -> Tensor:
    """How far the routers moved away from the old policy's at each response token, shape (B, T).

    exp(-mean over layers and experts of |log gate - log old gate|), over the experts that the old
    policy activated: 1 where nothing moved. It has no gradient.

    Source: RSPO, arXiv 2510.23027.
    """
    moved_BTDK = _gate_logprobs(tape, old.experts_BTDK) - old.logprobs_BTDK
    return torch.exp(-moved_BTDK.abs().mean(dim=(2, 3)))


def _gate_logprobs(tape: RoutingRecord, experts_BTDK: Tensor) -> Tensor:
    rows, length = experts_BTDK.shape[:2]
    logits_BTDE = tape.logits(rows)[:, -length:]
    return torch.log_softmax(logits_BTDE, dim=-1).gather(3, experts_BTDK.long())


class ReplayCounts(NamedTuple):
    """How a replay went, counted over the tokens that bear loss, per layer, shape (D,) each."""

    expected_D: Tensor
    present_D: Tensor
    """Tokens whose experts were known."""
    obeyed_D: Tensor
    """Of those, tokens whose layer then asked for just these experts."""


def sum_counts(counts: Sequence[ReplayCounts | None]) -> ReplayCounts | None:
    """All of them together; None if there are none."""
    there = [each for each in counts if each is not None]
    return ReplayCounts(*(sum(parts) for parts in zip(*there, strict=True))) if there else None


def replay_counts(tape: RoutingRecord, replay_BLDK: Tensor, mask_BT: Tensor) -> ReplayCounts:
    """Compare what was to be replayed with what the experts of the latest pass were asked for."""
    rows, length = mask_BT.shape
    wanted_NDK = replay_BLDK[:, -length:][mask_BT]
    used_NDK = tape.experts(rows)[:, -length:][mask_BT]
    present_ND = (wanted_NDK >= 0).all(dim=2)
    same_ND = (wanted_NDK.sort(dim=2).values == used_NDK.sort(dim=2).values).all(dim=2)
    expected_D = torch.full_like(present_ND.sum(dim=0), present_ND.shape[0])
    return ReplayCounts(expected_D, present_ND.sum(dim=0), (present_ND & same_ND).sum(dim=0))


class ExpertBuffer:
    """The experts of a batch, written down while it is decoded; `ABSENT` where nothing was read.

    Args:
        tape: of the passes to come.
        routers: whose.
        prompt_attention: true where a prompt's token is real, one row per distinct prompt.
        origin_B: which prompt each response has.
        room: longest response.
    """

    def __init__(
        self,
        tape: RoutingRecord,
        routers: Routers,
        prompt_attention: Tensor,
        origin_B: Tensor,
        room: int,
    ) -> None:
        self._tape, self._attention, self._origin_B = tape, prompt_attention, origin_B
        self._width = prompt_attention.shape[1]
        shape = (len(origin_B), self._width + room, routers.depth, routers.slots)
        device = origin_B.device
        self._experts_BLDK = torch.full(shape, ABSENT, dtype=torch.int16, device=device)

    def note_prompt(self) -> None:
        """Write down the pass over the distinct prompts."""
        experts = self._tape.experts(len(self._attention))
        experts[~self._attention] = ABSENT
        self._experts_BLDK[:, : self._width] = experts[self._origin_B]

    def note_token(self, rows_R: Tensor, running_R: Tensor, index: int) -> None:
        """Write down the pass that read response token `index` of the rows still running."""
        experts_RDK = self._tape.experts(len(rows_R))[:, 0]
        self._experts_BLDK[rows_R[running_R], self._width + index] = experts_RDK[running_R]

    def experts(self, length: int) -> Tensor:
        """What is known, int16, shape (B, L, D, K), for responses of `length` columns."""
        return self._experts_BLDK[:, : self._width + length]
