"""Looking at a mixture of experts while it learns: few responses, before and after the updates.

The looks are passes of their own, so that what they cost does not grow with the batch, and they
leave no trace: recording on or off trains the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from grpodoctor.measure.experts import ExpertBatch, replay_readings
from grpodoctor.trainer.algorithms.batches import Update
from grpodoctor.trainer.algorithms.registry import replay_of
from grpodoctor.trainer.algorithms.replays.base import KnownExperts
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.model.forward import response_logits
from grpodoctor.trainer.model.scoring import Scores
from grpodoctor.trainer.moe.routers import Routers, is_mixture, require_routers, routers_of
from grpodoctor.trainer.moe.routes import Gates, sum_counts
from grpodoctor.trainer.samples import Samples
from grpodoctor.vocabulary.metrics import METRICS
from grpodoctor.vocabulary.values import NotApplicable, Reading

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_RESPONSES = 32
"""Looked at in each step: several hundred tokens in every layer, whatever the batch."""

_NAMES = [metric.name for metric in METRICS if metric.name.startswith("experts/")]
_OF_REPLAY = [name for name in _NAMES if "/replay_" in name]


def routers_for_training(config: TrainConfig, model: PreTrainedModel) -> Routers | None:
    """The routers of the learner where the training itself, and not its record alone, needs them.

    Raises:
        ModelError: if it does and the model has none, or none that are understood.
    """
    if config.engine.routing_replay != "none":
        return require_routers(model, f"engine.routing_replay={config.engine.routing_replay}")
    if config.loss.wants_router_shift:
        return require_routers(model, f"loss.kind={config.loss.kind}")
    return None


def experts_to_replay(
    config: TrainConfig, samples: Samples, scores: Scores | None = None
) -> Tensor | None:
    """The experts to force on the learner; None leaves its routers free.

    Args:
        config: names the replay.
        samples: of the batch.
        scores: the old policy's, once there are any.
    """
    routes = None if scores is None else scores.routes
    known = KnownExperts(samples.experts_BLDK, None if routes is None else routes.experts_BLDK)
    return replay_of(config.engine.routing_replay.lower())(known)


def old_gates(config: TrainConfig, scores: Scores) -> Gates | None:
    """The old policy's routing, where the loss compares with it."""
    if scores.routes is None or not config.loss.wants_router_shift:
        return None
    return scores.routes.gates


class _Look(NamedTuple):
    """What the routers did with the response tokens of some responses."""

    used_NDK: Tensor
    chosen_NDK: Tensor
    entropy_ND: Tensor
    margin_ND: Tensor


class ExpertMeasurement:
    """Looks at the routers before the updates of a step, and on request after them.

    Args:
        model: the learner.
        routers: its.
        samples: what it learns from.
        replay_BLDK: experts to force on it in both looks, those that its scores were taken with.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        routers: Routers,
        samples: Samples,
        replay_BLDK: Tensor | None,
    ) -> None:
        self._model, self._routers = model, routers
        count, device = min(len(samples), _RESPONSES), samples.tokens_BL.device
        rows_B = torch.linspace(0, len(samples) - 1, count, device=device).long()
        self._samples = samples.rows(rows_B)
        self._replay_BLDK = None if replay_BLDK is None else replay_BLDK[rows_B]
        self._before = self._look()

    def after(self, *, updated: bool) -> ExpertBatch:
        """Both looks, the second one taken now; the first alone if there was no update."""
        before, samples = self._before, self._samples
        sampler_NDK = None
        if samples.experts_BLDK is not None:
            first = samples.prompt_width - 1
            sampler_NDK = _array(samples.experts_BLDK[:, first:-1][samples.mask_BT])
        return ExpertBatch(
            experts=self._routers.experts,
            used_NLK=_array(before.used_NDK),
            entropy_NL=_array(before.entropy_ND),
            margin_NL=_array(before.margin_ND),
            sampler_NLK=sampler_NDK,
            chosen_NLK=_array(before.chosen_NDK),
            chosen_after_NLK=_array(self._look().chosen_NDK) if updated else None,
        )

    @torch.no_grad()
    def _look(self) -> _Look:
        samples, mask_BT, slots = self._samples, self._samples.mask_BT, self._routers.slots
        replay = None if self._replay_BLDK is None else self._replay_BLDK[:, :-1]
        with self._routers.watched(replay) as tape:
            response_logits(
                self._model, samples.tokens_BL, samples.attention_BL, samples.prompt_width
            )
        rows, length = mask_BT.shape
        logits_NDE = tape.logits(rows)[:, -length:][mask_BT]
        logprobs_NDE = torch.log_softmax(logits_NDE, dim=-1)
        best = logits_NDE.topk(slots + 1, dim=-1)
        return _Look(
            tape.experts(rows)[:, -length:][mask_BT],
            best.indices[..., :slots].to(torch.int16),
            -(logprobs_NDE.exp() * logprobs_NDE).sum(dim=-1),
            best.values[..., slots - 1] - best.values[..., slots],
        )


def measure_experts(
    config: TrainConfig, step: int, model: PreTrainedModel, samples: Samples
) -> ExpertMeasurement | None:
    """Look at the routers before the updates of a step, where the configuration wants it."""
    if not config.record.measures_experts(step):
        return None
    routers = routers_of(model)
    if routers is None or routers.slots == routers.experts:  # where all work, none is chosen
        return None
    return ExpertMeasurement(model, routers, samples, experts_to_replay(config, samples))


def constant_expert_readings(model: PreTrainedModel) -> dict[str, Reading]:
    """What `experts/*` are without any look: not applicable to a dense model."""
    if is_mixture(model):
        return dict.fromkeys(_OF_REPLAY, NotApplicable("no routing is replayed"))
    return dict.fromkeys(_NAMES, NotApplicable("the model is dense"))


def replay_rates(updates: Sequence[Update]) -> dict[str, Reading]:
    """`experts/replay_*` of a step's updates; nothing where nothing was replayed."""
    counts = sum_counts([update.replayed for update in updates])
    return {} if counts is None else replay_readings(*map(_array, counts))


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.cpu().numpy()
