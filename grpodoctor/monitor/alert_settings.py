"""The section `[alerts]` of the settings file: which findings are sent, and where.

[alerts]
min-severity = "warning"        # info, warning or critical
rule-minutes = 60               # shortest time between two alerts of one rule
per-hour = 12                   # alerts of all rules together
resolved = false                # also when a finding is resolved

[[alerts.channels]]
kind = "slack"
url-env = "SLACK_WEBHOOK_URL"   # the variable that holds the secret, never the secret itself
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from grpodoctor.errors import ConfigError
from grpodoctor.rules.base import SEVERITIES, Severity
from grpodoctor.support.suggestions import check_name

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_MOST_CHANNELS = 8
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """One destination. Its options name environment variables, so it holds no secret."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """The findings to send, how often, and where."""

    min_severity: Severity = "warning"
    rule_minutes: float = 60.0
    """Shortest time between two alerts of one rule; an escalation is sent at once."""
    per_hour: int = 12
    """Most alerts of all rules within an hour."""
    resolved: bool = False
    """Whether resolved findings are sent as well."""
    channels: tuple[ChannelSettings, ...] = ()


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and value.isprintable()


def _texts(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= 50 and all(map(_text, value))


def _variable(value: Any) -> bool:
    return isinstance(value, str) and _VARIABLE.fullmatch(value) is not None


def _port(value: Any) -> bool:
    return type(value) is int and 0 < value < 65536


def _security(value: Any) -> bool:
    return value in ("starttls", "tls", "none")


_Check = tuple[Callable[[Any], bool], str]
_TEXT: _Check = (_text, "a text")
_TEXTS: _Check = (_texts, "a list of texts")
_NAME: _Check = (_variable, "the name of an environment variable")
_PORT: _Check = (_port, "a port number")
_SECURITY: _Check = (_security, '"starttls", "tls" or "none"')

CHANNEL_OPTIONS: Mapping[str, tuple[Mapping[str, _Check], Mapping[str, _Check]]] = {
    "slack": ({"url-env": _NAME}, {}),
    "discord": ({"url-env": _NAME}, {}),
    "webhook": ({"url-env": _NAME}, {"authorization-env": _NAME}),
    "command": ({"command": _TEXTS}, {}),
    "smtp": (
        {"host": _TEXT, "from": _TEXT, "to": _TEXTS},
        {"port": _PORT, "security": _SECURITY, "user-env": _NAME, "password-env": _NAME},
    ),
    "tensorboard": ({"directory": _TEXT}, {}),
    "wandb": ({}, {}),
    "trackio": ({}, {}),
}
"""The required and the optional options of each kind of channel."""


def read_alerts(value: Any, where: str) -> AlertSettings:
    """Check the table `[alerts]`.

    Raises:
        ConfigError: if a key or a value is invalid.
    """
    if not isinstance(value, Mapping):
        raise ConfigError("the value is not a table", where=where)
    for key in value:
        check_name(key, _READERS, "setting", where=where)
    read = {key: _READERS[key](value[key], f"{where}.{key}") for key in value}
    return AlertSettings(**{key.replace("-", "_"): setting for key, setting in read.items()})


def _severity(value: Any, where: str) -> Severity:
    check_name(str(value), SEVERITIES, "severity", where=where)
    return cast("Severity", value)


def _minutes(value: Any, where: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 10_000:
        raise ConfigError("the value is not a number from 0 to 10000", where=where)
    return float(value)


def _count(value: Any, where: str) -> int:
    if type(value) is not int or not 1 <= value <= 1000:
        raise ConfigError("the value is not an integer from 1 to 1000", where=where)
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError("the value is not true or false", where=where)
    return value


def _channels(value: Any, where: str) -> tuple[ChannelSettings, ...]:
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        remedy = "write [[alerts.channels]]"
        raise ConfigError("the value is not a list of tables", where=where, remedy=remedy)
    if len(value) > _MOST_CHANNELS:
        raise ConfigError(f"there are more than {_MOST_CHANNELS} channels", where=where)
    return tuple(_channel(each, f"{where}[{index}]") for index, each in enumerate(value))


def _channel(table: Mapping[str, Any], where: str) -> ChannelSettings:
    kind = table.get("kind")
    if not isinstance(kind, str):
        names = ", ".join(CHANNEL_OPTIONS)
        raise ConfigError("the channel has no kind", where=where, remedy=f"choose one of {names}")
    check_name(kind, CHANNEL_OPTIONS, "kind of channel", where=where)
    required, optional = CHANNEL_OPTIONS[kind]
    options = {key: value for key, value in table.items() if key != "kind"}
    for key in required.keys() - options.keys():
        what = f"a channel of kind {kind} needs {key}"
        raise ConfigError(what, where=where, remedy=f"set it to {required[key][1]}")
    for key, option in options.items():
        _check_option(kind, key, option, {**required, **optional}, where)
    return ChannelSettings(kind, options)


def _check_option(kind: str, key: str, value: Any, known: Mapping[str, _Check], where: str) -> None:
    """Check an option.

    Raises:
        ConfigError: if it is invalid. The message does not contain the value, which may be a secret
            that was written in the wrong place.
    """
    if key in {"url", "password", "token", "authorization", "user"} and f"{key}-env" in known:
        remedy = f"put it into an environment variable, and write {key}-env"
        raise ConfigError(f"{key} does not belong into a file", where=where, remedy=remedy)
    check_name(key, known, f"option of a {kind} channel", where=where)
    is_valid, expected = known[key]
    if not is_valid(value):
        raise ConfigError(f"the value is not {expected}", where=f"{where}.{key}")


_READERS: Mapping[str, Callable[[Any, str], Any]] = {
    "min-severity": _severity,
    "rule-minutes": _minutes,
    "per-hour": _count,
    "resolved": _flag,
    "channels": _channels,
}
