"""Following other frameworks' logs while they are written."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grpodoctor.errors import ConfigError
from grpodoctor.monitor.session import Session
from grpodoctor.runs.log_formats.jsonl import JsonLines
from grpodoctor.runs.reading.framework_follower import FrameworkFollower

INTERVAL = 0.5
"""As `watch` has it."""

LONGEST = 3.0
"""Seconds from a line to the screen on a busy machine; printed, and under one otherwise."""

Write = Callable[[int], None]


def values(step: int) -> dict[str, float]:
    return {
        "loss": 0.01, "grad_norm": 0.2, "reward": step / 64, "reward_std": 0.25, "kl": 0.001,
        "completion_length": 100.0 + step, "learning_rate": 1e-6,
    }  # fmt: skip


def jsonl(home: Path) -> Write:
    def write(step: int) -> None:
        with (home / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, **values(step)}) + "\n")

    return write


def csv(home: Path) -> Write:
    path = home / "metrics.csv"
    path.write_text(",".join(["step", *values(0)]) + "\n")

    def write(step: int) -> None:
        with path.open("a") as file:
            file.write(",".join(str(each) for each in [step, *values(step).values()]) + "\n")

    return write


def console(home: Path) -> Write:
    def write(step: int) -> None:
        with (home / "train.log").open("a") as file:
            file.write(
                f"(TaskRunner pid=7) step:{step} - actor/entropy:0.31 - actor/pg_loss:0.01 - "
                f"actor/ppo_kl:0.001 - actor/pg_clipfrac:0.01 - critic/score/mean:{step / 64}\n"
            )

    return write


def trainer_state(home: Path) -> Write:
    def write(step: int) -> None:
        history = [{"step": each, **values(each)} for each in range(1, step + 1)]
        path = home / f"checkpoint-{step}" / "trainer_state.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"global_step": step, "log_history": history}))
        shutil.rmtree(home / f"checkpoint-{step - 2}", ignore_errors=True)

    return write


def tensorboard(home: Path) -> Write:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(home / "runs"))

    def write(step: int) -> None:
        for key, value in values(step).items():
            writer.add_scalar(f"train/{key}", value, step)
        writer.flush()

    write.close = writer.close  # type: ignore[attr-defined]
    return write


def trackio(home: Path) -> Write:
    path = home / "project.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(
            "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT NOT NULL, "
            "run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL)"
        )
    database.close()

    def write(step: int) -> None:
        with sqlite3.connect(path) as database:
            database.execute(
                "INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES ('', 'r', ?, ?)",
                (step, json.dumps(values(step))),
            )
        database.close()

    return write


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "run"
    home.mkdir()
    return home


@pytest.fixture(params=[jsonl, csv, console, trainer_state, tensorboard, trackio])
def write(request: pytest.FixtureRequest, home: Path) -> Iterator[Write]:
    write = request.param(home)
    yield write
    getattr(write, "close", lambda: None)()


def follow(session: Session, done: Callable[[Session], bool], seconds: float = 10.0) -> float:
    """Look as `watch` does until something is so; when it was."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        tick = session.tick()
        if done(session):
            return time.monotonic()
        if not tick.more:
            time.sleep(0.1 if tick.held else INTERVAL)
    raise AssertionError("it was not seen in time")


def has_step(step: int) -> Callable[[Session], bool]:
    return lambda session: session.examination.report().run.last_step == step


def settle(session: Session, ticks: int = 5) -> None:
    for _ in range(ticks):
        while session.tick().more:
            pass
        time.sleep(0.09)


def test_a_step_is_shown_soon_after_it_was_written(home: Path, write: Write) -> None:
    session = Session(home)
    session.tick()
    for step in (1, 2, 3):
        write(step)
    follow(session, has_step(3))
    moment = list[float]()

    def later() -> None:
        time.sleep(0.6)
        write(4)
        moment.append(time.monotonic())

    thread = threading.Thread(target=later)
    thread.start()
    seen = follow(session, has_step(4))
    thread.join()
    print(f"seconds from writing to the step: {seen - moment[0]:.2f}")
    assert seen - moment[0] < LONGEST


def test_a_finding_is_raised_soon_after_the_line_that_shows_it(home: Path) -> None:
    """Groups lose their variance at step 31; the finding comes with the line that makes it last."""
    path = home / "metrics.jsonl"

    def write(step: int) -> float:
        stuck = 1.0 if step > 30 else 0.1
        row = {"step": step, **values(step), "frac_reward_zero_std": stuck}
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return time.monotonic()

    for step in range(1, 31):
        write(step)
    session = Session(home, select=["GRP"])
    follow(session, has_step(30))
    step, codes = 30, set[str]()
    while not codes and step < 60:
        step += 1
        wrote = write(step)
        seen = follow(session, has_step(step))
        codes = {each.code for each in session.examination.report().findings}
    print(f"seconds from the line to {codes}: {seen - wrote:.2f}")
    assert codes
    assert seen - wrote < LONGEST


def test_a_log_that_is_renamed_goes_on_in_the_next_one(home: Path) -> None:
    path, write = home / "metrics.jsonl", jsonl(home)
    for step in range(1, 6):
        write(step)
    session = Session(path)
    settle(session)
    path.rename(home / "metrics.jsonl.1")
    settle(session, 1)
    for step in range(6, 9):
        write(step)
    settle(session)
    assert session.examination.steps == 8
    assert any("continues at step 6" in note for note in session.examination.notes)


def test_a_log_that_is_copied_and_cut_goes_on(home: Path) -> None:
    path, write = home / "metrics.jsonl", jsonl(home)
    for step in range(1, 6):
        write(step)
    session = Session(path)
    settle(session)
    path.write_text("")
    write(6)
    settle(session)
    assert session.examination.steps == 6


@pytest.mark.parametrize("how", ["truncate", "remove"])
def test_a_job_that_begins_anew_is_another_run(home: Path, how: str) -> None:
    path, write = home / "metrics.jsonl", jsonl(home)
    for step in range(1, 30):
        write(step)
    session = Session(path)
    settle(session)
    assert session.examination.steps == 29
    if how == "remove":
        path.unlink()
    else:
        path.write_text("")
    write(1)
    write(2)
    settle(session)
    assert session.examination.steps == 2


def test_a_job_that_is_resumed_into_the_same_log_goes_back(home: Path) -> None:
    path, write = home / "metrics.jsonl", jsonl(home)
    for step in range(1, 10):
        write(step)
    with path.open("a") as file:
        for step in range(6, 13):
            resumed = {name: 1.5 * value for name, value in values(step).items()}
            file.write(json.dumps({"step": step, **resumed}) + "\n")
    session = Session(path)
    settle(session)
    report = session.examination.report()
    assert report.run.last_step == 12
    assert any("back" in note for note in session.examination.notes)


def test_a_log_may_appear_later_and_empty_at_first(home: Path) -> None:
    session = Session(home / "later" / "train.jsonl")
    session.tick()
    assert session.waiting
    (home / "later").mkdir()
    (home / "later" / "train.jsonl").write_text("")
    settle(session, 2)
    assert session.waiting
    with (home / "later" / "train.jsonl").open("a") as file:
        for step in (1, 2):
            file.write(json.dumps({"step": step, **values(step)}) + "\n")
    settle(session)
    assert session.examination.steps == 2
    assert any("detected framework TRL" in note for note in session.examination.notes)


def test_a_directory_may_gain_a_second_log(home: Path) -> None:
    write, also = jsonl(home), console(home)
    for step in range(1, 4):
        write(step)
    session = Session(home)
    settle(session)
    for step in range(4, 7):
        with (home / "second.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "entropy": 0.5 + step}) + "\n")
        write(step)
    also(6)
    settle(session, 8)
    assert session.examination.steps == 6
    chart = session.examination.engine.chart
    assert chart.value("entropy/mean") == 6.5


def test_a_directory_that_is_another_jobs_is_another_run(home: Path) -> None:
    write = jsonl(home)
    for step in range(1, 9):
        write(step)
    session = Session(home)
    settle(session)
    shutil.rmtree(home)
    settle(session, 1)
    home.mkdir()
    with (home / "other.jsonl").open("a") as file:
        for step in (1, 2):
            file.write(json.dumps({"step": step, **values(step)}) + "\n")
    settle(session, 8)
    assert session.examination.steps == 2


def test_what_was_read_is_not_read_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[int]()
    original = JsonLines.read

    def counted(self: JsonLines) -> object:
        chunk = original(self)
        read.append(chunk.size)
        return chunk

    monkeypatch.setattr(JsonLines, "read", counted)
    write = jsonl(home)
    follower = FrameworkFollower(home)
    for step in range(1, 200):
        write(step)
        follower.poll()
    assert sum(read) == (home / "metrics.jsonl").stat().st_size


def test_no_request_reaches_a_run_that_only_leaves_a_log(home: Path) -> None:
    jsonl(home)(1)
    with pytest.raises(ConfigError, match=r"accepts no requests .* remove --apply"):
        Session(home, apply="safe")


def test_nor_one_that_turns_out_to_leave_only_a_log(home: Path) -> None:
    session = Session(home, apply="safe")
    session.tick()
    jsonl(home)(1)
    with pytest.raises(ConfigError, match="remove --apply"):
        settle(session)
