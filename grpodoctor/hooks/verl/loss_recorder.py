"""Records what the policy loss of a verl worker sees, and changes its clip on request.

verl calls the loss once per micro-batch, without the number of the step. Micro-batches are joined
to an update by counting responses, and updates to a step by the number that the user gives.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import MutableMapping
from copy import copy
from pathlib import Path
from typing import Any

from grpodoctor.hooks.run_hook import RunHook, hook_options, timestamped_directory
from grpodoctor.hooks.verl.micro_batches import (
    MicroBatch,
    clip_metrics,
    has_clip_readings,
    join,
    micro_batch_of,
)
from grpodoctor.hooks.verl.worker_config import clip_setting, model_of, settings_of
from grpodoctor.measure.updates import update_readings
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import ABSENT, Mean, Rate, Reading, merge_all

RUN_DIR = "GRPODOCTOR_VERL_RUN_DIR"
UPDATES_PER_STEP = "GRPODOCTOR_VERL_UPDATES_PER_STEP"

_WITH_CLIP = ("vanilla", "gspo", "clip_cov", "geo_mean", "cispo")
"""Losses of verl in which clip_ratio_low and clip_ratio_high are bounds of the ratio."""
_METRICS = "actor/grpodoctor"
_UNSEEN = ("optimizer/loss", "optimizer/grad_norm", "optimizer/learning_rate")
_NO_CLIP_READINGS = (
    "clip/low_rate", "clip/high_rate", "clip/dual_rate", "clip/fork_token_rate",
)  # fmt: skip
_log = logging.getLogger("grpodoctor")


class LossRecorder:
    """The hook in one worker.

    Args:
        mode: verl's name of the loss.
    """

    def __init__(self, mode: str) -> None:
        self._mode = mode
        directory = os.environ.get(RUN_DIR)
        options = hook_options(directory or None, "none", "off", 8)
        self.hook = RunHook("verl", options, Path(timestamped_directory()))
        self._updates_per_step = _updates_per_step()
        self._config: Any = None
        self._clip: dict[str, float] = {}
        self._copies: tuple[Any, dict[str, float], Any] | None = None
        self._step = 0
        self._updates = 0
        self._readings: dict[str, Reading] = {}
        self._waiting: list[MicroBatch] = []
        self._in_step = False

    def prepare(self, arguments: MutableMapping[str, Any]) -> None:
        """Before the loss of a micro-batch: begin a step, and put a changed clip in force.

        Args:
            arguments: the arguments of the loss; `config` is replaced if the clip was changed.
        """
        config = arguments.get("config")
        if self._config is None:
            self._begin(config)
        self._config = config
        if not self._in_step:
            self._in_step = True
            self.hook.begin_step(self._step)
        if self._clip:
            arguments["config"] = self._changed(config)

    def observe(self, arguments: MutableMapping[str, Any], loss: Any) -> dict[str, float]:
        """After the loss of a micro-batch: keep its tokens; at the end of a step, record it.

        Args:
            arguments: the arguments of the loss.
            loss: its result.

        Returns:
            metrics to log; none of them has a key outside `unknown_metrics`.
        """
        batch = micro_batch_of(arguments, loss)
        self._waiting.append(batch)
        info = getattr(self._config, "global_batch_info", None) or {}
        if sum(len(each.mask_BT) for each in self._waiting) >= _rows_per_update(info):
            self._end_update()
        return {**self._bounds(), **clip_metrics(_METRICS, self._mode, batch, *self._limits())}

    def _begin(self, config: Any) -> None:
        knobs = self.hook.knobs
        if self._mode in _WITH_CLIP:
            knobs.add("clip_low", get=lambda: self._limits()[0], set=self._setter("clip_low"))
            knobs.add("clip_high", get=lambda: self._limits()[1], set=self._setter("clip_high"))
        if self._updates_per_step is not None:
            knobs.read_only("updates_per_batch", self._updates_per_step)
        self._config = config
        self.hook.missing("rewards, texts and entropy", "verl does not pass them to policy losses")
        if self._updates_per_step is None:
            why = f"set {UPDATES_PER_STEP}; each update is recorded as a step"
            self.hook.missing("the trainer's step number", why)
        self.hook.begin(model=model_of(config), config=settings_of(config, self._mode))

    def _setter(self, name: str) -> Any:
        def change(setting: Setting) -> None:
            self._clip = {**self._clip, name: float(setting)}

        return change

    def _limits(self) -> tuple[float | None, float | None]:
        """The bounds in force."""
        return (
            self._clip.get("clip_low", clip_setting(self._config, "low")),
            self._clip.get("clip_high", clip_setting(self._config, "high")),
        )

    def _bounds(self) -> dict[str, float]:
        if self._mode not in _WITH_CLIP:
            return {}
        names = ("clip_low", "clip_high")
        pairs = zip(names, self._limits(), strict=True)
        return {f"{_METRICS}/{name}": math.nan if v is None else v for name, v in pairs}

    def _changed(self, config: Any) -> Any:
        """A copy of the config with the clip in force; verl's own stays as it is."""
        if self._copies is None or self._copies[:2] != (id(config), self._clip):
            changed = copy(config)
            for name, setting in self._clip.items():
                field = f"clip_ratio_{name.removeprefix('clip_')}"
                object.__setattr__(changed, field, setting)  # verl's dataclasses are frozen
            self._copies = (id(config), self._clip, changed)
        return self._copies[2]

    def _end_update(self) -> None:
        ids = f"{self._step}-{self.hook.rank}-{self._updates}"
        batches, self._waiting = self._waiting, []
        update = join(batches, ids, self._mode, self._limits(), self._config)
        readings = update_readings(update, on_policy=self._updates_per_step == 1)
        for name in _UNSEEN if has_clip_readings(self._mode) else (*_UNSEEN, *_NO_CLIP_READINGS):
            readings[name] = ABSENT
        finite = all(math.isfinite(batch.loss) for batch in batches)
        readings["optimizer/nonfinite"] = Rate(int(not finite), 1)
        self._readings = merge_all(self._readings, readings) if self._readings else readings
        self._updates += 1
        if self._updates >= (self._updates_per_step or 1):
            self._end_step()

    def _end_step(self) -> None:
        readings, self._readings = self._readings, {}
        if self._updates_per_step is not None:
            readings["updates_per_batch"] = Mean.of([self._updates])
        self.hook.end_step(self._step, readings)
        self._step, self._updates, self._in_step = self._step + 1, 0, False


def unknown_metrics(mode: str) -> dict[str, float]:
    """The keys of `LossRecorder.observe` without values.

    verl joins the metrics of micro-batches and ranks, which must all have the same keys.

    Args:
        mode: verl's name of the loss.
    """
    names = ["clip_low", "clip_high"] if mode in _WITH_CLIP else []
    names += ["clip_low_rate", "clip_high_rate"] if has_clip_readings(mode) else []
    return {f"{_METRICS}/{name}": math.nan for name in names}


def _rows_per_update(info: MutableMapping[str, Any]) -> int:
    """Responses of one update on this rank; 1 if verl gives no global batch."""
    total, ranks = info.get("global_batch_size"), info.get("dp_size") or 1
    return 1 if not total else max(1, int(total) // int(ranks))


def _updates_per_step() -> int | None:
    text = os.environ.get(UPDATES_PER_STEP, "")
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if text:
        _log.warning("%s must be a positive integer, not %r; it is ignored", UPDATES_PER_STEP, text)
    return None
