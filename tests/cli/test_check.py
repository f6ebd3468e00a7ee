import json
import os
import shutil

import pytest

from grpodoctor.cli.options import RunReportFormat
from grpodoctor.runs.reading.native_run import NativeRun
from grpodoctor.runs.records import EVENTS, MANIFEST, STEPS
from tests.cli.in_process import run
from tests.cli.test_main import modules_after
from tests.report.simulated import HOSTILE, record_run
from tests.support.terminal import use_terminal


@pytest.fixture(scope="module")
def well(tmp_path_factory):
    return record_run(tmp_path_factory.mktemp("runs") / "well", 40)


def test_findings_exit_with_1_and_none_with_0(sick, well):
    assert run("check", sick).returncode == 1
    done = run("check", well)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("HEALTHY ")


def test_fail_on_sets_the_severity_that_fails(sick):
    chosen = ("check", sick, "--select", "LEN", "--output-format", "json")
    done = run(*chosen)
    assert {each["severity"] for each in json.loads(done.stdout)["findings"]} == {"warning"}
    assert done.returncode == 1
    assert run(*chosen, "--fail-on", "critical").returncode == 0
    assert run("check", sick, "--fail-on", "critical").returncode == 1


def test_select_and_ignore_take_codes_and_families(sick):
    def codes(*options):
        data = json.loads(run("check", sick, "--output-format", "json", *options).stdout)
        found = {each["code"] for each in data["findings"]}
        return found | {each["code"] for each in data["skipped"]} | set(data["quiet"])

    assert {code[:3] for code in codes("--select", "ENT,GRP001")} == {"ENT", "GRP"}
    assert codes("--select", "ENT", "--ignore", "ENT002") == codes("--select", "ENT") - {"ENT002"}
    assert "ENT001" not in codes("--ignore", "ENT")


@pytest.fixture
def supervised(tmp_path):
    path = tmp_path / "sft.jsonl"
    rows = (
        {"step": step, "loss": 2 - step / 100, "mean_token_accuracy": 0.5} for step in range(80)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("output_format", list(RunReportFormat))
def test_another_kind_of_training_has_a_verdict_in_every_format(supervised, output_format):
    done = run("check", supervised, "--isolated", "-o", output_format.value)
    assert (done.returncode, done.stderr) == (2, "")
    shown = " ".join(done.stdout.split())
    assert "not examined" in shown.lower()
    assert "this is a log of supervised fine-tuning" in shown
    assert run("check", supervised, "--isolated", "--exit-zero").returncode == 0


def test_another_kind_of_training_is_a_row_of_the_table(supervised, well):
    done = run("check", supervised, well, "--isolated", "--json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["unreadable"]) == (2, [])
    assert [each["verdict"]["kind"] for each in data["runs"]] == ["not examined", "healthy"]


def make_foreign(path):
    path.mkdir()
    (path / "holiday.jpg").write_bytes(b"\xff\xd8")


def make_binary(path):
    path.write_bytes(bytes(range(256)) * 10)


def make_newer(path):
    path.mkdir()
    (path / MANIFEST).write_text('{"schema_version": 99}')


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda _: None, "no such file"),
        (lambda path: path.mkdir(), "empty"),
        (make_foreign, "holiday.jpg"),
        (make_binary, "the file is binary"),
        (make_newer, "upgrade"),
    ],
)
@pytest.mark.parametrize("command", [("check",), ("watch", "--once")])
def test_an_unusable_path_is_one_line_and_exit_code_2(command, make, word, tmp_path):
    make(tmp_path / "given")
    done = run(*command, tmp_path / "given")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert word in done.stderr
    assert "given" in done.stderr


@pytest.mark.parametrize(
    "options", [("--select", "XYZ"), ("--ignore", "ENT999"), ("--framework", "nonesuch")]
)
def test_unknown_selectors_and_frameworks_are_refused(options, sick):
    done = run("check", sick, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert options[1] in done.stderr
    assert done.stderr.count("\n") == 1


def test_damage_is_counted_and_the_rest_is_read(sick, tmp_path):
    shutil.copytree(sick, tmp_path / "run")
    steps = tmp_path / "run" / STEPS
    lines = steps.read_bytes().splitlines(keepends=True)
    damaged = [b"\x00\xff garbage\n", b'{"step": -4}\n', b"[1, 2]\n", b'{"step": 3, "values": 7}\n']
    steps.write_bytes(b"".join([*lines[:30], *damaged, *lines[30:], b'{"step": 60, "val']))
    done = run("check", tmp_path / "run", "--output-format", "json")
    data, whole = (json.loads(run("check", path, "--output-format", "json").stdout)
                   for path in (tmp_path / "run", sick))  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "warning: 4 damaged lines" in done.stderr
    assert data["damage"]["total"] == 4
    assert [each["line"] for each in data["damage"]["lines"]] == [31, 32, 33, 34]
    assert data["findings"] == whole["findings"]
    assert data["run"]["steps"] == 60


@pytest.mark.parametrize("output_format", [*RunReportFormat])
def test_damage_is_reported_once_to_a_person_and_always_on_stderr_to_a_program(
    tmp_path, output_format
):
    log = tmp_path / "log.jsonl"
    rows = [json.dumps({"step": step, "reward": step / 60}) for step in range(1, 60)]
    log.write_text("\n".join([*rows[:30], "{broken", *rows[30:]]))
    done = run("check", log, "--output-format", output_format)
    is_text = output_format is RunReportFormat.text
    assert done.stderr.count("1 damaged line skipped") == (0 if is_text else 1)
    assert not is_text or done.stdout.count("1 damaged line skipped") == 1
    assert "damaged line" in run("check", log, "--output", tmp_path / "report.txt").stderr


def test_a_step_that_goes_back_is_read(sick, tmp_path):
    shutil.copytree(sick, tmp_path / "run")
    steps = tmp_path / "run" / STEPS
    lines = steps.read_bytes().splitlines(keepends=True)
    steps.write_bytes(b"".join([*lines, *lines[10:]]))
    data = json.loads(run("check", tmp_path / "run", "--output-format", "json").stdout)
    assert data["run"]["last_step"] == 59
    assert data["findings"]


def test_a_directory_without_its_manifest_is_still_a_run(sick, tmp_path):
    shutil.copytree(sick, tmp_path / "run")
    (tmp_path / "run" / MANIFEST).unlink()
    (tmp_path / "run" / EVENTS).unlink()
    assert run("check", tmp_path / "run").returncode == 1
    (tmp_path / "run" / MANIFEST).write_text('{"knobs": {"clip_high": []}, "seed": "x"}')
    done = run("check", tmp_path / "run")
    assert done.returncode == 1
    reason = "the first: all of run.json: knobs.clip_high.bool: must be true or false"
    assert reason in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("name", "start"),
    [("r.html", "<!doctype html>"), ("r.json", "{"), ("r.md", "# "), ("r.txt", "SICK ")],
)
def test_the_suffix_of_the_report_sets_its_format(name, start, sick, tmp_path):
    done = run("check", sick, "--output", tmp_path / name)
    assert (done.returncode, done.stdout) == (1, "")
    assert (tmp_path / name).read_text().startswith(start)
    assert name in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_report_that_cannot_be_written(sick, tmp_path):
    done = run("check", sick, "--output", tmp_path / "missing" / "r.html")
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot write the report: No such file")


def test_hostile_text_does_not_reach_the_terminal(tmp_path):
    path = tmp_path / "run \x1b[31m[bold]"
    record_run(path, 40, sick_from=15, text=HOSTILE, model=HOSTILE)
    for output_format in ("text", "json", "markdown"):
        done = run("check", path, "--output-format", output_format)
        assert done.returncode == 1
        assert "\x1b" not in done.stdout + done.stderr
        assert "\u202e" not in done.stdout
        assert "\x9b" not in done.stdout
    missing = run("check", tmp_path / "no\x1b[2J\nsuch")
    assert "\x1b" not in missing.stderr
    assert missing.stderr.count("\n") == 1


@pytest.mark.parametrize("output_format", ["text", "json", "markdown"])
def test_check_needs_neither_torch_nor_plotly(output_format, well, tmp_path):
    """Nor pyarrow, but to compare a run with the rollouts that it has."""
    bare = shutil.copytree(well, tmp_path / "bare", ignore=shutil.ignore_patterns("rollouts"))
    cases = ((bare, {"pyarrow"}), (well, set())) if output_format == "text" else ((bare, set()),)
    for path, heavy in cases:
        code, names = modules_after("check", path, "--output-format", output_format)
        assert code in {"None", "0"}
        assert "grpodoctor" in names
        assert not names & {"torch", "transformers", "plotly", "streamlit", *heavy}


def test_a_long_run_shows_its_progress_on_a_terminal(monkeypatch, well):
    from grpodoctor.cli.commands.check import check
    from grpodoctor.support import progress

    terminal = use_terminal(monkeypatch)
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(NativeRun, "_report_size", wait_for_bar(terminal))
    check([str(well)], exit_zero=True)
    assert "reading" in terminal.getvalue()
    assert "steps.jsonl" in terminal.getvalue()


def wait_for_bar(terminal):
    report_size = NativeRun._report_size

    def report_when_visible(run, size):
        report_size(run, size)
        assert terminal.written.wait(60)

    return report_when_visible


@pytest.mark.parametrize("name", ["report.pdf", "report.html.gz", "report.yaml"])
def test_an_unknown_suffix_is_refused_before_the_run_is_read(name, sick, tmp_path):
    done = run("check", sick, "--output", tmp_path / name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert ".md, .html, .json, .txt, .sarif or .xml" in done.stderr
    assert list(tmp_path.iterdir()) == []
    done = run("check", sick, "--output", tmp_path / name, "--output-format", "json")
    assert done.returncode == 1
    assert json.loads((tmp_path / name).read_text())["findings"]


def test_a_report_to_a_pipe_or_link_keeps_the_pipe_or_link(well, tmp_path):
    (tmp_path / "link.json").symlink_to("real.json")
    os.mkfifo(tmp_path / "pipe.json")
    reader = os.open(tmp_path / "pipe.json", os.O_RDONLY | os.O_NONBLOCK)
    try:
        for name in ("link.json", "pipe.json"):
            done = run("check", well, "--output", tmp_path / name)
            assert (done.returncode, done.stdout) == (0, "")
        assert json.loads(os.read(reader, 1 << 20))["schema_version"] == 2
    finally:
        os.close(reader)
    assert (tmp_path / "pipe.json").is_fifo()
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["findings"] == []
    assert run("check", well, "--output", "").returncode == 2
