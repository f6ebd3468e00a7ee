"""The learning rate as a live knob: of the optimizer and of its schedule together."""

from __future__ import annotations

from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.hooks.live_knobs import LiveKnobs

_KNOB = "learning_rate"


def add_learning_rate(knobs: LiveKnobs, optimizer: Any, scheduler: Any) -> None:
    """Register the peak learning rate.

    The schedule computes each step's rate from its base rates, or from the previous rate. Both are
    multiplied by the same factor, so that the shape of the schedule stays.

    Args:
        knobs: the knobs of the training.
        optimizer: with `param_groups`; also when wrapped by accelerate.
        scheduler: a schedule of torch; also when wrapped by accelerate.
    """
    schedule = getattr(scheduler, "scheduler", scheduler)
    groups = getattr(optimizer, "param_groups", None)
    bases = getattr(schedule, "base_lrs", None)
    if not groups or not bases or len(bases) != len(groups):
        if groups:
            knobs.read_only(_KNOB, lambda: float(groups[0]["lr"]))
        return

    def change(rate: float) -> None:
        before = float(schedule.base_lrs[0])
        if before <= 0 or rate <= 0:
            raise ConfigError(
                "a learning rate of 0 cannot be changed back; restart the run with it"
            )
        factor = rate / before
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor
            if "initial_lr" in group:
                group["initial_lr"] = group["initial_lr"] * factor
        schedule.base_lrs = [base * factor for base in schedule.base_lrs]
        schedule.base_lrs[0] = rate  # free of rounding

    knobs.add(_KNOB, get=lambda: float(schedule.base_lrs[0]), set=change)
