"""Logs of strangers, damaged and then examined, diagnosed and rendered like `check` does."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from grpodoctor.cli.options import ReportFormat
from grpodoctor.cli.output import render
from grpodoctor.monitor.replay import replay
from grpodoctor.report.ci import github, junit, sarif
from grpodoctor.report.run.view import view_of
from tests.fuzz.mutations import binaries, texts
from tests.fuzz.targets.base import Mutation, Target

_LOGS = Path(__file__).parents[2] / "data" / "logs"
_FILES: dict[str, tuple[str, Mutation]] = {
    "akshay_console.log.gz": ("train.log", texts.words),
    "zhiyuanhubj_console.log.gz": ("train.log", texts.words),
    "arvindcr4_metrics.jsonl.gz": ("metrics.jsonl", texts.json_lines),
    "beibeizzz_trl.jsonl.gz": ("metrics.jsonl", texts.json_lines),
    "sushantmehta_metrics.jsonl.gz": ("metrics.jsonl", texts.json_lines),
    "dawn_history.json.gz": ("history.json", texts.json_document),
    "deltasthicc_trainer_state.json.gz": ("trainer_state.json", texts.json_document),
    "happynessi_grpo.csv.gz": ("history.csv", texts.csv_cells),
    "maojiasong_events.out.tfevents.1740427850.gz": (
        "events.out.tfevents.1740427850.h.1.0",
        binaries.event_frames,
    ),
}
_MOST_LINES = 60
"""Lines of a log that are used: damage to one of thousands changes little."""


def targets() -> list[Target]:
    """One target per log."""
    return [
        Target(f"check: {name.partition('.')[0]}", file, _first_lines(name), _check, mutation,
               weight=0.1)
        for name, (file, mutation) in _FILES.items()
    ]  # fmt: skip


def _first_lines(name: str) -> Callable[[], bytes]:
    @cache
    def content() -> bytes:
        whole = gzip.decompress((_LOGS / name).read_bytes())
        if name.endswith(".json.gz"):
            return _shortened(whole)
        if "tfevents" in name:
            return whole[:20_000]
        lines = whole.splitlines(keepends=True)
        rows = [line for line in lines if b"reward" in line] if "console" in name else lines
        return b"".join(rows[:_MOST_LINES])

    return content


def _shortened(document: bytes) -> bytes:
    tree = json.loads(document)
    if isinstance(tree, dict) and "log_history" in tree:
        tree["log_history"] = tree["log_history"][:_MOST_LINES]
    elif isinstance(tree, list):
        tree = tree[:_MOST_LINES]
    return json.dumps(tree).encode()


def _check(path: Path) -> None:
    data = replay(path)
    view = view_of(data, verbose=True)
    for output_format in ReportFormat:
        if not render(view, output_format, to_terminal=False):
            raise AssertionError(f"an empty report in the format {output_format}")
    github.render([data.report])
    junit.render([data.report])
    json.dumps(sarif.to_json([data.report]))
