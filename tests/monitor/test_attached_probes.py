import json
import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.monitor.attached_probes import AttachedProbes, attach, folder_of
from grpodoctor.monitor.probe_file import AttachedProbe
from grpodoctor.monitor.replay import replay
from grpodoctor.monitor.session import Session
from grpodoctor.runs.records import STEPS, StepRecord
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.values import Max, Mean, Rate

DATA = Path(__file__).parents[1] / "data"
RUN = DATA / "run"
MEAN = "mismatch/prob_diff_mean"
PROBE = AttachedProbe(
    created="2026-11-21T10:00:00+00:00",
    sampler="vllm:m",
    learner="transformers:m",
    verdict="The engines differ: other temperatures.",
    readings={MEAN: Mean(40, 400), "mismatch/far_rate": Rate(3, 400), "reward/mean": Mean(9, 1)},
)


def silent_run(path: Path, steps: int = 12) -> Path:
    """A run that logs nothing of a mismatch."""
    path.mkdir()
    records = (StepRecord(step, {"reward/mean": Mean(5, 10)}) for step in range(steps))
    (path / STEPS).write_bytes(b"".join(record.to_line() for record in records))
    return path


def codes(run: Path) -> set[str]:
    return {finding.code for finding in replay(run).report.findings}


def test_rules_use_what_a_probe_has_measured(tmp_path: Path) -> None:
    run = silent_run(tmp_path / "run")
    assert not any(code.startswith("MIS") for code in codes(run))
    attach(run, PROBE)
    report = replay(run).report
    (finding,) = [each for each in report.findings if each.code == "MIS001"]
    assert "differ by 0.100" in finding.summary
    words = "sampler vllm:m, learner transformers:m: The engines differ"
    assert any(words in note for note in report.notes)


def test_a_live_run_takes_a_probe_that_is_attached_meanwhile(tmp_path: Path) -> None:
    run = silent_run(tmp_path / "run")
    session = Session(run)
    session.tick()
    attach(run, PROBE)
    session.examination.attached_probes._refreshed = -10.0  # a second later
    more = (StepRecord(step, {"reward/mean": Mean(5, 10)}) for step in range(12, 30))
    with (run / STEPS).open("ab") as file:
        file.writelines(record.to_line() for record in more)
    session.tick(final=True)
    found = session.examination.report().findings
    assert "MIS001" in {finding.code for finding in found}


def test_a_runs_own_readings_win(tmp_path: Path) -> None:
    attach(silent_run(tmp_path / "run"), PROBE)
    attached = AttachedProbes(tmp_path / "run")
    own = StepRecord(3, {MEAN: Mean(1, 1000)})
    filled = attached.add_readings(own).values
    assert filled[MEAN] == Mean(1, 1000)
    assert filled["mismatch/far_rate"] == Rate(3, 400)
    assert "reward/mean" not in filled, "a probe speaks of engines alone"


def test_the_latest_probe_counts(tmp_path: Path) -> None:
    run = silent_run(tmp_path / "run")
    attach(run, PROBE)
    attach(run, PROBE.model_copy(update={"created": "2026-11-22", "verdict": "agree"}))
    attached = AttachedProbes(run)
    attached.refresh()
    assert attached.probe is not None
    assert attached.probe.verdict == "agree"


HOSTILE = {
    "not JSON": b"{",
    "a list": b"[]",
    "long": json.dumps({"verdict": "x" * 3000}).encode(),
    "no reading": json.dumps({"readings": {MEAN: {"kind": "evil"}}}).encode(),
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_damaged_probe_is_told_and_left_out(tmp_path: Path, content: bytes) -> None:
    run = silent_run(tmp_path / "run")
    folder_of(run).mkdir()
    (folder_of(run) / "bad.json").write_bytes(content)
    report = replay(run).report
    assert any("probe/bad.json is not a probe result" in note for note in report.notes)


def test_a_foreign_log_takes_a_probe_too(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "steps.csv"
    log.parent.mkdir()
    rows = "\n".join(f"{step},0.5" for step in range(12))
    log.write_text(f"step,reward/mean\n{rows}\n")
    before = replay(log.parent).report
    attach(log.parent, PROBE)
    after = replay(log.parent).report
    assert after.run.steps == before.run.steps
    assert "MIS001" in {finding.code for finding in after.findings}
    assert attach(log, PROBE) == folder_of(log.parent) / "20261121T1000000000.json"


def test_there_must_be_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="--attach"):
        attach(tmp_path / "none", PROBE)


def test_an_attached_probe_leaves_a_run_what_it_was(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(RUN, run)
    before = codes(run)
    attach(run, PROBE.model_copy(update={"readings": {}}))
    assert codes(run) == before


def test_what_the_run_reads_itself_is_not_completed_by_half(tmp_path: Path) -> None:
    """The worst response of a probe next to the run's mean would look like a sick subset."""
    worst = f"{MEAN}/worst_sequence"
    readings = {**PROBE.readings, worst: Max(0.5, "prompt-1/2")}
    attach(silent_run(tmp_path / "run"), PROBE.model_copy(update={"readings": readings}))
    attached = AttachedProbes(tmp_path / "run")
    assert attached.add_readings(StepRecord(3, {})).values[worst] == Max(0.5, "prompt-1/2")
    own = attached.add_readings(StepRecord(3, {MEAN: Mean(1, 1000)})).values
    assert worst not in own
    assert own[f"{MEAN}/probe"] == Mean(40, 400), "and next to it the mean that the engines show"


@pytest.mark.parametrize(
    ("probed", "words", "first"),
    [
        (0.0008, "the probe measured only 0.0008", "sync-sampler"),
        (0.03, "the probe measured 0.03", "recompute-old-logprobs"),
    ],
)
def test_a_run_beyond_its_engines_is_told_apart_from_engines_that_differ(
    tmp_path: Path, probed: float, words: str, first: str
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    knobs: dict[str, Setting] = {
        "old_logprobs": "sampler",
        "sampler_sync_every": 1,
        "correction": "none",
    }
    records = (
        StepRecord(step, {MEAN: Mean(Fraction(4, 100) * 100, 100)}, knobs if step == 0 else {})
        for step in range(30)
    )
    (run / STEPS).write_bytes(b"".join(record.to_line() for record in records))
    readings = {MEAN: Mean(Fraction(probed) * 100, 100)}
    attach(run, PROBE.model_copy(update={"readings": readings}))
    (finding,) = [each for each in replay(run).report.findings if each.code == "MIS001"]
    assert words in finding.summary
    assert finding.remedies[0] == first
    assert f"{MEAN}/probe" in {each.metric for each in finding.evidence}


def test_a_probe_attached_by_an_earlier_version_is_still_read(tmp_path: Path) -> None:
    run = silent_run(tmp_path / "run")
    folder = folder_of(run)
    folder.mkdir()
    shutil.copy(DATA / "attached_probe.json", folder / "20261101.json")
    report = replay(run).report
    (finding,) = [finding for finding in report.findings if finding.code == "MIS001"]
    assert "0.1" in finding.summary
    assert any("The engines differ: precision." in note for note in report.notes)
    assert report.damage_total == 0


def test_a_run_directory_that_cannot_be_examined_has_no_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    probes = AttachedProbes(silent_run(tmp_path / "run"))
    monkeypatch.setattr(Path, "is_dir", refuse)
    probes.refresh()
    assert probes.probe is None
