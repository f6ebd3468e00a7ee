"""The settings of a project: `grpodoctor.toml`, or `[tool.grpodoctor]` in `pyproject.toml`.

select = ["ENT", "GRP001"]               # rules to run; empty for all
ignore = ["REW007"]                      # rules to skip
framework = "trl"                        # framework whose config keys the remedies use
extend-safe-fixes = ["overlong-mask"]    # remedies that `watch --apply safe` may apply

[map]                                    # log keys to read as a metric
"my/entropy" = "entropy/mean"

[severities]                             # severity of a rule's findings
LEN002 = "info"

[thresholds.truncated-responses]         # a rule's thresholds, by code or name
warning_share = 0.7

[[alerts.channels]]                      # where findings are sent; see alert_settings.py
kind = "slack"
url-env = "SLACK_WEBHOOK_URL"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.registry import configurable_framework_named
from grpodoctor.monitor.alert_settings import AlertSettings, read_alerts
from grpodoctor.monitor.threshold_ranges import range_of
from grpodoctor.remedies.catalogue import all_remedies
from grpodoctor.rules import catalogue
from grpodoctor.rules.base import SEVERITIES, Rule, RuleResult, Severity, Sighting
from grpodoctor.runs.chart import Chart
from grpodoctor.support.files.regular_files import read_regular
from grpodoctor.support.suggestions import check_name, near_names
from grpodoctor.support.toml_text import parse_toml
from grpodoctor.vocabulary.metrics import METRICS, metric_of

SETTINGS_FILE = "grpodoctor.toml"
_PYPROJECT = "pyproject.toml"
_LARGEST = 1 << 20
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """The settings of a project."""

    path: Path | None = None
    """The file that they come from; None for the defaults."""
    select: tuple[str, ...] = ()
    """Rules to run: codes, code prefixes or names; empty for all."""
    ignore: tuple[str, ...] = ()
    """Rules to skip."""
    framework: str | None = None
    """Framework whose config keys the remedies use; the run's own if None."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """Log keys and the metric that each holds."""
    thresholds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """New values of a rule's fields, by code."""
    severities: Mapping[str, Severity] = field(default_factory=dict)
    """Severity of a rule's findings, by code."""
    extend_safe_fixes: tuple[str, ...] = ()
    """Ids of remedies that count as safe."""
    alerts: AlertSettings = field(default_factory=AlertSettings)
    """Which findings are sent, and where."""

    def rules(self, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> tuple[Rule, ...]:
        """The rules to run, with their thresholds and severities.

        Args:
            select: selectors of the command line; they replace those of the file.
            ignore: further rules to skip.

        Raises:
            ConfigError: if a selector matches no rule.
        """
        chosen = catalogue.select(
            catalogue.all_rules(), select or self.select, (*self.ignore, *ignore)
        )
        return tuple(map(self._configured, chosen))

    def _configured(self, rule: Rule) -> Rule:
        if rule.code in self.thresholds:
            rule = rule.with_thresholds(**self.thresholds[rule.code])
        severity = self.severities.get(rule.code)
        return rule if severity is None else _with_severity(rule, severity)


def find_settings(folder: Path | None = None) -> Path | None:
    """The settings file of a project, in a folder or the nearest one above it.

    Args:
        folder: where the search begins; the working directory if None.

    The search ends at the root of a repository, and where it may not read. A `pyproject.toml`
    counts if it has the table `[tool.grpodoctor]`.
    """
    try:
        start = folder or Path.cwd()
        for place in (start, *start.parents):
            own, project = place / SETTINGS_FILE, place / _PYPROJECT
            if own.is_file():
                return own
            if project.is_file() and _table_in(_content_of(project), project) is not None:
                return project
            if (place / ".git").exists():
                return None
    except OSError:
        return None
    return None


def load_settings(path: Path) -> ProjectSettings:
    """Read a settings file.

    Raises:
        ConfigError: if the file cannot be read, or a key or value in it is invalid; the message
            names the nearest valid name.
    """
    return parse_settings(_content_of(path), path)


def parse_settings(content: bytes, path: Path) -> ProjectSettings:
    """The settings in the text of a file.

    Args:
        content: the text.
        path: the file, which errors name; the settings of `pyproject.toml` are in a table.

    Raises:
        ConfigError: if a key or value is invalid.
    """
    table = _table_in(content, path)
    if table is None:
        raise ConfigError(
            "the file has no table [tool.grpodoctor]", where=str(path), remedy="add the table"
        )
    for key in table:
        check_name(key, _READERS, "setting", where=str(path))
    values = {_FIELDS.get(key, key): _READERS[key](table[key], f"{path}: {key}") for key in table}
    return ProjectSettings(path=path, **values)


def _content_of(path: Path) -> bytes:
    try:
        return read_regular(path, _LARGEST)
    except OSError as error:
        raise ConfigError(f"cannot read: {error.strerror}", where=str(path)) from None


def _table_in(content: bytes, path: Path) -> Mapping[str, Any] | None:
    try:
        document = parse_toml(content)
    except ValueError as error:
        if path.name == _PYPROJECT:
            return None
        raise ConfigError(f"invalid TOML: {error}", where=str(path)) from None
    if path.name != _PYPROJECT:
        return document
    tool = document.get("tool")
    table = tool.get("grpodoctor") if isinstance(tool, Mapping) else None
    return table if isinstance(table, Mapping) else None


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ConfigError(
            "the value is not a list of strings", where=where, remedy='write ["…", "…"]'
        )
    return tuple(value)


def _selectors(value: Any, where: str) -> tuple[str, ...]:
    selectors = _texts(value, where)
    with_place(lambda: catalogue.select(catalogue.all_rules(), selectors), where)
    return selectors


def _framework(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError("the value is not the name of a framework", where=where)
    return with_place(lambda: configurable_framework_named(value).name, where)


def _mapping(value: Any, where: str) -> dict[str, str]:
    table = _table(value, where)
    for key, metric in table.items():
        if not isinstance(metric, str) or metric_of(metric) is None:
            near = near_names(str(metric), [known.name for known in METRICS])
            remedy = f"did you mean {' or '.join(near)}?" if near else "run: grpodoctor metrics"
            raise ConfigError(
                f"unknown metric {str(metric)[:60]!r}", where=f"{where}.{key[:60]}", remedy=remedy
            )
    return dict(table)


def _severities(value: Any, where: str) -> dict[str, Severity]:
    severities: dict[str, Severity] = {}
    for name, (rule, severity) in _by_rule(value, where).items():
        check_name(str(severity), SEVERITIES, "severity", where=f"{where}.{name}")
        severities[rule.code] = severity
    return severities


def _thresholds(value: Any, where: str) -> dict[str, dict[str, Any]]:
    thresholds = {}
    for name, (rule, table) in _by_rule(value, where).items():
        place = f"{where}.{name}"
        values = _table(table, place)
        for key, number in values.items():
            _check_threshold(rule, key, number, place)
        thresholds[rule.code] = dict(values)
    return thresholds


def _by_rule(value: Any, where: str) -> dict[str, tuple[Rule, Any]]:
    """The entries of a table whose keys are codes or names of rules, with the rule of each.

    Raises:
        ConfigError: if a key is no rule, or two keys are the same rule.
    """
    entries: dict[str, tuple[Rule, Any]] = {}
    names: dict[str, str] = {}
    for name, entry in _table(value, where).items():
        rule = with_place(lambda name=name: catalogue.rule_of(name), where)  # type: ignore[misc]
        other = names.setdefault(rule.code, name)
        if other != name:
            raise ConfigError(
                f"{other} and {name} are the same rule",
                where=where,
                remedy=f"keep one of them, such as {rule.code}",
            )
        entries[name] = rule, entry
    return entries


def _check_threshold(rule: Rule, key: str, value: Any, where: str) -> None:
    """Check that a rule has a threshold of this name, and that the value suits it.

    Raises:
        ConfigError: if it has not, or if the value is of another kind or out of range.
    """
    defaults = rule.thresholds()
    check_name(key, defaults, f"threshold of {rule.code}", where=where)
    default = defaults[key]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if type(value) is not type(default) and not (isinstance(default, float) and is_number):
        kind = "a number" if isinstance(default, float) else f"a value like {default!r}"
        raise ConfigError(f"{key} must be {kind}, not {value!r:.40}", where=where)
    if not is_number:
        return
    allowed = range_of(key, default)
    if allowed.excludes(value):
        wanted = f"{key} must be {allowed.words}, not {value!r:.40}"
        raise ConfigError(wanted, where=where, remedy=f"the default is {default:g}")


def _remedies(value: Any, where: str) -> tuple[str, ...]:
    ids = _texts(value, where)
    known = {remedy.id: remedy for remedy in all_remedies()}
    for remedy in ids:
        check_name(remedy, known, "remedy", where=where)
        if not known[remedy].in_flight:
            raise ConfigError(
                f"{remedy} cannot be applied to a live run", where=where, remedy="remove it"
            )
    return ids


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError("the value is not a table", where=where)
    return value


def with_place(call: Callable[[], _T], where: str) -> _T:
    """Call a function; an error that it raises names the setting instead of an option."""
    try:
        return call()
    except ConfigError as error:
        raise ConfigError(error.what, where=where, remedy=error.remedy) from None


_READERS: Mapping[str, Callable[[Any, str], Any]] = {
    "select": _selectors,
    "ignore": _selectors,
    "framework": _framework,
    "map": _mapping,
    "thresholds": _thresholds,
    "severities": _severities,
    "extend-safe-fixes": _remedies,
    "alerts": read_alerts,
}
"""The keys of the file, each with the function that checks its value."""

_FIELDS = {"map": "mapping", "extend-safe-fixes": "extend_safe_fixes"}


def _with_severity(rule: Rule, severity: Severity) -> Rule:
    """The same rule, with one severity for all its findings."""
    original = type(rule)

    def examine(self: Rule, chart: Chart) -> RuleResult:
        result = original.examine(self, chart)
        return replace(result, severity=severity) if isinstance(result, Sighting) else result

    configured: type[Rule] = type(original.__name__, (original,), {"examine": examine})
    return configured(**rule.thresholds())
