"""`grpodoctor metrics`: the canonical metrics and each framework's log keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpodoctor.cli.options import JsonOption, PageFormat, PageFormatOption, page_format
from grpodoctor.cli.pages import json_text

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

    from grpodoctor.frameworks.framework import Framework
    from grpodoctor.frameworks.key_meaning import KeyMeaning
    from grpodoctor.vocabulary.metric import Metric


_NAMES_SHOWN = 12
_TABLE_WIDTH = 150
"""Narrower terminals get a list instead of a table."""


def metrics(
    framework: Annotated[
        str | None,
        typer.Option("--framework", help="Framework whose log keys to list (trl, verl, ...)."),
    ] = None,
    output_format: PageFormatOption = PageFormat.text,
    as_json: JsonOption = False,
) -> None:
    """List the metrics, or what a framework's log keys mean."""
    output_format = page_format(output_format, as_json)
    if framework is None:
        _print_vocabulary(output_format)
    else:
        from grpodoctor.frameworks.registry import framework_named

        _print_framework(framework_named(framework, "--framework"), output_format)


def _print_vocabulary(output_format: PageFormat) -> None:
    from grpodoctor.vocabulary.metrics import METRICS

    columns = ("metric", "kind", "unit", "over", "policies", "meaning")
    _print(columns, [_vocabulary_row(metric) for metric in METRICS], output_format)


def _vocabulary_row(metric: Metric) -> tuple[str, ...]:
    return metric.name, metric.kind, metric.unit, metric.over, metric.policies, metric.summary


def _print_framework(framework: Framework, output_format: PageFormat) -> None:
    columns = ("key", "metric", "over", "policies", "when", "note")
    rows = [_meaning_row(meaning) for meaning in framework.meanings]
    if framework.first_synonym_counts and output_format is not PageFormat.json:
        rows = _grouped(rows)
    _print(columns, rows, output_format)


def _grouped(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """One row for all keys with one meaning; the keys that most people use come first."""
    keys: dict[tuple[str, ...], list[str]] = {}
    for key, *meaning in rows:
        keys.setdefault(tuple(meaning), []).append(key)
    return [(_some(names), *meaning) for meaning, names in keys.items()]


def _some(names: list[str]) -> str:
    rest = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown} and {rest} similar names" if rest > 0 else shown


def _meaning_row(meaning: KeyMeaning) -> tuple[str, ...]:
    keys = ", ".join((*meaning.keys, *([meaning.knob] if meaning.knob else [])))
    if meaning.formula != "as-is":
        keys = f"{meaning.formula} of {keys}"
    unit = f"{meaning.unit}, times {meaning.factor:g}" if meaning.factor != 1 else meaning.unit
    over = "; ".join(part for part in (meaning.over, meaning.mask, meaning.estimator) if part)
    keys += f" ({unit})" if unit else ""
    metric = meaning.metric or "none"
    return keys, metric, over, meaning.policies, _condition(meaning), _note(meaning)


def _condition(meaning: KeyMeaning) -> str:
    parts = [f"{name}={' or '.join(map(str, given))}" for name, given in meaning.when.items()]
    parts += [f"since {meaning.since}"] if meaning.since else []
    parts += [f"before {meaning.until}"] if meaning.until else []
    return ", ".join(parts)


def _note(meaning: KeyMeaning) -> str:
    parts = (meaning.caveat, meaning.structural_zero, meaning.how_to_log)
    return "; ".join(part for part in parts if part)


def _print(
    columns: tuple[str, ...], rows: list[tuple[str, ...]], output_format: PageFormat
) -> None:
    if output_format is PageFormat.json:
        objects: list[dict[str, Any]] = [dict(zip(columns, row, strict=True)) for row in rows]
        print(json_text(objects))
    elif output_format is PageFormat.markdown:
        print(_markdown(columns, rows))
    else:
        from rich.console import Console

        from grpodoctor.cli import terminal

        console = Console(width=terminal.columns(), highlight=False)
        if console.width >= _TABLE_WIDTH:
            console.print(_table(columns, rows))
        else:
            console.print(_list(columns, rows))


def _markdown(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    rule = tuple("---" for _ in columns)
    lines = (columns, rule, *rows)
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in lines
    )


def _list(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Group:
    """The rows as a list with one cell per line, for narrow terminals."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    blocks: list[RenderableType] = []
    for row in rows:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(width=max(map(len, columns[1:])), style="dim")
        grid.add_column(overflow="fold")
        for column, cell in zip(columns[1:], row[1:], strict=True):
            if cell:
                grid.add_row(column, Text(cell))
        blocks += [Text(row[0], style="bold"), Padding(grid, (0, 0, 0, 4))]
    return Group(*blocks)


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", ratio=2 if column in ("key", "metric") else None)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
