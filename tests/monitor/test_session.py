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
