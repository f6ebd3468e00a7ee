"""Faults that act only while tokens are generated, or only while prompts are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.probe.attribution.base import ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.computation.phases import OnePhase
from grpodoctor.probe.attribution.computed_causes import cause_of, described
from grpodoctor.probe.attribution.edits import EditFamily, in_phase
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.cases import measured, plain
from tests.probe.attribution.in_process import InProcess
from tests.probe.plants.families import checkpoint, prompts

ENGINE = Path(__file__).parents[1] / "plants" / "planted_engine.py"


def found(root: Path, family: str, fault: str) -> ExperimentResult | None:
    model = checkpoint(root / family, family)
    options = {"model": str(model), "faults": fault, "threads": 1}
    sampler = EngineSpec.of("program", str(ENGINE), options)
    with InProcess(root / "runner", prompts(12)) as runner:
        sampling = Sampling(samples=2, max_tokens=16)
        experiments = Experiments(runner, measured(runner, sampler, plain(model), sampling))
        cause, first = OnePhase(), experiments.first()
        assert cause.hypothesize(experiments, first)
        return cause.experiment(experiments, first, Hypothesis(1.0))


@pytest.mark.parametrize(
    ("family", "fault", "name", "words"),
    [
        ("qwen3", "decode_scale:1.4", "attention-scale", "only while tokens are generated"),
        ("gemma2", "prefill_soft_cap", "attention-soft-cap", "only while the prompt is read"),
    ],
)
def test_a_fault_of_one_phase_is_named(
    tmp_path: Path, family: str, fault: str, name: str, words: str
) -> None:
    result = found(tmp_path, family, fault)
    assert result is not None
    assert result.identity is not None
    assert result.identity.id == name
    assert result.details[0].endswith(words)
    assert result.after is not None
    assert result.after.gap < 1e-7


def test_a_fault_of_both_phases_is_none_of_one(tmp_path: Path) -> None:
    assert found(tmp_path, "llama", "rope_theta:500") is None


def test_edits_of_a_phase_have_the_causes_of_their_edits() -> None:
    inner = EditFamily("setting", (0.5,), "number", 1.0, "time_step_limit[0]")
    edit = in_phase("in_prompt", inner).edit(0.7)
    assert edit == ("in_prompt", '["setting", ["time_step_limit[0]", 0.7]]')
    assert cause_of(edit) == cause_of(inner.edit(0.7))
    assert described(edit) == "time_step_limit[0] 0.7, only while the prompt is read,"
