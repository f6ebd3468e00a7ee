import shutil

from grpodoctor.monitor.session import Session
from tests.report.simulated import record_run


def test_a_run_that_was_removed_is_waited_for_again(tmp_path):
    session = Session(tmp_path / "run")
    session.tick()
    assert session.snapshot().waiting
    record_run(tmp_path / "run", 5, finished=False)
    session.read_all()
    assert not session.snapshot().waiting
    shutil.rmtree(tmp_path / "run")
    session.tick()
    assert session.snapshot().waiting
    assert session.snapshot().facts.last_step is None
    record_run(tmp_path / "run", 3, run_id="second", finished=False)
    session.read_all()
    assert not session.snapshot().waiting
    assert session.snapshot().facts.last_step == 2


def test_a_watch_that_begins_while_the_recorder_opens_its_directory_sees_the_run(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "writer.lock").touch()  # the recorder's first file
    session = Session(path)
    assert session.tick().steps == 0
    record_run(path, 5)
    session.read_all()
    assert session.examination.steps == 5
    assert session.examination.manifest.model == "builtin-tiny"


def test_a_finished_run_that_is_read_in_parts_is_finished(tmp_path, monkeypatch):
    """A finished run must not be treated because its end is read before its last steps."""
    run = record_run(tmp_path / "run", 60, sick_from=20)
    monkeypatch.setattr("grpodoctor.runs.reading.native_run.POLL_RECORDS", 10)
    for name in ("BLOCK", "ROW_BLOCK"):
        monkeypatch.setattr(f"grpodoctor.support.files.growing_files.{name}", 16 * 1024)
    session = Session(run, apply="unsafe")
    parts, tick = 1, session.tick(final=True)
    while tick.more:
        parts, tick = parts + 1, session.tick(final=True)
    assert session.examination.steps == 60
    assert parts > 1
    assert session.examination.finished
    assert list((run / "mailbox").glob("*")) == []
