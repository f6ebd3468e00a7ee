"""The canonical knobs: the settings of a run that rules read and remedies change.

A framework's own name for a knob stands in `grpodoctor.frameworks.settings`; here is what it means,
what it may be, and whether a live run can take a change of it between two steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpodoctor.errors import ConfigError
from grpodoctor.vocabulary.losses import LOSSES

Setting = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Knob:
    """One row: a number in [low, high], one of `choices`, or (neither given) a switch."""

    name: str
    summary: str
    low: float | None = None
    high: float | None = None
    integer: bool = False
    choices: tuple[str, ...] = ()
    live: bool = True
    """Whether the bundled trainer takes a change between two steps."""

    def check(self, setting: object) -> Setting:
        """Return `setting` in the knob's own type.

        Raises:
            ConfigError: if it has another type or lies out of bounds.
        """
        if self.choices:
            return self._check_choice(setting)
        if self.low is None or self.high is None:
            return self._check_switch(setting)
        return self._check_number(setting, self.low, self.high)

    def _check_choice(self, setting: object) -> str:
        if not isinstance(setting, str) or setting not in self.choices:
            raise self._refused(setting, f"use one of {', '.join(self.choices)}")
        return setting

    def _check_switch(self, setting: object) -> bool:
        if not isinstance(setting, bool):
            raise self._refused(setting, "use true or false")
        return setting

    def _check_number(self, setting: object, low: float, high: float) -> float | int:
        bounds = f"use a number from {low:g} to {high:g}"
        if isinstance(setting, bool) or not isinstance(setting, int | float):
            raise self._refused(setting, bounds)
        if not low <= setting <= high:  # NaN is never between
            raise self._refused(setting, bounds)
        if self.integer and setting != int(setting):
            raise self._refused(setting, bounds.replace("number", "whole number"))
        return int(setting) if self.integer else float(setting)

    def _refused(self, setting: object, remedy: str) -> ConfigError:
        return ConfigError(
            f"{self.name} cannot be {str(setting)[:60]!r}", where=f"knob {self.name}", remedy=remedy
        )


KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob("loss", "Loss variant.",
             choices=tuple(LOSSES)),
        Knob("clip_low", "Ratio may fall to 1 - clip_low before the gradient stops.", 0, 1),
        Knob("clip_high", "Ratio may rise to 1 + clip_high before the gradient stops.", 0, 10),
        Knob("aggregation", "Denominator of the loss.",
             choices=("sequence-mean", "token-mean", "prompt-mean", "constant",
                      "sequence-mean-token-sum", "sequence-sum-token-mean")),
        Knob("advantage", "How rewards become advantages.",
             choices=("group", "centred", "leave_one_out", "batch_std", "scalerl", "gdpo", "gopo",
                      "reinforce_rej", "none", "gae", "dcpo_sas")),
        Knob("correction", "Correction of the sampler-learner mismatch.",
             choices=("none", "tis_token", "tis_sequence", "mis_token", "mis_sequence", "icepop",
                      "geo_mask")),
        Knob("correction_cap", "Cap of the correction weight.", 1, 100),
        Knob("old_logprobs", "Whose log-probabilities stand for the old policy.",
             choices=("recompute", "sampler")),
        Knob("dynamic_sampling", "Replace groups without variance by fresh ones."),
        Knob("overlong", "What is done about truncated responses.",
             choices=("none", "mask", "soft-punishment")),
        Knob("overlong_buffer", "Width of the soft punishment's buffer, in tokens.", 1, 1_000_000,
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
        Knob("routing_replay", "Whose experts a mixture of experts is held to in its updates: the "
             "learner's own before them (R2), or the sampler's (R3).",
             choices=("none", "R2", "R3"), live=False),
        Knob("sampler_sync_every", "Steps between two weight syncs to the sampler.", 1, 1_000_000,
             integer=True),
    )
}


def check_change(name: str, setting: object) -> Setting:
    """Validate a change that a live run is asked to make.

    Raises:
        ConfigError: if there is no such knob, it is not changeable in flight, or out of bounds.
    """
    knob = KNOBS.get(name)
    if knob is None:
        known = ", ".join(KNOBS)
        raise ConfigError(f"there is no knob {name[:60]!r}", remedy=f"use one of {known}")
    if not knob.live:
        raise ConfigError(f"{name} cannot change in flight", remedy="restart the run with it")
    return knob.check(setting)
