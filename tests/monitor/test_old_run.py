"""A run that an old version recorded, with its former spelling of config keys."""

from __future__ import annotations

import json
from pathlib import Path

from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.native_run import read_run

OLD_RUN = Path(__file__).parents[1] / "data" / "run"


def test_an_old_run_loads_and_gives_the_recorded_findings() -> None:
    assert "optimiser" in json.loads((OLD_RUN / "run.json").read_bytes())["config"]
    run = read_run(OLD_RUN)
    assert run.manifest.schema_version == 1
    assert [event.kind for event in run.events] == ["started", "finished"]
    assert [record.step for record in run.steps] == list(range(1, 13))
    assert not run.damage
    report = replay(OLD_RUN).report
    # As of the version that recorded it; newer rules see more.
    found = {(each.code, str(each.severity), each.onset_step) for each in report.findings}
    assert found >= {
        ("MIS002", "critical", 1),
        ("CFG030", "warning", 1),
        ("MIS001", "warning", 1),
        ("CLP001", "warning", 1),
        ("MIS003", "warning", 7),
        ("KLD001", "warning", 9),
        ("CFG032", "info", 1),
    }
    assert [problem.cause.code for problem in report.diagnosis.problems] == ["MIS002", "MIS001"]
