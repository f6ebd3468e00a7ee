"""All trials by name: each module of `catalogue` has a tuple `TRIALS`."""

from __future__ import annotations

from functools import lru_cache

from grpodoctor.support.discovery import modules_below
from grpodoctor.support.suggestions import check_name
from grpodoctor.trials import catalogue
from grpodoctor.trials.healthy_runs import HEALTHY
from grpodoctor.trials.trial import Experiment, Trial


@lru_cache(maxsize=1)
def all_trials() -> dict[str, Trial]:
    """Every trial by name, sorted.

    Raises:
        ValueError: if two trials have the same name.
    """
    trials: dict[str, Trial] = {}
    for module in modules_below(catalogue):
        for trial in module.TRIALS:
            if trials.setdefault(trial.name, trial) is not trial:
                raise ValueError(f"two trials are named {trial.name!r}")
    return dict(sorted(trials.items()))


def trial_of(name: str) -> Trial:
    """A trial by name.

    Raises:
        ConfigError: if there is none; the message suggests similar names.
    """
    check_name(name, all_trials(), "trial")
    return all_trials()[name]


def experiment_of(name: str) -> Experiment:
    """A trial by name, or the healthy runs.

    Raises:
        ConfigError: as `trial_of`.
    """
    return HEALTHY if name == HEALTHY.name else trial_of(name)
