"""Scoring: a model's log-probabilities and entropies for given tokens."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from grpodoctor.trainer.algorithms.batches import chunks
from grpodoctor.trainer.distributed.ranks import Ranks
from grpodoctor.trainer.model.forward_scores import forward_scores
from grpodoctor.trainer.moe.routers import Routers
from grpodoctor.trainer.moe.routes import Gates, Routes, join_routes, routes_of
from grpodoctor.trainer.samples import Samples

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Scores(NamedTuple):
    """Log-probabilities and entropies of a batch's tokens; zeros outside the mask, no gradient."""

    logprobs_BT: Tensor
    entropy_BT: Tensor
    routes: Routes | None = None
    """The experts of each token; None if not recorded."""


def score(
    model: PreTrainedModel,
    samples: Samples,
    temperature: float,
    micro_batch: int = 0,
    *,
    routers: Routers | None = None,
    replay_BLDK: Tensor | None = None,
) -> Scores:
    """Log-probabilities and entropies of a batch's tokens under a model, at a temperature.

    With `routers` the routes are recorded; `replay_BLDK` forces experts on them. A
    `micro_batch` of 0 takes all responses at once.
    """
    parts = []
    for rows in chunks(len(samples), micro_batch):
        replay = None if replay_BLDK is None else replay_BLDK[rows, :-1]
        with nullcontext() if routers is None else routers.recording(replay) as record:
            part = _score_rows(model, samples.rows(rows), temperature)
            if record is not None:
                part = part._replace(routes=routes_of(record, *part.logprobs_BT.shape))
            parts.append(part)
    return Scores(
        torch.cat([part.logprobs_BT for part in parts]),
        torch.cat([part.entropy_BT for part in parts]),
        join_routes([part.routes for part in parts]),
    )


def score_on_ranks(
    model: PreTrainedModel,
    samples: Samples,
    temperature: float,
    micro_batch: int,
    ranks: Ranks,
    *,
    routers: Routers | None = None,
    replay_BLDK: Tensor | None = None,
) -> Scores:
    """The result of `score` for a batch, with a share of the rows scored on each rank."""
    count, rows = len(samples), ranks.share(len(samples)).rows
    own = score(
        model,
        samples.rows(rows),
        temperature,
        micro_batch,
        routers=routers,
        replay_BLDK=None if replay_BLDK is None else replay_BLDK[rows],
    )
    return Scores(
        ranks.gather_rows(own.logprobs_BT, count),
        ranks.gather_rows(own.entropy_BT, count),
        None if own.routes is None else _join_routes(own.routes, count, ranks),
    )


def _join_routes(own: Routes, count: int, ranks: Ranks) -> Routes:
    gates = Gates(*(ranks.gather_rows(tensor, count) for tensor in own.gates))
    return Routes(ranks.gather_rows(own.experts_BLDK, count), gates)


@torch.no_grad()
def _score_rows(model: PreTrainedModel, samples: Samples, temperature: float) -> Scores:
    output = forward_scores(model, samples, temperature)
    return Scores(output.logprobs_BT, output.entropy_BT)
