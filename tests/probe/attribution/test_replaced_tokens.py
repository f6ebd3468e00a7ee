"""Tokens that the sampler reads at some places of every prompt, and does not report."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.probe.attribution.base import ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.tokens.replaced_tokens import ReplacedTokens
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.cases import measured, plain
from tests.probe.attribution.in_process import InProcess
from tests.probe.plants.families import checkpoint, prompts

ENGINE = Path(__file__).parents[1] / "plants" / "planted_engine.py"


def found(root: Path, fault: str) -> ExperimentResult | None:
    model = checkpoint(root / "llama", "llama")
    options = {"model": str(model), "faults": fault, "threads": 1}
    sampler = EngineSpec.of("program", str(ENGINE), options)
    with InProcess(root / "runner", prompts(12)) as runner:
        sampling = Sampling(samples=2, max_tokens=16)
        experiments = Experiments(runner, measured(runner, sampler, plain(model), sampling))
        cause, first = ReplacedTokens(), experiments.first()
        assert cause.hypothesize(experiments, first)
        return cause.experiment(experiments, first, Hypothesis(1.0))


def test_a_replaced_text_is_found_token_by_token(tmp_path: Path) -> None:
    result = found(tmp_path, "date_inside:2,2")
    assert result is not None
    assert result.details == ("token 40 at place 3, token 41 at place 4",)
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.parametrize("fault", ["attention_scale:1.3"])
def test_a_fault_of_the_forward_pass_is_no_prompt(tmp_path: Path, fault: str) -> None:
    assert found(tmp_path, fault) is None
