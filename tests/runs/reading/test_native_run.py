"""Reading runs: live and offline alike, whole and damaged, and what is no run at all."""

import shutil
import subprocess
import sys
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.errors import RunError
from grpodoctor.runs.reading.native_run import POLL_RECORDS, NativeFollower, read_run
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.poll import MAX_DAMAGE, Poll
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.runs.records import EVENTS, MANIFEST, STEPS, Event, Manifest, StepRecord
from grpodoctor.support.files.growing_files import LONGEST_LINE, Damage
from grpodoctor.vocabulary.values import Mean
from tests.runs.progress_log import ProgressLog


def record(step: int) -> StepRecord:
    return StepRecord(step, {"reward/mean": Mean.of([step, 1.0])}, {"clip_low": 0.2}, 1.5)


def write_steps(directory: Path, *steps: int) -> None:
    directory.mkdir(exist_ok=True)
    (directory / STEPS).write_bytes(b"".join(record(step).to_line() for step in steps))


def poll_all(follower: NativeFollower) -> Poll:
    """All that one can get without waiting."""
    total = follower.poll()
    last = total
    while last.more:
        last = follower.poll()
        total.steps += last.steps
        total.events += last.events
        total.damage += last.damage
    return total


def steps_of(poll: Poll) -> list[int]:
    return [each.step for each in poll.steps]


# Live and offline


def test_following_a_live_writer_equals_reading_it_afterwards(
    tmp_path: Path, writer_program: Path
) -> None:
    directory = tmp_path / "run"
    follower = NativeFollower(directory)
    assert follower.poll() == Poll()
    followed, events, polls_with_news = [], [], 0
    with subprocess.Popen(
        [sys.executable, str(writer_program), "steps", str(directory), "200", "0.003"]
    ) as writer:
        deadline = time.monotonic() + 60
        while writer.poll() is None:
            assert time.monotonic() < deadline
            news = follower.poll()
            assert not news.damage
            assert not news.restarted
            followed += news.steps
            events += news.events
            polls_with_news += bool(news.steps)
            time.sleep(0.002)
    last = follower.poll()
    run = read_run(directory)
    assert polls_with_news > 10
    assert [*followed, *last.steps] == list(run.steps)
    assert [*events, *last.events] == run.events
    assert len(list(run.steps)) == 200


LINES = st.one_of(
    st.integers(0, 99).map(lambda step: record(step).to_line()[:-1]),
    st.tuples(st.integers(0, 99), st.integers(1, 60)).map(
        lambda cut: record(cut[0]).to_line()[: cut[1]]
    ),
    st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")),
    st.sampled_from(
        [
            b"[]",
            b'{"step":1}',
            b'{"step":-1,"values":{}}',
            b'{"step":true,"values":{}}',
            b'{"step":1,"values":{"a":{"mean":[null,1]}}}',
            b'{"step":1,"values":{"a":{"mean":["1e999999999",1]}}}',
            b'{"step":1,"values":{"a":{"quantiles":{"positive":{"x":1}}}}}',
            b'{"step":1,"values":{"a":{"max":{"value":1}}}}',
            b'{"step":1,"values":{},"knobs":{"a":[]}}',
            b'{"step":1,"values":{},"knobs":[]}',
            b'{"step":123456789012345678901234567890,"values":{}}',
            b'{"step":NaN,"values":{}}',
            b"[" * 5000,
        ]
    ),
)


def is_good(line: bytes) -> bool:
    """Every good line of `LINES` is a whole one: the test's own judgement, not the reader's."""
    return line.endswith(b'"knobs":{"clip_low":0.2}}')


@given(st.lists(LINES, max_size=25), st.lists(st.integers(0, 3000), max_size=8))
def test_damage_never_loses_a_good_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int]
) -> None:
    """Whatever stands between the good lines, and wherever the writer was when we looked."""
    directory = tmp_path_factory.mktemp("run", numbered=True)
    content = b"".join(line + b"\n" for line in lines)
    good = [StepRecord.from_line(line) for line in lines if is_good(line)]
    damaged = [
        number
        for number, line in enumerate(lines, 1)
        if line.strip(b" \t\r\0") and not is_good(line)
    ]
    follower, seen = NativeFollower(directory), Poll()
    edges = sorted({0, len(content), *(min(cut, len(content)) for cut in cuts)})
    for start, end in pairwise(edges):
        with (directory / STEPS).open("ab") as file:
            file.write(content[start:end])
        news = follower.poll()
        assert not news.restarted
        seen.steps += news.steps
        seen.damage += news.damage
    assert seen.steps == good
    assert [each.line for each in seen.damage] == damaged
    (directory / STEPS).touch()
    run = read_run(directory)
    assert list(run.steps) == good
    assert run.damage == seen.damage
    assert list(run.steps) == good
    assert run.damaged_lines == len(damaged)


def test_a_half_written_line_is_kept_for_later(tmp_path: Path) -> None:
    write_steps(tmp_path, 0)
    follower = NativeFollower(tmp_path)
    assert steps_of(follower.poll()) == [0]
    line = record(1).to_line()
    for part, expected in ((line[:20], []), (line[20:-1], [1]), (b"\n", [])):
        with (tmp_path / STEPS).open("ab") as file:
            file.write(part)
        news = follower.poll()
        assert steps_of(news) == expected
        assert not news.damage


def test_a_gigantic_line_is_skipped_in_bounded_memory(tmp_path: Path) -> None:
    with (tmp_path / STEPS).open("wb") as file:
        file.write(record(0).to_line())
        for _ in range(8):
            file.write(b"x" * (LONGEST_LINE // 2))
        file.write(b"\n" + record(1).to_line())
    follower = NativeFollower(tmp_path)
    tracemalloc.start()
    try:
        news = poll_all(follower)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert steps_of(news) == [0, 1]
    assert [(each.line, each.why) for each in news.damage] == [
        (2, f"a line of more than {LONGEST_LINE} bytes")
    ]
    assert peak < 4 * LONGEST_LINE
    with (tmp_path / STEPS).open("ab") as file:
        file.write(b"{}\n" + record(2).to_line())
    news = follower.poll()
    assert steps_of(news) == [2]
    assert news.damage == [Damage(STEPS, 4, "no step number")]


def test_a_poll_does_bounded_work(tmp_path: Path) -> None:
    count = 3 * POLL_RECORDS
    write_steps(tmp_path, *range(count))
    follower = NativeFollower(tmp_path)
    first = follower.poll()
    assert first.more
    assert POLL_RECORDS <= len(first.steps) < 2 * POLL_RECORDS
    rest = poll_all(follower)
    assert steps_of(first) + steps_of(rest) == list(range(count))


def test_all_damage_is_counted_and_some_is_kept(tmp_path: Path) -> None:
    (tmp_path / STEPS).write_bytes(b"nonsense\n" * 5000 + record(7).to_line())
    run = read_run(tmp_path)
    assert [each.step for each in run.steps] == [7]
    assert run.damaged_lines == 5000
    assert len(run.damage) == MAX_DAMAGE


@pytest.mark.slow
def test_reading_steps_takes_no_more_memory_for_more_steps(tmp_path: Path) -> None:
    write_steps(tmp_path, *range(60_000))
    assert (tmp_path / STEPS).stat().st_size > 4_000_000
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_run(tmp_path).steps)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 60_000
    assert peak < 12_000_000


def test_a_rewound_run_keeps_the_order_of_the_file(tmp_path: Path) -> None:
    write_steps(tmp_path, 0, 1, 2, 3, 2, 3, 4)
    assert [each.step for each in read_run(tmp_path).steps] == [0, 1, 2, 3, 2, 3, 4]
    assert steps_of(NativeFollower(tmp_path).poll()) == [0, 1, 2, 3, 2, 3, 4]


# Restarts


def record_run(directory: Path, *steps: int, resume: bool = False) -> None:
    with Recorder.open(directory, Manifest(), depth="off", resume=resume) as run:
        for step in steps:
            run.step(step, {"reward/mean": Mean.of([1.0])})


def test_another_run_in_the_same_place_is_a_restart(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    record_run(directory, 0, 1, 2)
    follower = NativeFollower(directory)
    first = follower.poll()
    assert first.manifest is not None
    shutil.rmtree(directory)
    record_run(directory, 0, 1, 2, 3, 4)
    second = follower.poll()
    assert second.restarted
    assert second.manifest is not None
    assert second.manifest.run_id != first.manifest.run_id
    assert steps_of(second) == [0, 1, 2, 3, 4]
    assert [event.kind for event in second.events] == ["started", "finished"]
    assert follower.poll() == Poll()


def test_a_run_deleted_and_recreated_is_a_restart(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    record_run(directory, 0, 1)
    follower = NativeFollower(directory)
    follower.poll()
    shutil.rmtree(directory)
    gone = follower.poll()
    assert gone.restarted
    assert not gone.steps
    record_run(directory, 0)
    back = follower.poll()
    assert back.manifest is not None
    assert steps_of(back) == [0]


def test_a_truncated_file_is_a_restart(tmp_path: Path) -> None:
    write_steps(tmp_path, 0, 1, 2)
    follower = NativeFollower(tmp_path)
    follower.poll()
    with (tmp_path / STEPS).open("r+b") as file:
        file.truncate(len(record(0).to_line()))
    news = follower.poll()
    assert news.restarted
    assert steps_of(news) == [0]


def test_a_new_run_id_over_the_same_files_is_a_restart(tmp_path: Path) -> None:
    write_steps(tmp_path, 0)
    (tmp_path / MANIFEST).write_bytes(Manifest(run_id="a").to_json())
    follower = NativeFollower(tmp_path)
    assert not follower.poll().restarted
    (tmp_path / MANIFEST).write_bytes(Manifest(run_id="bb").to_json())
    news = follower.poll()
    assert news.restarted
    assert steps_of(news) == [0]


def test_a_resumed_run_is_not_a_restart(tmp_path: Path) -> None:
    record_run(tmp_path, 0, 1, 2)
    follower = NativeFollower(tmp_path)
    follower.poll()
    record_run(tmp_path, 1, 2, resume=True)
    news = follower.poll()
    assert not news.restarted
    assert news.manifest is not None
    assert steps_of(news) == [1, 2]
    assert [event.kind for event in news.events] == ["resumed", "finished"]


# What cannot be used


@pytest.mark.parametrize("path", ["missing", "missing/steps.jsonl"])
def test_a_missing_path_is_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(RunError, match="no such file or directory") as error:
        read_run(tmp_path / path)
    assert str(tmp_path / path) in str(error.value)


def test_an_empty_directory_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"the directory is empty .*; pass the directory of a run"):
        read_run(tmp_path)


def test_an_unrelated_directory_is_not_a_run(tmp_path: Path) -> None:
    for name in ("d", "c", "b", "a"):
        (tmp_path / name).touch()
    with pytest.raises(RunError, match=r"no run\.json and no steps\.jsonl; it has: a, b, c, …"):
        read_run(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n" * 99, b"hello\n", b'{"loss": 1}\n'])
def test_an_unrelated_file_is_not_a_run(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(RunError, match="the file is not a run"):
        read_run(tmp_path / "file")


def test_a_steps_file_is_a_run_in_any_directory(tmp_path: Path) -> None:
    write_steps(tmp_path, 3, 4)
    (tmp_path / MANIFEST).write_bytes(Manifest(model="m").to_json())
    beside = read_run(tmp_path / STEPS)
    assert beside.manifest.model == "m"
    (tmp_path / STEPS).rename(tmp_path / "copy.jsonl")
    (tmp_path / MANIFEST).unlink()
    assert [each.step for each in read_run(tmp_path / "copy.jsonl").steps] == [3, 4]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"seed": "x"}', b"\xff", b'{"knobs": 3}'])
def test_steps_are_read_despite_a_damaged_manifest(tmp_path: Path, text: bytes) -> None:
    write_steps(tmp_path, 0, 1)
    (tmp_path / MANIFEST).write_bytes(text)
    run = read_run(tmp_path)
    assert [each.step for each in run.steps] == [0, 1]
    assert run.manifest == Manifest()
    assert [(each.file, each.line) for each in run.damage] == [(MANIFEST, 0)]
    assert "\n" not in run.damage[0].why
    assert len(run.damage[0].why) < 80
    follower = NativeFollower(tmp_path)
    assert follower.poll().damage == run.damage
    assert follower.poll().damage == []


def test_a_run_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    write_steps(tmp_path, 0)
    (tmp_path / MANIFEST).write_bytes(Manifest(schema_version=99).to_json())
    with pytest.raises(RunError, match="a newer grpodoctor wrote the run: its format is 99"):
        read_run(tmp_path)
    with pytest.raises(RunError, match="upgrade grpodoctor"):
        NativeFollower(tmp_path).poll()


def test_steps_that_cannot_be_read_are_an_error_not_an_empty_run(tmp_path: Path) -> None:
    (tmp_path / STEPS).mkdir()
    with pytest.raises(RunError, match="cannot read the run"):
        NativeFollower(tmp_path).poll()


def test_a_path_that_the_system_refuses_is_an_error_in_one_line(tmp_path: Path) -> None:
    for use in (read_run, lambda path: NativeFollower(path).poll()):
        with pytest.raises(RunError, match="cannot read the run: File name too long"):
            use(tmp_path / ("x" * 5000))


def test_good_events_are_read_despite_damaged_ones(tmp_path: Path) -> None:
    write_steps(tmp_path, 0)
    good = Event("warning", 3, {"a": 1})
    (tmp_path / EVENTS).write_bytes(b'{"kind":1}\n' + good.to_line() + b'{"kind":"half')
    run = read_run(tmp_path)
    assert run.events == [good]
    assert [(each.file, each.line) for each in run.damage] == [(EVENTS, 1)]


def test_reading_reports_the_bytes_of_the_steps(tmp_path: Path) -> None:
    lines = b"".join(StepRecord(step, {}).to_line() for step in range(20_000))
    (tmp_path / STEPS).write_bytes(lines)
    progress = ProgressLog()
    run = open_run(tmp_path, ReadOptions(progress=progress))
    assert len(list(run.steps)) == 20_000
    sizes = [completed for completed, _ in progress.updates]
    assert sizes == sorted(sizes)
    assert len(sizes) > 2
    assert progress.updates[-1] == (len(lines), len(lines))
