"""Errors about files that give no rows, and files with a byte-order mark or a hole that do."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.monitor.replay import replay
from grpodoctor.report.run.view import view_of
from grpodoctor.runs.log_formats.decoding.exceptions import exception_in
from grpodoctor.runs.reading.opening import open_run

ROW = {"reward": 0.5, "reward_std": 0.1, "completions/mean_length": 10.0}
LINES = "".join(json.dumps({"step": step, **ROW}) + "\n" for step in range(1, 31))
STATE = json.dumps({"log_history": [{"step": step, **ROW} for step in range(1, 31)]})
CONSOLE = "".join(
    f"step:{step} - actor/entropy:0.3 - actor/pg_loss:0.1 - critic/score/mean:0.5\n"
    for step in range(1, 31)
)


def why(directory: Path, name: str, content: bytes) -> str:
    (directory / name).write_bytes(content)
    said = []
    for path in (directory, directory / name):
        with pytest.raises(RunError) as raised:
            open_run(path)
        said.append(str(raised.value))
        assert "\n" not in said[-1]
    return " | ".join(said)


@pytest.mark.parametrize("name", ["metrics.jsonl", "trainer_state.json", "metrics.csv", "out.log"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (gzip.compress(LINES.encode()), "gzip: unpack it first"),
        (bytes(range(256)) * 20, "binary"),
        (b"\0" * 300, "nothing but zeros"),
    ],
)
def test_the_error_names_what_the_file_is_instead_of_a_log(
    name: str, content: bytes, said: str, tmp_path: Path
) -> None:
    assert why(tmp_path, name, content).count(said) == 2


def test_an_empty_log_is_waited_for_and_a_file_is_named_once(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    for path in (empty, tmp_path / "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(RunError, match=r"is empty .*wait for its first step") as raised:
            open_run(path)
        assert "--format" not in str(raised.value)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"step": 1, "reward"\n{{{\n')
    with pytest.raises(RunError, match="line 1: not JSON") as raised:
        open_run(broken)
    assert str(raised.value).count("broken.jsonl") == 1


@pytest.mark.parametrize("name", ["metrics.jsonl", "trainer_state.json", "metrics.csv"])
def test_text_in_utf_16_is_named(name: str, tmp_path: Path) -> None:
    table = "step,reward\n" + "".join(f"{step},0.5\n" for step in range(30))
    content = {".json": STATE, ".csv": table}.get(Path(name).suffix, LINES).encode("utf-16")
    assert "UTF-16: convert it to UTF-8" in why(tmp_path, name, content)


def test_a_truncated_document_is_reported(tmp_path: Path) -> None:
    said = why(tmp_path, "trainer_state.json", STATE.encode()[:-40])
    assert "trainer_state.json: not JSON: unexpected end of data" in said


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.jsonl", LINES.encode("utf-8-sig")),
        ("trainer_state.json", STATE.encode("utf-8-sig")),
        ("history.json", STATE.encode("utf-8-sig")),
        ("train.log", CONSOLE.encode("utf-8-sig")),
        ("train.log", CONSOLE.encode("utf-16")),  # redirected by a console of Windows
        ("train.log", CONSOLE.encode("utf-16-le")),
        ("train.log", b"\0" * 100_000 + CONSOLE.encode()),  # cut by a rotation, and written on
        ("train.log", CONSOLE.encode() + b"\0" * 5000),
    ],
)
def test_byte_order_marks_and_zero_bytes_are_ignored(
    name: str, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert [each.step for each in open_run(path).steps] == list(range(1, 31))


def test_a_compressed_log_that_is_cut_off_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl.gz"
    path.write_bytes(gzip.compress(LINES.encode())[:30])
    with pytest.raises(RunError) as error:
        list(open_run(path).steps)
    assert "gzip: damaged, or contains no log" in str(error.value)


CRASHED = """\
\x1b[36m(main_task pid=19)\x1b[0m {{'data': {{'n': 4}}}}
Error executing job with overrides: ['trainer.n_gpus_per_node=8']
{heading}  File "/home/x/main.py", line 37, in main
ray.exceptions.RayTaskError(OutOfMemoryError): ray::main_task()
\x1b[36m(main_task pid=19)\x1b[0m torch.OutOfMemoryError: CUDA out of memory. Tried 4 GiB\x1b[0m
    full_key: reward_model.enable
"""


@pytest.mark.parametrize("heading", ["Traceback (most recent call last):\n", ""])
def test_a_run_that_stopped_before_its_first_step_names_its_exception(
    tmp_path: Path, heading: str
) -> None:
    path = tmp_path / "train.log"
    path.write_text(CRASHED.format(heading=heading))
    with pytest.raises(
        RunError, match="stopped with torch.OutOfMemoryError: CUDA".replace(".", r"\.")
    ):
        open_run(path)


ROWS = "".join(f"step:{n} - critic/rewards/mean:0.{n % 10} - actor/lr:1e-6\n" for n in range(30))
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n'
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.46 GiB"
LAUNCHER = f"{TRACE}torch.distributed.elastic.errors.ChildFailedError: train.py FAILED\n"


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        (f"{TRACE}{OUT_OF_MEMORY}\n{LAUNCHER}", True),
        (f"{TRACE}{OUT_OF_MEMORY}\n{ROWS.replace('step:', 'step:1')}", False),
        (f"{TRACE}{OUT_OF_MEMORY}\n" + "a retry succeeded\n" * 300, False),
        (f"the response says\n{OUT_OF_MEMORY}\n", False),
    ],
    ids=["it stops", "further steps", "further output", "no traceback"],
)
def test_the_error_with_which_a_run_ends_is_shown_next_to_the_verdict(
    tmp_path: Path, end: str, shown: bool
) -> None:
    path = tmp_path / "train.log"
    path.write_text(ROWS + end)
    data = replay(path)
    assert (data.report.crash is not None) is shown
    lines = [line for line in view_of(data).warnings if OUT_OF_MEMORY in line]
    assert bool(lines) is shown
    if shown:
        assert lines[0].startswith("the log ends with an error (line 33, after step 29): torch.")


@pytest.mark.parametrize(
    ("exception", "shown"),
    [
        (f"{OUT_OF_MEMORY}. GPU 1 has a total capacity of 139.80 GiB, of which 4.24 GiB is free.",
         f"{OUT_OF_MEMORY}."),
        (f"ValueError: {'no sentence here ' * 9}", f"ValueError: {'no sentence here ' * 5}no…"),
        ("ValueError: short", "ValueError: short"),
    ],
    ids=["sentences", "one long sentence", "short"],
)  # fmt: skip
def test_a_long_error_is_shortened_to_its_first_sentences(exception: str, shown: str) -> None:
    assert exception_in(exception) == shown


def test_a_text_about_an_error_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "notes.log"
    path.write_text("The usual cause is\nValueError: bad config\n" * 20)
    with pytest.raises(RunError, match="no known format"):
        open_run(path)


CRASH = """12:00:01 INFO Starting the loop
Traceback (most recent call last):
  File "/app/rl/loop.py", line 603, in finish
    raise RuntimeError(
RuntimeError: 10 empty batches in a row — every group was dropped
"""
STOPPED = """Traceback (most recent call last):
  File "/app/elastic/agent.py", line 86, in _terminate
torch.distributed.elastic.multiprocessing.api.SignalException: Process 129 got signal: 15
"""


def test_a_directory_of_a_job_that_failed_before_its_first_step_names_the_error(
    tmp_path: Path,
) -> None:
    (tmp_path / "rollouts.log").write_text(CRASH)
    (tmp_path / "trainer.log").write_text(STOPPED)
    (tmp_path / "notes.md").write_text("Traceback\nValueError: an example\n")
    with pytest.raises(RunError) as raised:
        open_run(tmp_path)
    said = str(raised.value)
    assert "rollouts.log stops with RuntimeError: 10 empty batches in a row — every" in said
    assert "SignalException" not in said
    assert "ValueError" not in said


def test_an_exception_of_a_signal_is_named_if_it_is_the_only_one(tmp_path: Path) -> None:
    (tmp_path / "trainer.log").write_text(STOPPED)
    (tmp_path / "other.log").write_text("starting\n")
    with pytest.raises(RunError, match=r"trainer\.log stops with .*SignalException"):
        open_run(tmp_path)


OVERRIDES = (
    "Error executing job with overrides: ['algorithm.adv_estimator=grpo', 'trainer.nnodes=1', "
    "'actor.kl_loss_coef=0.001', '+reward_model.scale=2', 'actor.optim.lr=1e-6']\n"
)


@pytest.mark.parametrize("line", [OVERRIDES, OVERRIDES.replace("'", "").replace(", ", " ")])
def test_settings_that_a_crash_repeats_are_no_metrics(line: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(line + CRASHED.format(heading=""))
    with pytest.raises(RunError, match=r"no training step .* torch\.OutOfMemoryError"):
        open_run(path)


def test_a_summary_is_described_by_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "training_log.json"
    summary = {"meta": {"n": 4}, "before": {"accuracy": 0.5}, "lr": 1e-6}
    path.write_text(json.dumps(summary, indent=2))
    with pytest.raises(RunError, match="no series of steps; its keys: meta, before, lr"):
        open_run(path)
    path.write_text('{\n"log": [{"text": "a"}]}')
    with pytest.raises(RunError, match=r"its keys: log .*such as trainer_state\.json"):
        open_run(path)
    (tmp_path / "trainer_state.json").write_text("{}")
    with pytest.raises(RunError, match=r"pass .*trainer_state\.json, which has"):
        open_run(path)


@pytest.mark.parametrize("text", ["{", "[1, 2]", "{\n}"])
def test_other_documents_are_in_no_known_format(text: str, tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_text(text)
    with pytest.raises(RunError, match="no known format"):
        open_run(path)


def test_a_log_without_a_reading_names_its_keys(tmp_path: Path) -> None:
    """An accuracy in percent is no share, so no row has a reading."""
    rows = [{"step": step, "accuracy": 93.0, "myQuality": 1.5} for step in range(30)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    verdict = replay(tmp_path).report.diagnosis.verdict
    assert verdict.sentence.startswith("no step was read; the log has the keys myQuality;")


def test_a_tracker_s_folder_is_named_with_its_export(tmp_path: Path) -> None:
    (tmp_path / "aim" / ".aim" / "meta").mkdir(parents=True)
    metric = tmp_path / "swan" / "swanlog" / "run-20260101_000000-a" / "logs" / "reward"
    metric.mkdir(parents=True)
    rows = [f'{{"index":{step},"data":0.3,"create_time":"2026"}}\n' for step in range(30)]
    (metric / "10.log").write_text("".join(rows))
    (tmp_path / "empty" / "swanlog").mkdir(parents=True)
    for folder, export in (
        ("aim", r"Aim repository.*dataframe.*to_csv\(\"run.csv\"\)"),
        ("swan", "SwanLab are not read.*swanlab api run metrics"),
        ("empty", "SwanLab are not read.*swanlab api run metrics"),
    ):
        with pytest.raises(RunError, match=export):
            open_run(tmp_path / folder)
