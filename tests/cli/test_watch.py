"""`watch` in real processes, against directories that the real recorder writes."""

import contextlib
import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from grpodoctor.cli.commands.watch import NoteWithoutLog, follow
from grpodoctor.monitor.session import Session
from grpodoctor.runs.recording.recorder import Recorder
from grpodoctor.treatment.mailbox import Inbox, Refused
from grpodoctor.treatment.requests import validate
from tests.cli.in_process import run
from tests.cli.test_main import modules_after
from tests.report.simulated import KNOBS, manifest, readings, record_run
from tests.samples import sampled

PATIENCE = 30.0


@contextlib.contextmanager
def watching(*arguments, **options):
    """A watch in the background; killed if it outlives the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "grpodoctor", "watch", *map(str, arguments)],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
    )
    try:
        with process:
            try:
                yield process
            finally:
                process.kill()
    finally:
        process.wait(PATIENCE)


def test_once_prints_the_screen_plain(sick):
    done = run("watch", sick, "--once")
    assert (done.returncode, done.stderr) == (1, "")
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    for word in ("Vitals", "entropy", "▁", "Findings", "REW002", "since step", "finished"):
        assert word in done.stdout


def test_without_the_screen_textual_is_not_loaded(sick):
    for option in ("--once", "--until-finished"):
        _, names = modules_after("watch", sick, option)
        assert "rich" in names or option != "--once"
        assert "textual" not in names


def test_once_as_json_equals_check(sick):
    live = run("watch", sick, "--once", "--json")
    offline = run("check", sick, "--output-format", "json")
    assert json.loads(live.stdout) == json.loads(offline.stdout)
    assert live.returncode == offline.returncode == 1
    assert run("watch", sick, "--once", "--fail-on", "critical", "--select", "LEN").returncode == 0


def test_once_refuses_apply(sick):
    for arguments in ((sick, "--once", "--apply", "safe"), (sick / "events.jsonl", "--once")):
        done = run("watch", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1


def test_a_watch_that_begins_before_the_run_sees_it_all(tmp_path):
    with watching(tmp_path / "run", "--json", "--until-finished", "--interval", "0.05") as process:
        time.sleep(0.5)
        assert process.poll() is None
        record_run(tmp_path / "run", 60, sick_from=20, pause=0.005)
        out, err = process.communicate(timeout=PATIENCE)
    news = [json.loads(line) for line in out.splitlines()]
    raised = [each["finding"] for each in news if each["kind"] == "finding-raised"]
    assert {each["code"] for each in raised} >= {"REW002", "ENT001"}
    assert all(each["active"] for each in raised)
    assert news[-1]["kind"] == "finished"
    assert process.returncode == 1
    note = f"note: {tmp_path / 'run'} does not exist yet; waiting for it\n"
    assert err.removeprefix(note).startswith("Sick since step ")
    assert "Traceback" not in err


def test_a_watch_of_a_missing_path_says_that_it_waits(tmp_path):
    with watching(tmp_path / "missing", "--plain") as process:
        end = threading.Timer(PATIENCE, process.kill)
        end.start()
        line = process.stderr.readline()
        end.cancel()
    assert line == f"note: {tmp_path / 'missing'} does not exist yet; waiting for it\n"


@pytest.mark.parametrize("kind", ["empty directory", "binary file"])
def test_a_watch_of_a_path_without_a_log_says_what_it_waits_for(tmp_path, capsys, kind):
    path = tmp_path / "run"
    if kind == "binary file":
        path.write_bytes(bytes(range(256)) * 8)
    else:
        path.mkdir()
    session, note = Session(path), NoteWithoutLog()
    for _ in range(3):
        note(session, session.tick())
    [line] = capsys.readouterr().err.splitlines()
    reason = "the file is binary" if path.is_file() else "the directory is empty"
    assert line.startswith(f"note: {path}: no readable log; {reason}; waiting for a training log: ")


def test_a_run_that_has_begun_is_watched_without_a_note(sick, capsys):
    session = Session(sick)
    NoteWithoutLog()(session, session.tick())
    assert capsys.readouterr().err == ""


def test_piped_events_are_readable_lines(sick):
    done = run("watch", sick, "--until-finished")
    assert done.returncode == 1
    assert re.search(
        r"^step \d+: warning REW002 reward-collapse raised(, a symptom of \w+)?: ",
        done.stdout,
        re.MULTILINE,
    )
    assert "\x1b" not in done.stdout


@pytest.mark.slow
def test_a_restarted_run_is_watched_from_its_start(tmp_path):
    record_run(tmp_path / "run", 60, sick_from=20, finished=False)
    with watching(tmp_path / "run", "--json", "--until-finished", "--interval", "0.05") as process:
        first = (json.loads(line) for line in process.stdout)
        assert any(each["kind"] == "finding-raised" for each in first)
        shutil.rmtree(tmp_path / "run")
        record_run(tmp_path / "run", 30, run_id="second", pause=0.001)
        # Not `communicate`: it would lose the part of a line that is buffered already.
        later = [json.loads(line) for line in process.stdout]
        err = process.stderr.read()
        process.wait(timeout=PATIENCE)
    kinds = [each["kind"] for each in later]
    # A watch may look while the old files are being deleted, and reads what is left; or when they
    # are gone, and waits for the next run.
    restarts = [i for i, kind in enumerate(kinds) if kind in ("restarted", "removed")]
    assert restarts
    assert "finding-raised" not in kinds[restarts[-1] :]
    # The healthy second run is what counts in the end.
    assert process.returncode == 0
    assert err.startswith("Healthy: ")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("options", sampled([(), ("--json",)], 2))
def test_an_interrupt_ends_the_watch_at_once_and_cleanly(sick, sent, options):
    with watching(sick, *options, "--interval", "60") as process:
        assert any("raised" in line for line in iter(process.stdout.readline, ""))
        process.send_signal(sent)
        _, err = process.communicate(timeout=PATIENCE)  # far less than the interval
    assert process.returncode == 1
    assert "Traceback" not in err
    verdict, *to_type = err.splitlines()
    assert verdict.startswith("Sick since step ")
    assert to_type
    assert all(line.startswith("  ") for line in to_type)


def test_a_signal_ends_the_watch_even_if_its_exception_is_lost():
    class Unmoved:
        def show(self, session, tick):
            pass

    session = SimpleNamespace(tick=lambda: SimpleNamespace(more=False, held=False))
    with pytest.raises(KeyboardInterrupt):
        follow(session, Unmoved(), ended=lambda: False, interrupted=lambda: True, interval=3600)


class Patient:
    """A run that falls ill, and recovers once its mailbox asks for another setting of a knob."""

    def __init__(self, path):
        self.recorder = Recorder.open(path, manifest())
        self.inbox = Inbox(path)
        self.knobs = dict(KNOBS)
        self.cured_at = None
        self.is_judged = False

    def live(self, most_steps, sick_from, pause):
        """Train until the treatment is judged, however slow the watch is."""
        with self.recorder:
            for step in range(most_steps):
                if self.is_judged:
                    return
                changed = self.obey(step)
                ill = sick_from if self.cured_at is None else None
                self.recorder.step(step, readings(step, sick_from=ill), knobs=changed)
                if step > sick_from:  # the watch has to follow from here on
                    time.sleep(pause)

    def obey(self, step):
        changed = {}
        for request in self.inbox.take(step):
            assert not isinstance(request, Refused), request
            if request.kind == "note":
                event = request.as_event()
                self.is_judged |= event.kind in {"treatment-kept", "treatment-undone"}
                self.recorder.event(event.kind, event.step, event.body)
                continue
            change = validate(request, self.knobs)
            before = {knob: self.knobs[knob] for knob in change}
            self.knobs.update(change)
            changed.update(change)
            self.cured_at = step if request.kind == "apply" else None
            body = {**request.body(), "before": before, "after": change}
            self.recorder.event(request.applied_kind, step, body)
        return changed


@pytest.mark.timeout(900)
def test_a_watch_that_may_apply_remedies_treats_the_live_run(tmp_path):
    patient = Patient(tmp_path / "run")
    life = threading.Thread(target=patient.live, args=(2000, 20, 0.25))
    life.start()
    options = ("--apply", "safe", "--json", "--until-finished", "--interval", "0.05")
    try:
        with watching(tmp_path / "run", *options) as process:
            out, err = process.communicate(timeout=600)
    finally:
        life.join(PATIENCE)
    assert process.returncode in {0, 1}  # 1 if a finding is still active after the treatment
    assert "Traceback" not in err
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    treated = [kind for kind in kinds if kind.startswith("treatment-")]
    assert treated[:3] == ["treatment-proposed", "treatment-applied", "treatment-scheduled"]
    assert treated[3:] == ["treatment-applied", "treatment-kept"]
    journal = [
        json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    ]
    switched = sum(each["kind"] == "treatment-switched" for each in journal)
    order = next(each["order"] for each in journal if each["kind"] == "treatment-scheduled")
    states = f"1{order}0"  # applied before the stage, off after it
    assert switched == sum(one != two for one, two in itertools.pairwise(states))
    raised = [each for each in journal if each["kind"] == "finding-raised"]
    assert raised
    assert len({(each["code"], each["onset_step"]) for each in raised}) == len(raised)
    assert any(each["kind"] == "finding-resolved" for each in journal)
    report = json.loads(run("check", tmp_path / "run", "--output-format", "json").stdout)
    kinds = [each["kind"] for each in report["treatments"]]
    assert (kinds[:3], kinds[-1]) == (["proposed", "applied", "scheduled"], "kept")


def test_a_second_watch_does_not_repeat_the_journal(tmp_path, sick):
    shutil.copytree(sick, tmp_path / "run")
    events = tmp_path / "run" / "events.jsonl"
    events.write_bytes(b"")

    def notes():
        from grpodoctor.monitor.session import Session

        session = Session(tmp_path / "run", apply="safe")
        session.read_all()
        return [each for each in Inbox(tmp_path / "run").take(10**9) if each.kind == "note"]

    first = notes()
    assert any(each.event["kind"] == "finding-raised" for each in first)
    with events.open("ab") as file:
        file.writelines(each.as_event().to_line() for each in first)
    assert [each.event["kind"] for each in notes()] == []


def test_an_unwritable_mailbox_is_reported_and_the_watch_continues(tmp_path, sick):
    from rich.console import Console

    from grpodoctor.cli.watch_screen.text_screen import TextScreen
    from grpodoctor.monitor.session import Session

    shutil.copytree(sick, tmp_path / "run")
    (tmp_path / "run" / "events.jsonl").unlink()
    shutil.rmtree(tmp_path / "run" / "mailbox", ignore_errors=True)
    (tmp_path / "run" / "mailbox").write_text("in the way")
    session = Session(tmp_path / "run", apply="safe")
    session.read_all()
    assert "mailbox" in session.send_error
    console = Console(width=120)
    with console.capture() as capture:
        console.print(TextScreen(session.snapshot()))
    assert "cannot write to the mailbox" in capture.get()
    assert session.examination.report().findings
