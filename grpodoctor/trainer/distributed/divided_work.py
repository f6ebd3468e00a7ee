"""Sampling, scoring and judging a batch that ranks divide among them; each ends with all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from grpodoctor.trainer.data.tasks.base import Problem, Rewards, Task
from grpodoctor.trainer.distributed.ranks import ALONE, Ranks
from grpodoctor.trainer.engines.sampler import Samples, concatenate
from grpodoctor.trainer.model.scoring import Scores, score
from grpodoctor.trainer.moe.routing import Gates, Routers, Routes

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def sample_in_shares(
    count: int, draw: Callable[[range], Samples], device: torch.device, ranks: Ranks = ALONE
) -> Samples:
    """A batch of responses, each rank having drawn some of its rows.

    Args:
        count: rows of the whole batch.
        draw: draws the rows it is given; its errors are raised on each rank.
        device: of the result.
        ranks: who takes part.
    """
    rows = ranks.rows(count)
    if ranks.world == 1:
        return draw(rows)
    parts = ranks.gather(lambda: draw(rows).to(torch.device("cpu")) if rows else None)
    return concatenate([part for part in parts if part is not None]).to(device)


def score_shared(
    model: PreTrainedModel,
    samples: Samples,
    temperature: float,
    micro_batch: int,
    ranks: Ranks,
    *,
    routers: Routers | None = None,
    replay_BLDK: Tensor | None = None,
) -> Scores:
    """What `score` says of a batch, each rank having scored some of its rows.

    Args:
        model: whole or divided among the ranks.
        samples: of the whole batch.
        temperature: divides the logits.
        micro_batch: responses per forward pass; 0 takes a rank's share at once.
        ranks: who takes part.
        routers: the model's, to have the routes too.
        replay_BLDK: experts to force on the routers; None leaves them free.
    """
    count, rows = len(samples), ranks.share(len(samples)).rows
    replay = None if replay_BLDK is None else replay_BLDK[rows]
    own = score(
        *(model, samples.rows(rows), temperature, micro_batch), routers=routers, replay_BLDK=replay
    )
    return Scores(
        ranks.join(own.logprobs_BT, count),
        ranks.join(own.entropy_BT, count),
        None if own.routes is None else _join_routes(own.routes, count, ranks),
    )


def _join_routes(own: Routes, count: int, ranks: Ranks) -> Routes:
    gates = Gates(*(ranks.join(each, count) for each in own.gates))
    return Routes(ranks.join(own.experts_BLDK, count), gates)


def judge(
    task: Task, problems: Sequence[Problem], texts: Sequence[str], ranks: Ranks = ALONE
) -> Rewards:
    """The rewards of all texts, each rank having asked about its own: each text is judged once.

    Raises:
        DataError: if a reward function of the user's own fails, on whichever rank.
    """
    rows = ranks.rows(len(texts))
    own = slice(rows.start, rows.stop)
    parts = ranks.gather(lambda: task.score(problems[own], texts[own]) if rows else None)
    return join_rewards([part for part in parts if part is not None])


def join_rewards(parts: Sequence[Rewards]) -> Rewards:
    """The rewards of several lots of responses, at least one, as those of one lot."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part.components)
    judged = [part.correct for part in parts if part.correct is not None]
    return Rewards(
        [reward for part in parts for reward in part.total],
        {name: [value for part in parts for value in _component(part, name)] for name in names},
        [flag for flags in judged for flag in flags] if len(judged) == len(parts) else None,
    )


def _component(rewards: Rewards, name: str) -> Sequence[float]:
    """A component's values; zeros where a user's function left it out, as in the total."""
    return rewards.components.get(name) or [0.0] * len(rewards.total)
