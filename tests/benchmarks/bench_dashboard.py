"""Server time and memory of the dashboard: a run of 10,000 steps, and 100,000 rollouts.

The pages are drawn as Streamlit draws them, without a browser. Each part runs in a process of its
own. `first chart` is the time from opening the run to the first page with charts, which show the
steps read so far; `whole run` is the time until the charts show all steps. `live update` appends
one step and draws the page again. The rollouts are those of our recorder with tokens and
log-probabilities, and a dump of verl with texts. The time in brackets is processor time, which
other programs do not change.

    python tests/benchmarks/bench_dashboard.py
    GRPODOCTOR_BENCH_ROLLOUTS=5000 python tests/benchmarks/bench_dashboard.py
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from secrets import token_urlsafe
from statistics import median
from typing import Any

import numpy as np
import orjson
from streamlit.testing.v1 import AppTest

sys.path.insert(0, str(Path(__file__).parents[2]))

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.monitor.dashboard.settings import DashboardSettings
from grpodoctor.runs.records import StepRecord
from grpodoctor.runs.rollouts import write_rollouts
from grpodoctor.vocabulary.values import Mean
from tests.report.simulated import manifest, readings

STEPS, METRICS = 10_000, 60
UPDATES = 9
ROLLOUTS = int(os.environ.get("GRPODOCTOR_BENCH_ROLLOUTS", "100000"))
PER_STEP, GROUP, TOKENS, LETTERS = 512, 8, 256, 1500
MEGABYTES = 500
_SCRIPT = """
from grpodoctor.support.programs import load_package

load_package("app", "dashboard").show_page({page!r}, [{settings!r}])
"""


# The runs


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


def texts_of(step: int) -> list[str]:
    """The responses of a step: letters that compress badly, and a word that they cannot form."""
    random = np.random.default_rng([1, step])
    letters = random.choice(np.frombuffer(b"etaoin shrdlu", np.uint8), (PER_STEP, LETTERS))
    endings = [" zebra" if row == step % PER_STEP else "" for row in range(PER_STEP)]
    return [bytes(row).decode() + end for row, end in zip(letters, endings, strict=True)]


def write_recorded(path: Path) -> None:
    """A run of our recorder at depth `full`."""
    steps = ROLLOUTS // PER_STEP
    write_run(path, steps)
    (path / "rollouts").mkdir()
    for step in range(steps):
        random = np.random.default_rng([2, step])
        learner = -random.exponential(0.3, (PER_STEP, TOKENS))
        batch = RolloutBatch(
            step=step,
            sequence_ids=[f"{step}-{row}" for row in range(PER_STEP)],
            group_ids_B=np.arange(PER_STEP) // GROUP,
            prompt_ids=[f"p{row // GROUP}" for row in range(PER_STEP)],
            prompts=[f"prompt {row // GROUP}" for row in range(PER_STEP)],
            texts=texts_of(step),
            references=["42"] * PER_STEP,
            tokens_BT=random.integers(0, 150_000, (PER_STEP, TOKENS)),
            mask_BT=np.ones((PER_STEP, TOKENS), bool),
            rewards_B=random.integers(0, 2, PER_STEP).astype(float),
            truncated_B=np.zeros(PER_STEP, bool),
            learner_logprobs_BT=learner,
            sampler_logprobs_BT=learner + 0.01 * random.standard_normal(learner.shape),
        )
        write_rollouts(path, batch, depth="full")


def write_verl(path: Path) -> None:
    """A folder with verl's rollout dumps."""
    path.mkdir()
    for step in range(1, ROLLOUTS // PER_STEP + 1):
        with (path / f"{step}.jsonl").open("wb") as file:
            for row, text in enumerate(texts_of(step)):
                line = {"input": f"prompt {row // GROUP}", "output": text, "gts": "42",
                        "score": float(row % 3 == 0), "step": step}  # fmt: skip
                file.write(orjson.dumps(line) + b"\n")


# The pages


def page_of(page: str, path: Path) -> AppTest:
    """A page about a run, not drawn yet."""
    settings = DashboardSettings(token=token_urlsafe(), paths=(path,))
    script = _SCRIPT.format(page=page, settings=settings.model_dump_json())
    return AppTest.from_string(script, default_timeout=600)


def drawn(page: AppTest) -> AppTest:
    """Draw the page.

    Raises:
        AssertionError: if the page shows an error.
    """
    page.run()
    assert not page.exception, page.exception
    assert not page.error, page.error
    return page


def until(page: AppTest, text: str) -> AppTest:
    """Draw the page until it says something, as a browser does."""
    while not any(text in str(element.value) for element in drawn(page).markdown):
        time.sleep(0.2)
    return page


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """The seconds that an action takes, on the clock and of the processor."""
    began, worked = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - began, time.process_time() - worked


def say(what: str, times: tuple[float, float], goal: str = "") -> None:
    """Print one figure, next to its goal."""
    print(f"{what:<26}{times[0]:7.2f} s ({times[1]:.2f} s)  {goal}".rstrip(), flush=True)


def say_memory() -> None:
    """Print the peak of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{'memory, peak':<26}{peak:7.0f} MiB         goal {MEGABYTES}", flush=True)


# The parts


def warm_up(folder: Path) -> None:
    """The imports and caches of a server that is running."""
    if not (folder / "small").exists():
        write_run(folder / "small", 50)
    until(page_of("overview", folder / "small"), "step 49")


def measure_overview(folder: Path) -> None:
    """The page Overview of a run of 10,000 steps."""
    warm_up(folder)
    path = folder / "big"
    write_run(path, STEPS)
    page = page_of("overview", path)

    def first() -> None:
        while not drawn(page).get("plotly_chart"):
            time.sleep(0.05)

    print(f"overview, {STEPS:,} steps with {METRICS} metrics")
    chart = timed(first)
    say("first chart", chart, "goal 2 s")
    rest = timed(lambda: until(page, f"step {STEPS - 1}"))
    say("whole run", (chart[0] + rest[0], chart[1] + rest[1]))
    times = []
    for step in range(STEPS, STEPS + UPDATES):
        with (path / "steps.jsonl").open("ab") as file:
            file.write(line_of(step))
        time.sleep(1.1)
        times.append(timed(lambda: drawn(page)))
    clock, processor = (median(each) for each in zip(*times, strict=True))
    say(f"live update, median of {UPDATES}", (clock, processor), "goal 0.30 s")
    say_memory()


def measure_rollouts(write: Callable[[Path], None], folder: Path) -> None:
    """The page Rollouts of a run with many responses."""
    warm_up(folder)
    page = page_of("rollouts", folder / write.__name__)
    total = ROLLOUTS // PER_STEP * PER_STEP

    def change(widget: Any, value: object) -> tuple[float, float]:
        widget.set_value(value)
        return timed(lambda: drawn(page))

    print(f"rollouts, {total:,} of {write.__name__.removeprefix('write_')}")
    say("first page", timed(lambda: until(page, f"of {total:,} responses")))
    say("search in all texts", change(page.text_input(key="rollouts-text"), "zebra"))
    found = [each.value for each in page.markdown if "responses" in str(each.value)]
    assert any(f"of {total // PER_STEP:,} responses" in each for each in found), found
    change(page.text_input(key="rollouts-text"), "")
    say("page 100", change(page.number_input(key="rollouts-page"), min(100, total // 50)))
    say("order by reward", change(page.selectbox(key="rollouts-order"), "reward"))
    say_memory()


def main() -> None:
    """Print the times and the memory, each part from a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = partial(ProcessPoolExecutor, 1, mp_context=get_context("spawn"))
        with alone() as pool:
            pool.submit(measure_overview, folder).result()
        for write in (write_recorded, write_verl):
            with alone() as pool:
                pool.submit(write, folder / write.__name__).result()
            print()
            with alone() as pool:
                pool.submit(measure_rollouts, write, folder).result()


if __name__ == "__main__":
    main()
