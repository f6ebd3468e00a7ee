"""New runs join the published ones; runs of another configuration are refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.runs.records import STEPS, StepRecord
from grpodoctor.trials.evidence import publishing
from grpodoctor.trials.evidence.published_runs import read_runs, write_runs
from grpodoctor.trials.registry import trial_of
from grpodoctor.trials.results import Evaluation, RunResult
from grpodoctor.trials.running import spec_of
from grpodoctor.trials.trial import CONTROL, DISEASE
from grpodoctor.vocabulary.values import Mean


def trained(name: str, arm: str, seed: int, accuracy: float, steps: int | None = None) -> RunResult:
    spec = spec_of(trial_of(name), arm, seed, steps)
    return RunResult(spec, "done", evaluations=(Evaluation(spec.steps, accuracy, 9),), levels={})


def stored(root: Path, *results: RunResult) -> Path:
    """Run directories as training leaves them."""
    for each in results:
        folder = root / each.spec.folder
        folder.mkdir(parents=True)
        (folder / "run.json").write_text('{"schema_version": 1, "framework": "grpodoctor"}')
        (folder / STEPS).write_bytes(StepRecord(1, {"reward/mean": Mean(1, 2)}).to_line())
        each.write(folder)
    return root


def outcomes(path: Path) -> dict[tuple[str, str, int], float | None]:
    return {
        (each.spec.trial, each.spec.arm, each.spec.seed): each.outcome() for each in read_runs(path)
    }


def test_new_seeds_and_trials_join_the_published_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    first = [trained("truncation", arm, seed, 0.5) for seed in (1, 2) for arm in (CONTROL, DISEASE)]
    other = trained("reward-hacked", DISEASE, 1, 0.6)
    write_runs([*first, other], path)
    new = [trained("truncation", DISEASE, 2, 0.25), trained("truncation", DISEASE, 5, 0.125),
           trained("reward-hacked", CONTROL, 1, 0.75)]  # fmt: skip
    (line,) = publishing.publish(stored(tmp_path / "runs", *new), path)
    assert line == "published: 9 runs (4 new, 1 repeated, 4 as before); 0 removed"
    assert outcomes(path) == {
        ("reward-hacked", CONTROL, 1): 0.75,
        ("reward-hacked", "recheck-reward", 1): 0.75,
        ("reward-hacked", DISEASE, 1): 0.6,
        ("truncation", CONTROL, 1): 0.5,
        ("truncation", CONTROL, 2): 0.5,
        ("truncation", DISEASE, 1): 0.5,
        ("truncation", DISEASE, 2): 0.25,
        ("truncation", DISEASE, 5): 0.125,
        ("truncation", "longer-limit", 2): 0.5,  # the control of this seed
    }
    assert [each.spec.seed for each in read_runs(path) if each.spec.arm == DISEASE] == [1, 1, 2, 5]


def test_a_run_without_a_trial_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    root = stored(tmp_path / "runs", trained("truncation", DISEASE, 1, 0.5, steps=7))
    lines = list(publishing.publish(root, path))
    assert lines[0].startswith("published: 0 runs")
    assert lines[1] == (
        "not published: 1 run with settings of no current trial "
        "(first: truncation, disease, seed 1, 7 steps)"
    )


def test_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    outdated = trained("truncation", CONTROL, 1, 0.5)
    outdated = replace(outdated, spec=replace(outdated.spec, fingerprint="of-former-defaults"))
    unaffected = replace(outdated, spec=replace(outdated.spec, trial="length-bias"))
    write_runs([outdated, unaffected], path)
    before = path.read_bytes()
    root = stored(tmp_path / "runs", trained("truncation", DISEASE, 2, 0.25))
    with pytest.raises(
        RunError, match=r"1 published run of .*\(truncation, control, seed 1\); .*--re"
    ):
        list(publishing.publish(root, path))
    assert path.read_bytes() == before
    (line,) = publishing.publish(root, path, replaces=True)
    assert line.endswith("1 removed")
    assert {name for name, _, _ in outcomes(path)} == {"truncation", "length-bias"}
    assert ("truncation", CONTROL, 1) not in outcomes(path)


def test_a_repeated_seed_replaces_the_run_of_another_configuration(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    run = trained("truncation", DISEASE, 1, 0.5)
    write_runs([replace(run, spec=replace(run.spec, fingerprint="of-former-defaults"))], path)
    root = stored(tmp_path / "runs", trained("truncation", DISEASE, 1, 0.25))
    assert list(publishing.publish(root, path))
    assert outcomes(path) == {("truncation", DISEASE, 1): 0.25}


@pytest.mark.parametrize("arguments", [(), ("a", "b"), ("a", "--force"), ("no-such-directory",)])
def test_bad_input_is_one_line(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match=r"^(usage|error): [^\n]+$"):
        publishing.main(arguments)


def test_a_published_control_serves_a_new_trial_with_the_same_settings(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    write_runs([trained("truncation", CONTROL, seed, 0.5) for seed in (1, 2)], path)
    new = trained("learning-rate-too-high", DISEASE, 2, 0.25)
    (line,) = publishing.publish(stored(tmp_path / "runs", new), path)
    assert line == "published: 4 runs (2 new, 0 repeated, 2 as before); 0 removed"
    assert outcomes(path) == {
        ("learning-rate-too-high", CONTROL, 2): 0.5,
        ("learning-rate-too-high", DISEASE, 2): 0.25,
        ("truncation", CONTROL, 1): 0.5,
        ("truncation", CONTROL, 2): 0.5,
    }


def started(kind: str, result: RunResult) -> RunResult:
    return replace(result, warm_start=kind)


def test_runs_of_a_seed_with_another_warm_start_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    old = [started("old", trained("truncation", CONTROL, seed, 0.5)) for seed in (1, 2)]
    write_runs(old, path)
    before = path.read_bytes()
    root = stored(tmp_path / "runs", started("new", trained("truncation", DISEASE, 2, 0.25)))
    with pytest.raises(RunError, match=r"another warm start .*\(truncation, control, seed 2\)"):
        list(publishing.publish(root, path))
    assert path.read_bytes() == before
    (line,) = publishing.publish(root, path, replaces=True)
    assert line.endswith("1 removed")
    assert {(each.spec.seed, each.warm_start) for each in read_runs(path)} == {
        (1, "old"),
        (2, "new"),
    }


def test_a_control_with_another_warm_start_is_not_shared(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    write_runs([started("old", trained("truncation", CONTROL, 2, 0.5))], path)
    new = started("new", trained("learning-rate-too-high", DISEASE, 2, 0.25))
    assert list(publishing.publish(stored(tmp_path / "runs", new), path))
    assert ("learning-rate-too-high", CONTROL, 2) not in outcomes(path)


def test_arms_of_a_seed_must_begin_alike(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    arms = [
        started("old", trained("truncation", CONTROL, 1, 0.5)),
        started("new", trained("truncation", DISEASE, 1, 0.25)),
    ]
    with pytest.raises(RunError, match="arms of one seed have different warm starts"):
        list(publishing.publish(stored(tmp_path / "runs", *arms), path))
    assert not path.exists()
