"""The list of runs that `watch` offers."""

import asyncio
import os
import re
import time
from dataclasses import replace

from grpodoctor.cli.watch_screen.panes import Pane
from grpodoctor.cli.watch_screen.run_choice import RunChoice
from grpodoctor.runs.reading.nearby_runs import nearby_runs
from tests.report.simulated import record_run

PATIENCE = 90.0


def test_the_worst_run_comes_first_as_soon_as_it_was_examined(tmp_path):
    sick = record_run(tmp_path / "sick", 60, sick_from=20)
    for name in ("run.json", "steps.jsonl", "events.jsonl"):
        os.utime(sick / name, (1, 1))  # long ago
    record_run(tmp_path / "healthy", 60)
    runs = nearby_runs(tmp_path)
    assert [run.path.name for run in runs] == ["healthy", "sick"]
    app = RunChoice([replace(run, written_at=1.0) for run in runs], tmp_path)

    async def choose():
        async with app.run_test(size=(100, 12)) as pilot:
            pane, ends = app.query_one("#runs", Pane), time.monotonic() + PATIENCE
            while "worst first" not in str(pane.border_title):
                assert time.monotonic() < ends, pane.border_title
                await pilot.pause(0.05)
            shown = [str(pane.get_option_at_index(place).prompt) for place in range(2)]
            assert [line.split()[1:3] for line in shown] == [["sick", "sick"], ["healthy"] * 2]
            assert re.search(r"[A-Z]{3}\d{3} [a-z-]+", shown[0])
            assert re.search(r"written \d+ (s|min) ago", shown[1])  # since the list was made
            await pilot.press("enter")

    asyncio.run(choose())
    assert app.return_value == sick
    assert app._table._worker.pid is None  # the process that examined has ended
