"""CFG060."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grpodoctor.frameworks.knob_mapping import OutOfRange
from grpodoctor.rules.base import Severity
from grpodoctor.rules.shared.config_rule import ConfigFault, ConfigRule, Settings
from grpodoctor.vocabulary.config_facts import setting_named
from grpodoctor.vocabulary.knobs import KNOBS

_KL = ("kl_coefficient", "kl_in_loss", "kl_in_reward")

_BELOW: Mapping[str, str] = {
    **dict.fromkeys(_KL, "a negative KL penalty rewards drift"),
    "clip_low": "a ratio of 1 is already clipped",
    "clip_high": "a ratio of 1 is already clipped",
    "correction_cap": "on-policy tokens lose weight",
    "learning_rate": "updates raise the loss",
    "temperature": "responses differ only at a temperature above 0",
}
_ABOVE: Mapping[str, str] = {
    **dict.fromkeys(_KL, "the KL penalty outweighs the reward"),
    "entropy_coefficient": "the entropy bonus outweighs the reward",
    "learning_rate": "one update replaces the weights",
    "temperature": "samples are nearly random tokens",
}

_NO_LIMIT = ("clip_low", "clip_high", "correction_cap", "dual_clip", "weight_cap",
             "staleness_limit")  # fmt: skip
"""Limits that a very large value switches off."""

_OFF_BY_ZERO = ("correction_cap", "dual_clip", "weight_cap")

_NO_SENTINEL = (*_KL, "learning_rate", "temperature")
"""Settings for which no framework reads -1 as off."""


class SettingOutOfRange(ConfigRule):
    """A setting is outside the range in which it has a meaning.

    What it sees:
        A number outside its setting's range: a KL coefficient below 0 or above 10, a clip below 0,
        a learning rate below 0 or above 0.1, a temperature of 0 or less, or above 2. The finding
        names the framework's own key. Values that switch a setting off are no fault: no value, -1,
        0 for a count, and a very large limit.

    Why it matters:
        The setting does the opposite of its purpose, or outweighs everything else. A negative KL
        coefficient subtracts the penalty, so the loss falls without bound as the policy leaves the
        reference; this is critical. Other rules do not read a setting that is out of range.

    Evidence it needs:
        The run's config. Nothing else.

    Remedies:
        Correct the sign, the exponent or the unit of the named key.

    When it is wrong:
        A plain SGD optimizer may use a learning rate above 0.1, and rewards on a scale of hundreds
        may balance a KL coefficient above 10.

    References:
        DeepSeekMath, arXiv 2402.03300, Eq. 3 (sign of the KL penalty); Adam, arXiv 1412.6980,
        section 2.1 (one step changes a weight by about the learning rate).
    """

    code = "CFG060"
    name = "setting-out-of-range"
    explains = ("reference-drift", "oversized-updates", "plateau")
    summary = "A setting is outside the range in which it has a meaning."
    needs = ()
    remedies = ("check-kl-sign",)
    references = ("arXiv 2402.03300", "arXiv 1412.6980")

    largest_learning_rate: float = 0.1
    """Five times 0.02, the spread of a transformer's initial weights: one step of Adam changes each
    weight by about the learning rate."""

    largest_temperature: float = 2.0
    """Twice the temperature that recipes use; at 2, the odds of two tokens are the square root of
    the model's, and long responses end in noise."""

    def find_fault(self, settings: Settings) -> ConfigFault | None:
        """Name the most severe setting, and count the others."""
        wrong = sorted(self._wrong(settings), key=lambda each: not _is_critical(each))
        if not wrong:
            return None
        first, others = wrong[0], wrong[1:]
        text = f"{first.key}={first.value:g} is outside {self._range(first.knob)}{_why(first)}"
        if others:
            text += f"; {others[0].key}={others[0].value:g} is out of range too"
        severity: Severity = "critical" if _is_critical(first) else "warning"
        values = {each.knob: each.value for each in wrong}
        return ConfigFault(severity, f"{text}.", _remedies(first), values)

    def _wrong(self, settings: Settings) -> Iterator[OutOfRange]:
        """Settings of the config, then knobs that the run itself recorded."""
        for setting in settings.out_of_range:
            if _is_fault(setting, settings):
                yield setting
        in_config = {setting.knob for setting in settings.out_of_range}
        for knob in KNOBS:
            value = settings.number(knob)
            if value is None or knob in in_config:
                continue
            setting = OutOfRange(knob, knob, value)
            if not self._contains(knob, value) and _is_fault(setting, settings):
                yield setting

    def _contains(self, knob: str, value: float) -> bool:
        low, high = self._bounds(knob)
        return low <= value <= high

    def _bounds(self, knob: str) -> tuple[float, float]:
        low, high = setting_named(knob).low, setting_named(knob).high
        if low is None or high is None:
            return (float("-inf"), float("inf"))
        largest = {
            "learning_rate": self.largest_learning_rate,
            "temperature": self.largest_temperature,
        }
        return (low, largest.get(knob, high))

    def _range(self, knob: str) -> str:
        low, high = self._bounds(knob)
        return f"{low:g} to {high:g}"


def _is_fault(setting: OutOfRange, settings: Settings) -> bool:
    """Whether a value out of range is a mistake, not one that switches the setting off."""
    row, value = setting_named(setting.knob), setting.value
    is_limit = row.integer or setting.knob in _NO_LIMIT
    if (row.high is not None and value > row.high and is_limit) or (
        value == -1 and setting.knob not in _NO_SENTINEL
    ):
        return False
    if value == 0 and setting.knob == "temperature":
        return settings.get("greedy_sampling") is not True  # CFG022 reports it
    return value != 0 or not (row.integer or setting.knob in _OFF_BY_ZERO)


def _is_critical(setting: OutOfRange) -> bool:
    return setting.knob in _KL and setting.value < 0


def _why(setting: OutOfRange) -> str:
    low = setting_named(setting.knob).low
    is_below = low is not None and setting.value < low
    reason = (_BELOW if is_below else _ABOVE).get(setting.knob, "")
    return f": {reason}" if reason and setting.value == setting.value else ""


def _remedies(setting: OutOfRange) -> tuple[str, ...]:
    if setting.knob in _KL:
        return ("check-kl-sign",)
    if setting.knob == "learning_rate":
        return ("lower-learning-rate",) if setting.value > 0 else ()
    return ("raise-temperature",) if setting.knob == "temperature" and setting.value <= 0 else ()
