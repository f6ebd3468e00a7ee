"""Readings of a mixture of experts during training: a few responses, before and after the updates.

The measurements are separate forward passes, so their cost does not grow with the batch, and they
change nothing: a run with recording on trains the same weights as one with recording off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from grpodoctor.measure.experts import ExpertBatch, replay_readings
from grpodoctor.trainer.algorithms.batches import Update
from grpodoctor.trainer.config.train_config import TrainConfig
from grpodoctor.trainer.model.forward import response_logits
from grpodoctor.trainer.moe.routers import Routers, is_mixture, require_routers, routers_of
from grpodoctor.trainer.moe.routes import sum_counts
from grpodoctor.trainer.samples import Samples
from grpodoctor.vocabulary.metrics import METRICS
from grpodoctor.vocabulary.values import NotApplicable, Reading

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_RESPONSES = 32
"""Responses measured per step: several hundred tokens per layer, however large the batch is."""

_EXPERT_METRICS = [metric.name for metric in METRICS if metric.name.startswith("experts/")]
_REPLAY_METRICS = [name for name in _EXPERT_METRICS if "/replay_" in name]


def routers_for_training(config: TrainConfig, model: PreTrainedModel) -> Routers | None:
    """The learner's routers if the training itself uses them; None if at most the record does.

    Raises:
        ModelError: if the training needs routers and the model has none, or unsupported ones.
    """
    if config.engine.routing_replay != "none":
        return require_routers(model, f"engine.routing_replay={config.engine.routing_replay}")
    if config.loss.needs_router_shift:
        return require_routers(model, f"loss.kind={config.loss.kind}")
    return None


class _Routing(NamedTuple):
    """What the routers did with the N response tokens of the measured responses."""

    used_NDK: Tensor
    chosen_NDK: Tensor
    entropy_ND: Tensor
    margin_ND: Tensor


class ExpertMeasurement:
    """Measures the routers before the updates of a step and, with `after`, after them.

    Both measurements force the experts `replay_BLDK`; None leaves the routers free.
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
        self._before = self._measure()

    def after(self, *, updated: bool) -> ExpertBatch:
        """The routing before the updates and, if there was an update, the routing now."""
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
            chosen_after_NLK=_array(self._measure().chosen_NDK) if updated else None,
        )

    @torch.no_grad()
    def _measure(self) -> _Routing:
        samples, mask_BT, slots = self._samples, self._samples.mask_BT, self._routers.slots
        replay_BLDK = None if self._replay_BLDK is None else self._replay_BLDK[:, :-1]
        with self._routers.recording(replay_BLDK) as record:
            # The routers are the subject; the logits of one position are formed and dropped.
            last = samples.tokens_BL.shape[1] - 1
            response_logits(self._model, samples.tokens_BL, samples.attention_BL, last)
        rows, length = mask_BT.shape
        logits_NDE = record.logits(rows)[:, -length:][mask_BT]
        logprobs_NDE = torch.log_softmax(logits_NDE, dim=-1)
        largest = logits_NDE.topk(slots + 1, dim=-1)
        return _Routing(
            used_NDK=record.experts(rows)[:, -length:][mask_BT],
            chosen_NDK=largest.indices[..., :slots].to(torch.int16),
            entropy_ND=-(logprobs_NDE.exp() * logprobs_NDE).sum(dim=-1),
            margin_ND=largest.values[..., slots - 1] - largest.values[..., slots],
        )


def measure_experts(
    model: PreTrainedModel, samples: Samples, replay_BLDK: Tensor | None
) -> ExpertMeasurement | None:
    """Measure the routers before the updates of a step.

    Returns:
        None for a dense model, for unsupported routers, and where a token activates all experts.
    """
    routers = routers_of(model)
    if routers is None or routers.slots == routers.experts:
        return None
    return ExpertMeasurement(model, routers, samples, replay_BLDK)


def constant_expert_readings(model: PreTrainedModel) -> dict[str, Reading]:
    """The `experts/*` readings that hold without a measurement: not applicable to a dense model."""
    if is_mixture(model):
        return {
            **dict.fromkeys(_REPLAY_METRICS, NotApplicable("no routing is replayed")),
            "experts/auxiliary_loss": NotApplicable("the trainer adds no auxiliary loss"),
        }
    return dict.fromkeys(_EXPERT_METRICS, NotApplicable("the model is dense"))


def replay_rates(updates: Sequence[Update]) -> dict[str, Reading]:
    """The `experts/replay_*` readings of a step's updates; empty without a replay."""
    counts = sum_counts([update.replayed for update in updates])
    return {} if counts is None else replay_readings(*map(_array, counts))


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.cpu().numpy()
