"""`check --suggest-map`: propose metrics for unknown keys, and write them on request."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from grpodoctor.monitor.project_settings import SETTINGS_FILE, parse_settings
from grpodoctor.support.safe_text import plain

if TYPE_CHECKING:
    from grpodoctor.runs.reading.map_suggestions import (
        KeyStatistics,
        MapSuggestions,
        Suggestion,
    )
    from grpodoctor.runs.reading.read_options import ReadOptions

_MOST_LISTED = 20


@dataclass(frozen=True)
class MapTarget:
    """Where a mapping goes."""

    path: Path = Path(SETTINGS_FILE)
    write: bool = False
    """Whether to write it; otherwise it is only printed."""
    options: tuple[str, ...] = ()
    """The user's options that decide how the log is read and which file is written."""

    def command(self, log: Path) -> str:
        """The command that writes the mapping of a log."""
        words = ["grpodoctor", "check", plain(str(log)), *self.options, "--write-map"]
        return shlex.join(words)

    @property
    def table(self) -> str:
        """Name of the table that holds the mapping."""
        return "tool.grpodoctor.map" if self.path.name == "pyproject.toml" else "map"


def print_suggestions(path: Path, options: ReadOptions, target: MapTarget) -> None:
    """Print the suggestions for a log, and those without an objection as TOML or into a file.

    Args:
        path: the log, or a directory of logs.
        options: how to read the log.
        target: where the mapping goes.

    Raises:
        RunError: if there is no log.
        ConfigError: if the settings file cannot be read or written, or is invalid.
    """
    from grpodoctor.runs.reading.map_suggestions import suggest_map
    from grpodoctor.support.progress import progress_bar

    with progress_bar("reading", in_bytes=True) as progress:
        found = suggest_map(path, replace(options, progress=progress))
    for line in _lines(found):
        print(line)
    mapping = {each.key: each.metric for each in found.suggestions if not each.objection}
    if not mapping:
        print("No key has a usable suggestion, so there is nothing to write.")
    elif target.write:
        written = write_mapping(mapping, target)
        print(f"{written} written to [{target.table}] in {target.path}; grpodoctor check reads it.")
    else:
        print("Nothing was written.")
        command = target.command(path)
        print(f"To use them, add this to {target.path}, or run `{command}`, which writes it:")
        print("\n".join(["", f"[{target.table}]", *_toml_lines(mapping)]))


def _lines(suggestions: MapSuggestions) -> list[str]:
    accepted = [each for each in suggestions.suggestions if not each.objection]
    rejected = [each for each in suggestions.suggestions if each.objection]
    lines = [_known_line(suggestions)]
    if accepted:
        lines += ["", "Suggested:", *_table(accepted)]
    if rejected:
        lines += ["", "Not suggested, although the name fits:"]
        lines += [f"  {_clean(each.key)}: {each.objection}" for each in rejected[:_MOST_LISTED]]
        if len(rejected) > _MOST_LISTED:
            lines += [f"  and {len(rejected) - _MOST_LISTED} more"]
        lines += ["If you know what such a key holds, name it with --map KEY=METRIC."]
    if suggestions.unknown:
        names = [_clean(key) for key in list(suggestions.unknown)[:_MOST_LISTED]]
        more = f" and {len(suggestions.unknown) - _MOST_LISTED} more" * (
            len(suggestions.unknown) > _MOST_LISTED
        )
        lines += ["", f"Without a suggestion: {', '.join(names)}{more}"]
    return [*lines, ""]


def _known_line(suggestions: MapSuggestions) -> str:
    count = len(suggestions.known)
    text = f"{_keys(count)} already {'has' if count == 1 else 'have'} a metric"
    if suggestions.without_metric:
        text += f"; {len(suggestions.without_metric)} more are known and hold none"
    return f"{text}."


def _keys(count: int) -> str:
    return f"{count} {'key' if count == 1 else 'keys'}"


def _table(suggestions: Sequence[Suggestion]) -> list[str]:
    rows = [(_clean(each.key), each.metric, _described(each.statistics)) for each in suggestions]
    key_width = max(len(row[0]) for row in rows)
    metric_width = max(len(row[1]) for row in rows)
    return [f"  {key:<{key_width}}  {metric:<{metric_width}}  {text}" for key, metric, text in rows]


def _described(stats: KeyStatistics) -> str:
    return (
        f"{stats.count} values, {stats.first:.4g} → {stats.last:.4g}, "
        f"{stats.low:.4g} to {stats.high:.4g}, mean {stats.mean:.4g}"
    )


def _clean(key: str) -> str:
    from grpodoctor.support.safe_text import plain

    return plain(key, limit=60)


def write_mapping(mapping: Mapping[str, str], target: MapTarget) -> str:
    """Add a mapping to a settings file; what the file has stays. Return how many keys were added.

    Nothing is written unless `check` can read the result.

    Raises:
        ConfigError: if the file is invalid or cannot be read or written.
    """
    from grpodoctor.errors import ConfigError
    from grpodoctor.support.files.atomic_files import write_text

    path, table = target.path, target.table
    text = _text_of(path)
    try:
        existing = _mapping_in(text, table)
    except ValueError as error:
        raise ConfigError(f"invalid TOML: {error}", where=str(path)) from None
    added = {key: metric for key, metric in mapping.items() if key not in existing}
    result = _with_lines(text, f"[{table}]", _toml_lines(added)) if added else text
    if not _has_mapping(result, table, {**existing, **added}):
        raise ConfigError(
            f"the file does not define {table} as a separate table",
            where=str(path),
            remedy=f"write it below a line [{table}], or name another file with --config",
        )
    parse_settings(result.encode(), path)
    try:
        write_text(path, result)
    except OSError as error:
        raise ConfigError(
            f"cannot write: {error.strerror}", where=str(path), remedy="name another with --config"
        ) from None
    return _keys(len(added))


def _text_of(path: Path) -> str:
    """The text of a settings file; empty if there is none.

    Raises:
        ConfigError: if it cannot be read.
    """
    from grpodoctor.errors import ConfigError
    from grpodoctor.support.files.regular_files import read_regular

    try:
        return read_regular(path).decode() if path.exists() else ""
    except UnicodeDecodeError:
        raise ConfigError("invalid TOML: not UTF-8 text", where=str(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot read: {error.strerror}", where=str(path)) from None


def _toml_lines(mapping: Mapping[str, str]) -> list[str]:
    return [f"{json.dumps(key)} = {json.dumps(metric)}" for key, metric in mapping.items()]


def _mapping_in(text: str, table: str) -> dict[str, str]:
    from grpodoctor.support.toml_text import parse_toml

    content: Any = parse_toml(text.encode())
    for name in table.split("."):
        content = content.get(name, {})
        if not isinstance(content, dict):
            raise ValueError(f"{name} is not a table")  # noqa: TRY004 - callers expect ValueError
    return cast("dict[str, str]", content)


def _has_mapping(text: str, table: str, mapping: Mapping[str, str]) -> bool:
    try:
        return _mapping_in(text, table) == mapping
    except ValueError:  # the table exists in another form, so that the header declares it twice
        return False


def _with_lines(text: str, header: str, lines: Sequence[str]) -> str:
    """The text with lines below a header, which is added if it is missing."""
    before, found, after = text.partition(f"{header}\n")
    if found:
        return "".join([before, found, *(f"{line}\n" for line in lines), after])
    gap = "\n" if text.endswith("\n") else "\n\n" if text else ""
    return "".join([text, gap, header, "\n", *(f"{line}\n" for line in lines)])
