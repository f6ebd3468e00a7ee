"""The canonical knobs: the settings of a run that rules read and remedies change.

A row gives a knob's meaning, its valid values, and whether it can change during a run. The knobs'
names in each framework are in `grpodoctor.frameworks.<framework>.knobs`.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpodoctor.errors import ConfigError
from grpodoctor.support.suggestions import check_name
from grpodoctor.vocabulary.losses import LOSSES

Setting = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Knob:
    """One row: a number in [low, high], one of `choices`, or a switch if neither is given."""

    name: str
    summary: str
    low: float | None = None
    high: float | None = None
    integer: bool = False
    choices: tuple[str, ...] = ()
    live: bool = True
    """Whether the bundled trainer accepts a change between two steps."""

    def check(self, setting: object) -> Setting:
        """Return `setting` converted to the knob's type.

        Raises:
            ConfigError: if it has another type or is out of bounds.
        """
        if self.choices:
            return self._check_choice(setting)
        if self.low is None or self.high is None:
            return self._check_switch(setting)
        return self._check_number(setting, self.low, self.high)

    def _check_choice(self, setting: object) -> str:
        if not isinstance(setting, str) or setting not in self.choices:
            raise self._error(setting, f"use one of {', '.join(self.choices)}")
        return setting

    def _check_switch(self, setting: object) -> bool:
        if not isinstance(setting, bool):
            raise self._error(setting, "use true or false")
        return setting

    def _check_number(self, setting: object, low: float, high: float) -> float | int:
        bounds = f"use a number from {low:g} to {high:g}"
        if isinstance(setting, bool) or not isinstance(setting, int | float):
            raise self._error(setting, bounds)
        if not low <= setting <= high:  # false for NaN
            raise self._error(setting, bounds)
        if self.integer and setting != int(setting):
            raise self._error(setting, bounds.replace("number", "whole number"))
        return int(setting) if self.integer else float(setting)

    def _error(self, setting: object, remedy: str) -> ConfigError:
        return ConfigError(
            f"{self.name} cannot be {str(setting)[:60]!r}", where=f"knob {self.name}", remedy=remedy
        )


KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob("loss", "Loss variant.",
             choices=tuple(LOSSES)),
        Knob("clip_low", "Lower clip: the gradient stops below a ratio of 1 - clip_low.", 0, 1),
        Knob("clip_high", "Upper clip: the gradient stops above a ratio of 1 + clip_high.", 0, 10),
        Knob("aggregation", "Denominator of the loss.",
             choices=("sequence-mean", "token-mean", "prompt-mean", "constant",
                      "sequence-mean-token-sum", "sequence-sum-token-mean")),
        Knob("advantage", "Estimator that turns rewards into advantages.",
             choices=("group", "centred", "leave_one_out", "batch_std", "scalerl", "gdpo", "gopo",
                      "reinforce_rej", "none", "gae", "dcpo_sas", "max_rl",
                      "reinforce_plus_plus_baseline")),
        Knob("correction", "Correction of the sampler-learner mismatch.",
             choices=("none", "tis_token", "tis_sequence", "mis_token", "mis_sequence", "icepop",
                      "geo_mask", "error_mask")),
        Knob("correction_cap", "Cap of the correction weight.", 1, 100),
        Knob("old_logprobs", "Source of the old policy's log-probabilities.",
             choices=("recompute", "sampler")),
        Knob("dynamic_sampling", "Replace groups without reward variance by new ones."),
        Knob("overlong", "Handling of truncated responses.",
             choices=("none", "mask", "soft-punishment", "mask-and-soft-punishment",
                      "stop-properly")),
        Knob("overlong_buffer", "Length of the soft punishment's buffer, in tokens.", 1, 1_000_000,
             integer=True),
        Knob("kl_coefficient", "Weight of the KL penalty to the reference.", 0, 10),
        Knob("entropy_coefficient", "Weight of the entropy bonus.", -1, 1),
        Knob("learning_rate", "Peak learning rate.", 0, 1),
        Knob("temperature", "Sampling temperature.", 0.01, 10),
        Knob("group_size", "Responses per prompt.", 1, 100_000, integer=True, live=False),
        Knob("prompts_per_batch", "Prompts per rollout batch.", 1, 1_000_000, integer=True,
             live=False),
        Knob("updates_per_batch", "Optimizer steps per rollout batch.", 1, 100_000, integer=True),
        Knob("max_length", "Longest response, in tokens.", 1, 10_000_000, integer=True,
             live=False),
        Knob("routing_replay", "Routing that the updates of a mixture of experts replay: the "
             "learner's own before the updates (R2) or the sampler's (R3).",
             choices=("none", "R2", "R3"), live=False),
        Knob("sampler_sync_every", "Steps between two weight syncs to the sampler.", 1, 1_000_000,
             integer=True),
    )
}


LOGGED_KNOBS = {
    "kl_coefficient": "optimizer/kl_coefficient",
    "entropy_coefficient": "optimizer/entropy_coefficient",
    "updates_per_batch": "updates_per_batch",
}
"""Knobs with the metric that logs them, which shows their value where the config does not."""

REWARD_WEIGHT = "reward_weight/"
"""Beginning of the knob that weights a reward function; the function's name follows."""
_LARGEST_WEIGHT = 1e6


def is_knob(name: object) -> bool:
    """Whether there is a knob of this name."""
    if not isinstance(name, str):
        return False
    return name in KNOBS or (name.startswith(REWARD_WEIGHT) and name != REWARD_WEIGHT)


def find_knob(name: str) -> Knob:
    """The row of a knob.

    Raises:
        ConfigError: if there is no such knob.
    """
    if name not in KNOBS and is_knob(name):
        return Knob(name, "Weight of a reward function.", -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
    check_name(name, KNOBS, "knob")
    return KNOBS[name]


def check_change(name: str, setting: object) -> Setting:
    """Validate a requested change of a live run.

    Raises:
        ConfigError: if there is no such knob, it cannot change in flight, or the setting is out
            of bounds.
    """
    knob = find_knob(name)
    if not knob.live:
        raise ConfigError(f"{name} cannot change during training", remedy="restart the run with it")
    return knob.check(setting)
