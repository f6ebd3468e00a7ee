"""The canary of the weight sync in TRL: a few responses of the engine, scored by the learner."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from grpodoctor.hooks.arrays import to_host
from grpodoctor.hooks.trl import private_names
from grpodoctor.hooks.weight_delivery.canary import MOST_TOKENS, DeliveryCanary, responses_to_check
from grpodoctor.vocabulary.values import Reading

_SAMPLER, _LEARNER = "sampling_per_token_logps", "old_per_token_logps"
_ALWAYS = 8
"""Syncs at the start that are all checked: what never worked is broken from the first one."""
_MOST_TIME = 0.005
"""Share of the time that later checks take; after a sync with a risen gap, one always runs."""
_RISEN = 2.0
"""Multiple of the first gap. Readings of one engine pair stay within a factor of two."""


class _Inputs(NamedTuple):
    """Prompts and responses, as TRL scores them."""

    ids: Any
    mask: Any
    width: int
    """Tokens of a response, with padding."""


class DeliveryCheck:
    """Compares the first generation after each sync with the learner's weights.

    TRL sends the weights whenever its step counter has changed since the previous generation, so
    the engine should have the learner's current ones.

    Args:
        trainer: a `GRPOTrainer` of a verified version.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._canary: DeliveryCanary | None = None
        self._checked = -1
        self._count, self._seconds = 0, 0.0
        self._started = time.perf_counter()
        self._noise: float | None = None
        """Mean |gap| of the first batch, before any update."""

    def obstacle(self, batch: Mapping[str, Any]) -> str:
        """Why a batch cannot be checked; empty if it can."""
        if private_names.WITH_IMAGES in batch:
            return "responses to images are not scored again"
        if private_names.is_sharded(self._trainer):
            return "the ranks hold parts of the weights"
        self._canary = self._canary or DeliveryCanary(self._trainer.model, self._score)
        return self._canary.obstacle

    def is_due(self, batch: Mapping[str, Any]) -> bool:
        """Whether an engine generated the batch after a sync that is to be checked."""
        if _SAMPLER not in batch or self._trainer.state.global_step == self._checked:
            return False
        has_risen = self._gap_has_risen(batch)
        return has_risen or self._is_affordable()

    def _is_affordable(self) -> bool:
        """The first syncs are all checked; later ones as long as the checks take little time."""
        elapsed = time.perf_counter() - self._started
        return self._count < _ALWAYS or self._seconds < _MOST_TIME * elapsed

    def _gap_has_risen(self, batch: Mapping[str, Any]) -> bool:
        """Whether the engine left the noise, by TRL's own scores of the whole batch."""
        if _LEARNER not in batch:
            return False
        mask = batch["completion_mask"].bool()
        gaps = (batch[_SAMPLER] - batch[_LEARNER])[mask]
        size = float(gaps[gaps.isfinite()].abs().mean())
        if self._noise is None:
            self._noise = size
        return size > _RISEN * self._noise

    def readings(
        self, batch: Mapping[str, Any], token_ids: Sequence[Sequence[int]]
    ) -> dict[str, Reading]:
        """Check a batch.

        Args:
            batch: TRL's generated batch.
            token_ids: the ids of each response; TRL's mask may lack some of them.
        """
        if self._canary is None:
            return {}
        began = time.perf_counter()
        self._checked, self._count = self._trainer.state.global_step, self._count + 1
        try:
            return self._check(self._canary, batch, token_ids)
        finally:
            self._seconds += time.perf_counter() - began

    def _check(
        self, canary: DeliveryCanary, batch: Mapping[str, Any], token_ids: Sequence[Sequence[int]]
    ) -> dict[str, Reading]:
        rows = responses_to_check(len(token_ids), batch[_SAMPLER].shape[1])
        cut = {key: batch[key][rows] for key in ("prompt_ids", "prompt_mask")}
        ids, sampler = (batch[key][rows, :MOST_TOKENS] for key in ("completion_ids", _SAMPLER))
        lengths = np.array([len(token_ids[row]) for row in rows])
        within_RT = np.arange(ids.shape[1]) < lengths[:, None]
        generated_RT = within_RT
        if "tool_mask" in batch:
            generated_RT = within_RT & to_host(batch["tool_mask"][rows, :MOST_TOKENS]).astype(bool)
        inputs = _joined(cut, ids, within_RT)
        return canary.check(inputs, to_host(sampler), generated_RT)

    def _score(self, inputs: _Inputs) -> Any:
        return private_names.score_tokens(self._trainer, *inputs)


def _joined(prompts: Mapping[str, Any], ids: Any, within_RT: Any) -> _Inputs:
    import torch

    mask = torch.as_tensor(within_RT, device=ids.device).to(prompts["prompt_mask"].dtype)
    return _Inputs(
        torch.cat([prompts["prompt_ids"], ids], dim=1),
        torch.cat([prompts["prompt_mask"], mask], dim=1),
        ids.shape[1],
    )
