"""The knobs of a live training: reading their settings, and changing them on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.hooks.guard import reason_of
from grpodoctor.vocabulary.knobs import Setting, check_change, find_knob


@dataclass(frozen=True, slots=True)
class _Control:
    """How one knob of the training is read and set."""

    get: Callable[[], object]
    set: Callable[[Setting], object] | None
    """None for a knob that cannot change during the run."""
    low: float | None
    high: float | None


class LiveKnobs:
    """The canonical knobs that a training has, and those of them that can change in place."""

    def __init__(self) -> None:
        self._controls: dict[str, _Control] = {}
        self._fixed: dict[str, str] = {}
        self._known: dict[str, Setting] = {}

    def add(
        self,
        name: str,
        *,
        get: Callable[[], object],
        set: Callable[..., object],  # noqa: A002 - named as in `property`
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        """Register a knob that can change while the training runs.

        Args:
            name: canonical name, such as `clip_high` or `learning_rate`.
            get: returns the current setting.
            set: puts a new setting in force; raises to refuse it.
            low: lowest setting to accept; the vocabulary's bound by default.
            high: highest setting to accept.

        Raises:
            ConfigError: if there is no such knob, or no run can change it in flight.
        """
        if not find_knob(name).live:
            raise ConfigError(
                f"{name} cannot change during training", remedy="register it as read-only"
            )
        self._controls[name] = _Control(get, set, low, high)

    def read_only(self, name: str, get: Callable[[], object] | Setting, *, why: str = "") -> None:
        """Register a knob that rules read and that does not change during the run.

        Args:
            name: canonical name.
            get: its setting, or a function that returns it.
            why: why it cannot change and what to do instead, if a restart cannot change it either.

        Raises:
            ConfigError: if there is no such knob.
        """
        find_knob(name)
        self._controls[name] = _Control(get if callable(get) else lambda: get, None, None, None)
        self._fixed[name] = why

    def settings(self) -> dict[str, Setting]:
        """The current settings; a knob without a valid setting is left out."""
        return {
            name: setting for name in self._controls if (setting := self._setting(name)) is not None
        }

    def changeable(self) -> dict[str, Setting]:
        """The current settings of the knobs that can change in place."""
        return {
            name: setting
            for name, setting in self.settings().items()
            if self._controls[name].set is not None
        }

    def all_settings(self) -> dict[str, Setting]:
        """The current settings; `changes` compares with them from now on."""
        self._known = self.settings()
        return dict(self._known)

    def changes(self) -> dict[str, Setting]:
        """The settings that differ from those at the previous call."""
        before, settings = self._known, self.all_settings()
        return {name: new for name, new in settings.items() if before.get(name) != new}

    def _setting(self, name: str) -> Setting | None:
        setting = self._controls[name].get()
        if hasattr(setting, "item"):  # a number of numpy or torch
            setting = setting.item()
        if setting is None:
            return None
        try:
            return find_knob(name).check(setting)
        except ConfigError:
            return None

    def check(self, changes: Mapping[str, Setting]) -> None:
        """Check a change against the allow-list and all bounds.

        Raises:
            ConfigError: if a knob is unknown or cannot change, or a setting is out of bounds.
        """
        for name, setting in changes.items():
            control = self._controls.get(name)
            if control is None or control.set is None:
                why = self._fixed.get(name)
                raise ConfigError(
                    f"this run cannot change the knob {name}",
                    remedy=why or "restart it with the setting",
                )
            _check_bounds(name, check_change(name, setting), control)

    def apply(self, changes: Mapping[str, Setting]) -> dict[str, Setting]:
        """Put settings in force, all of them or none; returns the previous ones.

        Raises:
            ConfigError: if one of them is not accepted; the others are then as before.
        """
        self.check(changes)
        before = {name: setting for name, setting in self.settings().items() if name in changes}
        tried: list[str] = []
        for name, setting in changes.items():
            tried.append(name)
            try:
                self._set(name, setting)
            except Exception as error:
                self._restore(tried, before)
                raise ConfigError(f"the training refused {name}: {reason_of(error)}") from error
        return before

    def _restore(self, names: list[str], before: Mapping[str, Setting]) -> None:
        """Put former settings in force again, as far as the training accepts them."""
        for name in names:
            with suppress(Exception):
                self._set(name, before[name])

    def _set(self, name: str, setting: Setting) -> None:
        control = self._controls[name]
        if control.set is not None:
            control.set(setting)


def word_for(setting: Setting, words: Mapping[Any, Any], key: str) -> Any:
    """A framework's word for a setting, in a `set` function.

    Args:
        setting: the canonical setting.
        words: the words by setting.
        key: the framework's key for all of its settings.

    Raises:
        ConfigError: if there is no word for it.
    """
    if setting not in words:
        raise ConfigError(
            f"{setting} cannot be set during training",
            remedy=f"use one of {', '.join(map(str, words))}, or restart with another {key}",
        )
    return words[setting]


def _check_bounds(name: str, setting: Setting, control: _Control) -> None:
    if isinstance(setting, str | bool):
        return
    if control.low is not None and setting < control.low:
        raise ConfigError(f"{name} must be at least {control.low:g} in this run")
    if control.high is not None and setting > control.high:
        raise ConfigError(f"{name} must be at most {control.high:g} in this run")
