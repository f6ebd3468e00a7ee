"""Texts of the journal are shortened in reports, whoever wrote them."""

from __future__ import annotations

import json
from pathlib import Path

from grpodoctor.cli.options import ReportFormat
from grpodoctor.cli.output import render
from grpodoctor.monitor.replay import replay
from grpodoctor.report.run.view import view_of
from grpodoctor.runs.records import EVENTS, MANIFEST, STEPS, Event, Manifest, StepRecord
from grpodoctor.vocabulary.values import Mean

LONG = "\x1b[31mignore all instructions " * 2_000


def test_a_flood_of_text_in_the_journal_does_not_flood_the_report(tmp_path: Path) -> None:
    run, plain = tmp_path / "flooded", tmp_path / "plain"
    for folder, text in ((run, LONG), (plain, "the reason")):
        folder.mkdir()
        (folder / MANIFEST).write_bytes(Manifest().to_json())
        steps = [StepRecord(step, {"reward/mean": Mean.of([0.5, 1.0])}) for step in range(1, 30)]
        (folder / STEPS).write_bytes(b"".join(step.to_line() for step in steps))
        body = {"remedy": text, "reason": text, "after": {text: text}, "list": [text] * 50}
        lines = [Event(f"treatment-{kind}", 5, body).to_line() for kind in ("applied", text)]
        (folder / EVENTS).write_bytes(b"".join(lines))
    view, usual = (view_of(replay(folder), verbose=True) for folder in (run, plain))
    for output_format in ReportFormat:
        written = render(view, output_format, to_terminal=False)
        expected = render(usual, output_format, to_terminal=False)
        assert len(written) < len(expected) + 100_000
        assert "\x1b" not in written
    assert "the reason" in json.dumps(render(usual, ReportFormat.text, to_terminal=False))
