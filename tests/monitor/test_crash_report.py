"""What reports say about the error with which a log ends."""

import json
from pathlib import Path

import pytest

from grpodoctor.monitor.crash_report import CrashReport, remedy_for, with_caution
from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.session import Session
from grpodoctor.remedies.catalogue import all_remedies, remedy_of
from grpodoctor.report import html, markdown, text
from grpodoctor.report.run.view import view_of
from grpodoctor.runs.crash import Crash
from grpodoctor.runs.reading.ending import crash_of

OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.46 GiB."
CRASH = f'Traceback (most recent call last):\n  File "a.py", line 3, in f\n{OUT_OF_MEMORY}\n'


def steps(count: int = 30) -> str:
    return "".join(
        f"step:{n} - critic/score/mean:0.{n % 10} - actor/entropy:0.4 - actor/pg_loss:0.01"
        f" - actor/grad_norm:0.3 - response_length/clip_ratio:0.9 - response_length/mean:1000"
        " - response_length/max:1024\n"
        for n in range(count)
    )


def written(directory: Path, content: str, name: str = "train.log") -> Path:
    path = directory / name
    path.write_text(content)
    return path


def test_a_crash_changes_neither_the_verdict_nor_the_exit_code(tmp_path: Path) -> None:
    whole = replay(written(tmp_path, steps(), "whole.log")).report
    crashed = replay(written(tmp_path, steps() + CRASH, "crashed.log")).report
    assert crashed.diagnosis.verdict.kind == whole.diagnosis.verdict.kind
    assert [each.code for each in crashed.findings] == [each.code for each in whole.findings]
    for severity in ("info", "warning", "critical"):
        assert crashed.reaches(severity) is whole.reaches(severity)
    assert whole.crash is None


def test_every_output_names_the_crash_and_the_settings_that_prevent_it(tmp_path: Path) -> None:
    view = view_of(replay(written(tmp_path, steps() + CRASH)))
    setting = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
    for shown in (text.render(view), markdown.render(view), html.render(view)):
        flat = " ".join(shown.replace("<wbr>", "").split())
        assert "the log ends with an error (line 33, after step 29)" in flat
        assert "with less GPU memory" in flat
        assert setting in flat
    crash = view.json()["crash"]
    assert (crash["kind"], crash["line"], crash["after_step"]) == ("gpu-memory", 33, 29)
    assert crash["remedy"]["id"] == "lower-gpu-memory"
    json.dumps(view.json())


def test_advice_that_needs_memory_has_a_caution(tmp_path: Path) -> None:
    report = replay(written(tmp_path, steps() + CRASH)).report
    titles = {each.id: each.title for each in report.advice.values()}
    assert "ended out of GPU memory" in titles["longer-limit"]
    assert not any("GPU" in titles[each] for each in titles if not remedy_of(each).needs_memory)
    other = CRASH.replace(OUT_OF_MEMORY, "KeyError: 'answer'")
    report = replay(written(tmp_path, steps() + other)).report
    assert report.crash is not None
    assert report.crash.remedy is None
    assert not any("GPU memory" in each.title for each in report.advice.values())
    assert with_caution({}, report.crash.crash) == {}


def test_a_live_run_shows_the_crash_until_it_goes_on(tmp_path: Path) -> None:
    path = written(tmp_path, steps() + CRASH)
    session = Session(path)
    while session.tick(final=True).more:
        pass
    crash = session.snapshot().report.crash
    assert crash is not None
    assert crash.after_step == 29
    with path.open("a") as file:
        file.write(steps(32).splitlines()[30] + "\n" + steps(32).splitlines()[31] + "\n")
    while session.tick(final=True).more:
        pass
    assert session.snapshot().report.crash is None


def test_the_errors_of_a_job_may_be_in_a_second_file(tmp_path: Path) -> None:
    written(tmp_path, steps(), "job-7.out")
    written(tmp_path, CRASH, "job-7.err")
    assert replay(tmp_path).report.crash is not None
    (tmp_path / "job-7.err").rename(tmp_path / "attempt-1.err")
    assert replay(tmp_path).report.crash is None


def test_without_files_there_is_no_crash() -> None:
    assert crash_of([], set()) is None


def test_the_remedies_that_free_and_that_need_memory() -> None:
    assert remedy_for("gpu-memory") == "lower-gpu-memory"
    assert [each.id for each in all_remedies() if each.needs_memory] == [
        "larger-batch", "larger-groups", "longer-limit"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "step", "place"),
    [(0, None, ""), (12, None, " (line 12)"), (12, 5, " (line 12, after step 5)")],
)
def test_the_place_is_as_exact_as_it_is_known(line: int, step: int | None, place: str) -> None:
    report = CrashReport(Crash("exception", "KeyError: 'a'.", line), step)
    assert report.line == f"the log ends with an error{place}: KeyError: 'a'"
