"""Old weights in the sampler, shown by what a run left next to the learner."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.probe.attribution.base import ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.weights.earlier_adapter import EarlierAdapter
from grpodoctor.probe.attribution.causes.weights.earlier_weights import EarlierWeights
from grpodoctor.probe.attribution.causes.weights.unexplained import Unexplained
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.investigate import investigate
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.cases import measured, plain
from tests.probe.attribution.in_process import InProcess
from tests.probe.plants.families import adapter, prompts
from tests.probe.plants.trained import STEPS, trained

ENGINE = Path(__file__).parents[1] / "plants" / "planted_engine.py"
CAUSE = EarlierWeights()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs"), "llama", rate=5e-4)


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[InProcess]:
    with InProcess(tmp_path / "runner", prompts(12)) as runner:
        yield runner


def learner_of(run: Path, folder: Path, *files: str) -> Path:
    """A copy of the last checkpoint without its neighbors, with some of its files."""
    source, target = run / f"checkpoint-{STEPS}", folder / "model"
    target.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", *files):
        shutil.copy(source / name, target / name)
    return target


def experiments_of(
    runner: InProcess, learner: Path, *, age: int = 0, run: Path | None = None, faults: str = ""
) -> Experiments:
    """A pair whose sampler has weights of some updates ago, or another fault."""
    options: dict[str, Any] = {"model": str(learner), "faults": faults, "threads": 1}
    if run is not None:
        held = runner.store.folder / "held"
        held.mkdir(exist_ok=True)
        shutil.copy(run / f"checkpoint-{STEPS - age}" / "model.safetensors", held)
        options["weights"] = str(held)
    sampler = EngineSpec.of("program", str(ENGINE), options)
    sampling = Sampling(samples=2, max_tokens=24)
    return Experiments(runner, measured(runner, sampler, plain(learner), sampling))


def found(experiments: Experiments) -> ExperimentResult | None:
    first = experiments.first()
    assert CAUSE.hypothesize(experiments, first)
    return CAUSE.experiment(experiments, first, Hypothesis(1.0))


def test_one_update_is_undone(run: Path, runner: InProcess, tmp_path: Path) -> None:
    learner = learner_of(run, tmp_path, "optimizer.pt")
    experiments = experiments_of(runner, learner, age=1, run=run)
    result = found(experiments)
    assert result is not None
    assert result.confidence == "proven"
    assert result.after is not None
    assert result.after.gap < 1e-4 * experiments.first().gap
    assert result.identity is not None
    assert result.identity.title == "The sampler's weights lack the learner's last update"
    assert "without its last update (optimizer.pt)" in result.summary
    whole = investigate(runner, experiments.case)
    assert [(each.cause, each.confidence) for each in whole.causes] == [
        ("earlier-weights", "proven")
    ]
    compared = "compared with the weights before the last update (optimizer.pt)"
    assert f"{compared}, found next to the learner" in whole.notes


def test_several_updates_are_likely(run: Path, runner: InProcess, tmp_path: Path) -> None:
    learner = learner_of(run, tmp_path, "optimizer.pt")
    result = found(experiments_of(runner, learner, age=3, run=run))
    assert result is not None
    assert result.confidence == "likely"
    assert result.identity is None
    assert 1.5 < result.figures["multiple"] < 4.5


def test_a_found_checkpoint_is_used_as_if_it_was_given(
    run: Path, runner: InProcess, tmp_path: Path
) -> None:
    learner = learner_of(run, tmp_path / "checkpoint-20")
    shutil.copytree(run / "checkpoint-4", tmp_path / "checkpoint-9" / "model")
    experiments = experiments_of(runner, learner, age=20, run=run)
    result = found(experiments)
    assert result is not None
    assert result.confidence == "proven"
    assert result.identity is not None
    assert result.identity.id == "stale-weights"
    assert "found next to it" in result.summary


def test_weights_between_two_checkpoints_are_likely(
    run: Path, runner: InProcess, tmp_path: Path
) -> None:
    learner = learner_of(run, tmp_path / "checkpoint-24")
    shutil.copytree(run / "checkpoint-4", tmp_path / "checkpoint-4" / "model")
    result = found(experiments_of(runner, learner, age=10, run=run))
    assert result is not None
    assert result.confidence == "likely"
    assert 0.2 < result.figures["multiple"] < 0.9
    assert "of the way back to model, found next to it" in result.summary


@pytest.mark.parametrize(
    "faults", ["attention_scale:1.3", "rope_theta:500", "hidden_temperature:1.25", "norm_eps:0.1"]
)
def test_other_faults_cost_few_passes(
    run: Path, runner: InProcess, tmp_path: Path, faults: str
) -> None:
    learner = learner_of(run, tmp_path / "checkpoint-24", "optimizer.pt")
    shutil.copytree(run / "checkpoint-4", tmp_path / "checkpoint-4" / "model")
    experiments = experiments_of(runner, learner, faults=faults)
    first = experiments.first()
    before = len(list(runner.store.folder.glob("scored/*/done.json")))
    assert CAUSE.experiment(experiments, first, Hypothesis(1.0)) is None
    assert len(list(runner.store.folder.glob("scored/*/done.json"))) - before <= 10


def test_equal_checksums_need_no_comparison(run: Path, runner: InProcess, tmp_path: Path) -> None:
    learner = learner_of(run, tmp_path, "optimizer.pt")
    experiments = experiments_of(runner, learner, faults="attention_scale:1.3")
    first = experiments.first()
    assert CAUSE.hypothesize(experiments, first)
    same = Experiments(runner, replace(experiments.case, differing=()))
    assert CAUSE.hypothesize(same, first) is None
    quantized = replace(experiments.case, learner=plain(learner, quantise="int8"))
    assert CAUSE.hypothesize(Experiments(runner, quantized), first) is None


def test_a_damaged_state_is_one_note(run: Path, runner: InProcess, tmp_path: Path) -> None:
    learner = learner_of(run, tmp_path)
    (learner / "optimizer.pt").write_bytes(b"PK\x03\x04 damaged")
    experiments = experiments_of(runner, learner, age=1, run=run)
    assert found(experiments) is None
    (note,) = experiments.found.notes
    assert note.startswith("optimizer.pt next to the learner was not used: ")
    assert "\n" not in note
    assert len(note) < 300


def test_without_a_trace_the_files_to_keep_are_named(
    run: Path, runner: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiments = experiments_of(runner, learner_of(run, tmp_path), age=1, run=run)
    first = experiments.first()
    assert CAUSE.hypothesize(experiments, first) is None
    monkeypatch.setattr(experiments, "exceeds_rounding", lambda _: True)
    unknown = Unexplained().remainder(experiments, first)
    assert unknown is not None
    assert unknown.identity is not None
    assert unknown.identity.id == "unknown"
    assert unknown.identity.remedies[0].startswith("Sync the sampler's weights once")
    assert any("optimizer.pt" in remedy for remedy in unknown.identity.remedies)


def test_an_earlier_adapter(run: Path, runner: InProcess, tmp_path: Path) -> None:
    learner = learner_of(run, tmp_path)
    now, before, other = (tmp_path / f"checkpoint-{n}" for n in (30, 20, 10))
    for folder, alpha in ((now, 8.0), (before, 4.0), (other, 1.0)):
        adapter(folder, learner, alpha=alpha)
    options = {"model": str(learner), "adapter": str(before), "faults": "", "threads": 1}
    sampler = EngineSpec.of("program", str(ENGINE), options)
    pair = sampler, plain(learner, adapter=str(now)), Sampling(samples=2, max_tokens=24)
    experiments = Experiments(runner, measured(runner, *pair))
    first = experiments.first()
    cause = EarlierAdapter()
    assert cause.hypothesize(experiments, first)
    result = cause.experiment(experiments, first, Hypothesis(1.0))
    assert result is not None
    assert result.after is not None
    assert result.after.gap < 1e-3 * first.gap
    assert "with the adapter of checkpoint-20, found next to the learner's" in result.summary
    without = measured(runner, sampler, plain(learner), pair[2])
    assert cause.hypothesize(experiments, Experiments(runner, without).first()) is None
