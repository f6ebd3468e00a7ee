"""Server time and memory of the dashboard on a run of 10,000 steps with 60 metrics.

The page Overview is drawn as Streamlit draws it, without a browser. `first chart` is the time from
opening the run to the first page with charts, which show the steps read so far; `whole run` is the
time until the charts show all steps. `live update` appends one step and draws the page again. The
time in brackets is processor time, which other programs do not change.

    python tests/benchmarks/bench_dashboard.py
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path
from secrets import token_urlsafe
from statistics import median

from streamlit.testing.v1 import AppTest

sys.path.insert(0, str(Path(__file__).parents[2]))

from grpodoctor.monitor.dashboard.settings import DashboardSettings
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import Mean
from tests.report.simulated import manifest, readings

STEPS, METRICS = 10_000, 60
UPDATES = 9
_SCRIPT = """
from grpodoctor.support.programs import load_package

load_package("app", "dashboard").show_page("overview", [{settings!r}])
"""


def write_run(path: Path, steps: int) -> None:
    """A run with a fault in its last fifth."""
    path.mkdir(parents=True)
    (path / "run.json").write_bytes(manifest().to_json())
    with (path / "steps.jsonl").open("wb") as file:
        for step in range(steps):
            file.write(line_of(step))


def line_of(step: int) -> bytes:
    """One step with all metrics; the time makes the run a live one."""
    values = dict(readings(step, sick_from=4 * STEPS // 5))
    for number in range(METRICS - len(values)):
        values[f"reward/component/part{number}/mean"] = Mean.of([0.01 * number])
    return StepRecord(step, values, time=time.time()).to_line()


def page_of(path: Path) -> AppTest:
    """The page Overview of a run, not drawn yet."""
    settings = DashboardSettings(token=token_urlsafe(), paths=(path,))
    return AppTest.from_string(
        _SCRIPT.format(settings=settings.model_dump_json()), default_timeout=120
    )


def drawn(page: AppTest) -> float:
    """Draw the page; returns the seconds that it took."""
    began = time.perf_counter()
    page.run()
    assert not page.exception, page.exception
    return time.perf_counter() - began


def until(page: AppTest, text: str) -> float:
    """Draw the page until it says something, as a browser does; returns the seconds."""
    began = time.perf_counter()
    while not any(text in str(element.value) for element in page.markdown):
        time.sleep(0.5)
        page.run()
    return time.perf_counter() - began


def main() -> None:
    """Print the times and the memory."""
    with tempfile.TemporaryDirectory() as folder:
        small, big = Path(folder, "small"), Path(folder, "big")
        write_run(small, 50)
        until(page_of(small).run(), "step 49")  # imports and caches of a server that is running
        write_run(big, STEPS)
        page = page_of(big)
        began, worked = time.perf_counter(), time.process_time()
        while not page.get("plotly_chart"):
            drawn(page)
        first = time.perf_counter() - began
        print(f"first chart    {first:.2f} s ({time.process_time() - worked:.2f} s)")
        print(f"whole run      {first + until(page, f'step {STEPS - 1}'):.1f} s")
        times = []
        for step in range(STEPS, STEPS + UPDATES):
            with (big / "steps.jsonl").open("ab") as file:
                file.write(line_of(step))
            time.sleep(1.1)
            worked = time.process_time()
            times.append((drawn(page), time.process_time() - worked))
        clock, processor = (median(each) for each in zip(*times, strict=True))
        print(f"live update    {1000 * clock:.0f} ms ({1000 * processor:.0f} ms), median")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory         {peak:.0f} MiB (peak of the process)")


if __name__ == "__main__":
    main()
