"""A small campaign: every reader keeps its contract, and a broken reader is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.frameworks.rollout_formats.registry import all_dump_formats
from grpodoctor.runs.log_formats.registry import all_log_formats
from tests.fuzz import campaign
from tests.fuzz.targets import planted
from tests.fuzz.targets.base import Target
from tests.fuzz.targets.catalogue import all_targets
from tests.fuzz.worker import write_input
from tests.samples import sampled

SEED = 15


def test_every_format_has_a_target() -> None:
    names = {target.name for target in all_targets()}
    assert {f"log: {each.name}" for each in all_log_formats()} <= names
    assert {f"dump: {each.name}" for each in all_dump_formats()} <= names


@pytest.mark.parametrize("target", all_targets(), ids=lambda target: target.name)
def test_the_sound_file_is_read(target: Target, tmp_path: Path) -> None:
    path = write_input(target, SEED, 0, tmp_path)
    if target.name == "dump: SkyRL training input":
        with pytest.raises(RunError, match="not loaded"):
            target.read(path)
    else:
        target.read(path)


def test_equal_seeds_make_equal_inputs() -> None:
    for target in all_targets()[:20]:
        sound = target.sound()
        assert target.input(sound, 1, 5) == target.input(sound, 1, 5)
    assert len({target.input(sound, 1, number) for number in range(30)}) > 20


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("inputs", sampled([75, 150], {75}))
def test_damaged_files_are_read_or_refused(inputs: int) -> None:
    tallies = campaign.run(all_targets(), inputs, SEED, jobs=1)
    broken = [finding for tally in tallies.values() for finding in tally.findings]
    assert not broken, broken
    assert sum(tally.inputs for tally in tallies.values()) >= inputs - len(tallies)
    assert all(tally.inputs for tally in tallies.values())


@pytest.mark.slow
def test_every_breach_is_reported_and_the_campaign_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(campaign, "SILENCE", 3.0)
    tallies = campaign.run(planted.targets(), 10, SEED, jobs=1)
    whats = {name.partition(":_")[2]: tally.findings[0].what for name, tally in tallies.items()}
    assert whats["raise"].startswith("KeyError: tests/fuzz/targets/planted.py:")
    assert whats["refuse_in_two_lines"].startswith("an error of several lines: ")
    assert whats["allocate"].endswith(" MB of memory")
    assert whats["crash"] == "the process died: SIGSEGV"
    assert whats["wait"].startswith("hangs: ")
    assert whats["run_on"] == "more than 1 s of processor time"
    assert all(len(tally.findings) == tally.inputs == 2 for tally in tallies.values())
