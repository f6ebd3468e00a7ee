"""What an examination keeps of a long journal."""

import itertools
from pathlib import Path

from grpodoctor.monitor.examination import _MAX_CHECKPOINTS, Examination
from grpodoctor.runs.records import Event, Manifest


def test_the_oldest_and_the_latest_of_many_checkpoints_are_kept() -> None:
    examination = Examination(Path("run"), Manifest(), ())
    steps = range(10, 30_010, 10)
    for step in steps:
        examination.note(Event("checkpoint", step))
    kept = examination._checkpoints
    assert kept[0] == steps[0]
    assert kept[-400:] == list(steps[-400:])
    assert kept == sorted(kept)
    assert len(kept) <= _MAX_CHECKPOINTS
    gaps = [after - before for before, after in itertools.pairwise(kept)]
    assert max(gaps) <= 4 * (steps[-1] - steps[0]) / len(kept), "one is near any step"
