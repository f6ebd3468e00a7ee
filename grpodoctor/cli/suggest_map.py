"""`check --suggest-map`: propose metrics for unknown keys and write them to the settings file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from grpodoctor.runs.reading.map_suggestions import (
        KeyStatistics,
        MapSuggestions,
        Suggestion,
    )
    from grpodoctor.runs.reading.read_options import ReadOptions

_SETTINGS_FILE = "grpodoctor.toml"
_MOST_LISTED = 20


def print_suggestions(path: Path, options: ReadOptions, settings_file: Path | None) -> None:
    """Print the suggestions for a log, and write those without an objection to a file.

    Args:
        path: the log, or a directory of logs.
        options: how to read the log.
        settings_file: where the mapping goes; `grpodoctor.toml` in this folder if None.

    Raises:
        RunError: if there is no log.
        ConfigError: if the settings file cannot be read or written.
    """
    from grpodoctor.runs.reading.map_suggestions import suggest_map
    from grpodoctor.support.progress import progress_bar

    with progress_bar("reading", in_bytes=True):
        found = suggest_map(path, options)
    for line in _lines(found):
        print(line)
    accepted = [suggestion for suggestion in found.suggestions if not suggestion.objection]
    if not accepted:
        print("Nothing written: no key has a usable suggestion.")
        return
    target = settings_file or Path(_SETTINGS_FILE)
    written = _write(accepted, target)
    print(f"{written} written to [map] in {target}; grpodoctor check reads it.")


def _lines(found: MapSuggestions) -> list[str]:
    accepted = [each for each in found.suggestions if not each.objection]
    rejected = [each for each in found.suggestions if each.objection]
    lines = [f"{len(found.known)} keys already have a metric."]
    if accepted:
        lines += ["", "Suggested:", *_table(accepted)]
    if rejected:
        lines += ["", "Not suggested, although the name fits:"]
        lines += [f"  {_clean(each.key)}: {each.objection}" for each in rejected[:_MOST_LISTED]]
    if found.unknown:
        names = [_clean(key) for key in list(found.unknown)[:_MOST_LISTED]]
        more = f" and {len(found.unknown) - _MOST_LISTED} more" * (
            len(found.unknown) > _MOST_LISTED
        )
        lines += ["", f"Without a suggestion: {', '.join(names)}{more}"]
    return [*lines, ""]


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


def _write(suggestions: Sequence[Suggestion], path: Path) -> str:
    """Add a mapping to a settings file; what the file has stays. Return how many keys were added.

    Raises:
        ConfigError: if the file cannot be read or written.
    """
    from grpodoctor.errors import ConfigError
    from grpodoctor.support.files.atomic_files import write_text
    from grpodoctor.support.files.regular_files import read_regular

    table = "tool.grpodoctor.map" if path.name == "pyproject.toml" else "map"
    try:
        text = read_regular(path).decode() if path.exists() else ""
        existing = _mapping_in(text, table)
        added = {each.key: each.metric for each in suggestions if each.key not in existing}
        lines = [f"{json.dumps(key)} = {json.dumps(metric)}" for key, metric in added.items()]
        result = _with_lines(text, f"[{table}]", lines)
    except ValueError as error:  # also text that is not UTF-8
        raise ConfigError(f"invalid TOML: {error}", where=str(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot read: {error.strerror}", where=str(path)) from None
    if not _has_mapping(result, table, {**existing, **added}):
        raise ConfigError(
            f"the file defines {table} in another form than a table of its own",
            where=str(path),
            remedy=f"write it below a line [{table}], or name another file with --config",
        )
    try:
        write_text(path, result)
    except OSError as error:
        raise ConfigError(
            f"cannot write: {error.strerror}", where=str(path), remedy="name another with --config"
        ) from None
    return f"{len(lines)} {'key' if len(lines) == 1 else 'keys'}"


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
