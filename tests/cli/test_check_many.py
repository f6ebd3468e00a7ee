"""`check` on several runs, on directories of runs, and with a settings file."""

import json
import shutil

import pytest

from grpodoctor.cli import examined_runs
from tests.cli.in_process import run
from tests.report.simulated import record_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("all") / "runs"
    folder.mkdir()
    record_run(folder / "well", 40)
    record_run(folder / "nested" / "sick", 60, sick_from=20)
    (folder / "notes.md").write_text("no run")
    rows = [{"step": step, "reward": 0.1 + step / 400, "kl": 0.01} for step in range(1, 60)]
    (folder / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_the_console_output_next_to_a_recorded_run_is_no_second_run(runs, tmp_path):
    record_run(tmp_path / "mine", 40)
    shutil.copy(runs / "own.jsonl", tmp_path / "other.log")
    shutil.copy(runs / "own.jsonl", tmp_path / "mine.log")
    shown = run("check", tmp_path).stdout
    assert " mine " in shown
    assert " other.log " in shown
    assert " mine.log " not in shown


def kinds(done):
    return [each["verdict"]["kind"] for each in json.loads(done.stdout)["runs"]]


def test_a_directory_of_runs_is_one_line_per_run_worst_first(runs):
    done = run("check", runs)
    assert done.returncode == 1
    assert done.stdout.startswith("1 sick · 2 healthy")
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("sick", "heal"))]
    assert [row[0] for row in rows] == ["sick", "healthy", "healthy"]
    assert rows[0][2] == "nested/sick"
    assert "  grpodoctor check " + str(runs / "nested" / "sick") in done.stdout  # to paste
    assert "since step" in done.stdout


def test_a_line_of_80_columns_keeps_the_cause_and_tells_long_names_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / "a project" / "qwen3-0.6b-countdown"
    logs = [folder / "grpo_metrics.jsonl", folder / "grpo_trl_metrics.jsonl", folder.parent / "z"]
    folder.mkdir(parents=True)
    rows = [{"step": step, "reward": 0.5, "cut": 1.0} for step in range(1, 60)]
    for log in logs:
        log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("check", *logs, "--map", "cut=length/truncated_rate")
    lines = [line for line in done.stdout.splitlines() if line.startswith("sick")]
    assert len({line.split()[2] for line in lines}) == 3
    assert sum("…" in line.split()[2] for line in lines) == 2
    cause = "LEN002: 100% of responses are truncated by the length limit"
    assert " ".join(done.stdout.split()).count(cause) == 3
    assert f"grpodoctor check '{logs[0]}'" in done.stdout.replace("\n", "")


def test_several_paths_are_examined_and_one_that_fails_ends_nothing(runs):
    done = run("check", runs / "well", runs / "own.jsonl", runs / "missing", "--json")
    assert done.returncode == 2
    assert kinds(done) == ["healthy", "healthy"]
    (unreadable,) = json.loads(done.stdout)["unreadable"]
    assert unreadable["path"].endswith("missing")
    assert run("check", runs / "well", runs / "own.jsonl").returncode == 0
    assert run("check", runs / "well", runs / "missing", "--exit-zero").returncode == 0


def test_the_table_comes_first_with_what_cannot_be_read_as_a_row(runs, tmp_path):
    (tmp_path / "empty.log").touch()
    done = run("check", tmp_path / "empty.log", runs / "well", runs / "nested" / "sick")
    lines = done.stdout.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("verdict"))
    assert start <= 4
    rows = [line for line in lines[start:] if line.startswith(("sick", "unreadable", "healthy"))]
    assert [row.split()[0] for row in rows] == ["sick", "unreadable", "healthy"]
    assert "empty" in rows[1]
    command = f"  grpodoctor check {runs / 'nested' / 'sick'}"
    assert lines[-2:] == ["The first run in detail:", command]
    alone = run("check", tmp_path / "empty.log", tmp_path / "none.log").stdout
    assert alone.count("unreadable  ") == 2
    assert "No run was found" not in alone


def test_two_logs_of_two_runs_in_one_folder_are_two_runs(tmp_path):
    for name, slope in (("a", 0.01), ("b", -0.005)):
        rows = [
            {"step": step, "reward": 0.5 + slope * step, "kl": 0.1 * slope * step, "loss": slope}
            for step in range(1, 60)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("check", tmp_path, "--json")
    assert len(kinds(done)) == 2


@pytest.fixture
def at_once(monkeypatch):
    """Progress is reported from the start, as if the work had already taken a few seconds."""
    monkeypatch.setattr(examined_runs, "DELAY_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_line_per_finished_run_goes_to_stderr_at_once(runs, monkeypatch):
    seen = []
    read = examined_runs._replay

    def replay(path, settings, stack):
        seen.append(path)
        return read(path, settings, stack)

    monkeypatch.setattr(examined_runs, "_replay", replay)
    done = run("check", runs, runs / "missing", "--json")
    found, *lines = done.stderr.splitlines()
    assert found == "4 runs found"
    verdicts = {str(runs / "nested" / "sick"): "sick", str(runs / "missing"): "not readable"}
    assert lines == [
        f"{number} of 4 runs read: {path}: {verdicts.get(path, 'healthy')}"
        for number, path in enumerate(seen[-4:], 1)
    ]
    assert len(json.loads(done.stdout)["runs"]) == 3


def test_short_work_prints_no_progress(runs, monkeypatch):
    monkeypatch.setattr(examined_runs, "DELAY_SECONDS", 1e9)
    assert run("check", runs).stderr == ""


def interrupted_before(monkeypatch, number):
    """Let Ctrl-C end the examination before the run with this number, counted from 0."""
    read, count = examined_runs._examine_into, iter(range(100))

    def examine_into(found, path, settings):
        if next(count) == number:
            raise KeyboardInterrupt
        read(found, path, settings)

    monkeypatch.setattr(examined_runs, "_examine_into", examine_into)


@pytest.mark.parametrize("output_format", ["text", "json", "github"])
def test_ctrl_c_shows_the_runs_that_are_finished(runs, monkeypatch, output_format):
    interrupted_before(monkeypatch, 2)
    done = run("check", runs, "-o", output_format)
    assert done.returncode == 130
    assert "interrupted: 2 of 3 runs were examined" in done.stderr
    if output_format != "text":  # a program must not take a part for the whole
        assert done.stdout == ""
        return
    rows = [line for line in done.stdout.splitlines() if line.startswith(("sick", "healthy"))]
    assert len(rows) == 2


def test_ctrl_c_before_the_first_run_is_finished_prints_nothing(runs, monkeypatch, tmp_path):
    interrupted_before(monkeypatch, 0)
    done = run("check", runs)
    assert (done.returncode, done.stdout) == (130, "")
    interrupted_before(monkeypatch, 1)
    done = run("check", runs, "--output", tmp_path / "report.txt")
    assert (done.returncode, done.stdout) == (130, "")
    assert not (tmp_path / "report.txt").exists()


@pytest.mark.parametrize("output_format", ["github", "sarif", "junit", "markdown", "html"])
def test_every_format_takes_several_runs(runs, output_format):
    done = run("check", runs, "--output-format", output_format)
    assert done.returncode == 1
    assert "nested/sick" in done.stdout.replace("<wbr>", "")


@pytest.mark.parametrize(("name", "start"), [("r.sarif", "{"), ("r.xml", "<?xml")])
def test_the_suffix_of_the_file_chooses_the_format(runs, tmp_path, name, start):
    done = run("check", runs / "nested" / "sick", "--output", tmp_path / name)
    assert (done.returncode, done.stdout) == (1, "")
    assert (tmp_path / name).read_text().startswith(start)


def test_a_run_without_a_reward_is_not_examined_and_exits_with_2(tmp_path):
    log = tmp_path / "log.jsonl"
    rows = [{"step": step, "loss": 1 / step, "grad_norm": 1.0} for step in range(1, 60)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("check", log)
    assert done.returncode == 2
    assert done.stdout.startswith("NOT EXAMINED ")
    assert "--map" in " ".join(done.stdout.split())
    assert run("check", log, "--exit-zero").returncode == 0


def test_the_settings_file_of_the_working_directory_applies(runs, tmp_path, monkeypatch):
    sick = shutil.copytree(runs / "nested" / "sick", tmp_path / "sick")
    (tmp_path / "grpodoctor.toml").write_text('select = ["LEN"]\n[severities]\nLEN = "info"\n')
    monkeypatch.chdir(tmp_path)
    done = run("check", sick)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "grpodoctor.toml: severities" in done.stderr
    (tmp_path / "grpodoctor.toml").write_text('select = ["LEN"]\nframework = "verl"\n')
    found = json.loads(run("check", sick, "--json").stdout)["findings"]
    assert {each["code"][:3] for each in found} == {"LEN"}
    everything = json.loads(run("check", sick, "--json", "--isolated").stdout)["findings"]
    assert {each["code"][:3] for each in everything} > {"LEN"}
    other = tmp_path / "other.toml"
    other.write_text('select = ["ENT"]\n')
    found = json.loads(run("check", sick, "--json", "--config", other).stdout)["findings"]
    assert {each["code"][:3] for each in found} == {"ENT"}


def test_a_mapping_in_the_settings_file_is_read(tmp_path):
    log = tmp_path / "log.jsonl"
    rows = [{"step": step, "my_grade": step / 100, "kl": 0.01} for step in range(1, 60)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = tmp_path / "grpodoctor.toml"
    settings.write_text('[map]\nmy_grade = "reward/mean"\n')
    assert run("check", log).returncode == 2
    assert run("check", log, "--config", settings).returncode == 0


@pytest.mark.parametrize("width", [80, 120])
def test_a_report_with_two_findings_fits_a_screen(tmp_path, width):
    """The longest case: two independent faults, each with evidence and several remedies."""
    sick = record_run(tmp_path / "sick", 60, sick_from=20)
    done = run("check", sick, "--select", "LEN002,ENT001", env={"COLUMNS": str(width)})
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert lines[0].startswith("SICK ")
    assert all(len(line) <= width for line in lines if not line.startswith("    "))
