"""Other checkpoints from which the sampler's weights may come, and how their tensors are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from grpodoctor.probe.attribution.base import ExperimentResult
from grpodoctor.probe.attribution.causes.computation.what_if import WhatIf
from grpodoctor.probe.attribution.causes.weights.stale_weights import StaleWeights
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.refit_tensors import fitted_cause
from grpodoctor.probe.attribution.search.selection import TriedCause
from grpodoctor.probe.attribution.tensors import other_checkpoints, updated_checkpoints
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.scripted import Scripted, case_of
from tests.probe.attribution.test_fitted_again import LEARNER, SAMPLER, Edited, as_it_is

NAMES = ("model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight")


def written(folder: Path, *values: float) -> EngineSpec:
    """An engine with a checkpoint of two tensors."""
    folder.mkdir()
    tensors = {name: torch.full((2, 2), value) for name, value in zip(NAMES, values, strict=True)}
    save_file(tensors, folder / "model.safetensors")
    return EngineSpec.of("transformers", str(folder), {})


def experiments_of(
    folder: Path, sampler: EngineSpec, learner: EngineSpec, differing: tuple[str, ...]
) -> Experiments:
    """Experiments of a case with these checkpoints, measured with engines that need none."""
    runner = Scripted(folder, as_it_is)
    case = case_of(runner, SAMPLER, LEARNER, differing=differing)
    return Experiments(runner, replace(case, sampler=sampler, learner=learner))


def test_no_update_lies_between_equal_files(tmp_path: Path) -> None:
    learner, equal = written(tmp_path / "now", 1.0, 2.0), written(tmp_path / "copy", 1.0, 2.0)
    same = experiments_of(tmp_path / "same", equal, learner, ())
    assert other_checkpoints(same) == [tmp_path / "copy"]
    assert updated_checkpoints(same) == []
    older = written(tmp_path / "old", 1.0, 2.5)
    stale = experiments_of(tmp_path / "stale", older, learner, (NAMES[1],))
    assert updated_checkpoints(stale) == [tmp_path / "old"]


def test_stale_weights_state_where_the_files_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, older = written(tmp_path / "now", 1.0, 2.0), written(tmp_path / "old", 1.0, 2.5)
    experiments = experiments_of(tmp_path / "runs", older, learner, (NAMES[1],))
    monkeypatch.setattr(experiments, "exceeds_rounding", lambda _: True)
    found = StaleWeights().remainder(experiments, experiments.first())
    assert found is not None
    assert found.identity is not None
    assert found.identity.title.endswith("than the learner in layer 1")
    assert found.details == ("layer 1",)


def test_the_sentence_states_the_gap_after_numbers_were_fitted_again(tmp_path: Path) -> None:
    runner = Edited(tmp_path, as_it_is, sizes=(0.4, 0.0))
    experiments = Experiments(runner, case_of(runner, SAMPLER, LEARNER))
    first = experiments.first()
    near = experiments.vary(first, edits=(("attention_scale", "1.96"),))
    tried = TriedCause(WhatIf(), ExperimentResult(summary="k3 falls", after=near), 0.9, 1.0)
    outcome = fitted_cause(experiments, tried, first, near, first.setup).outcome
    assert outcome.after is not None
    assert outcome.after.gap < 0.1 * near.gap
    left = f"{outcome.after.gap:.2g}"
    assert outcome.summary == f"k3 falls, and to {left} after its numbers were fitted again"
