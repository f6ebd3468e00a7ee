"""Tokens that one side masks although they are real, or lacks inside of the prompts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from grpodoctor.probe.attribution.base import Hypothesis
from grpodoctor.probe.attribution.causes.tokens.lost_tokens import LostTokens
from grpodoctor.probe.attribution.causes.tokens.masked_tokens import MaskedTokens, _suspects
from grpodoctor.probe.attribution.causes.weights.cached_prefix import CachedPrefix
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.reference import with_reference
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.cases import measured, plain
from tests.probe.attribution.in_process import InProcess
from tests.probe.attribution.one_cause import ENGINE, found_by
from tests.probe.plants.families import adapter, checkpoint, prompts

SAMPLING = Sampling(samples=2, max_tokens=16)


def test_a_token_that_every_prompt_lacks_is_found(tmp_path: Path) -> None:
    result = found_by(LostTokens(), tmp_path, "llama", "separator_lost:5")
    assert result is not None
    assert result.details == ("without the token at place 6",)
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["attention_scale:1.3", "cache_hole"])
def test_no_lost_token_explains_another_fault(tmp_path: Path, fault: str) -> None:
    result = found_by(LostTokens(), tmp_path, "llama", fault)
    assert result is None or result.after is None or result.after.gap > 1e-3


def test_a_token_that_the_learner_masks_is_found(tmp_path: Path) -> None:
    """Transformers stands in for the learner, which cannot compute differently."""
    model = checkpoint(tmp_path / "llama", "llama")
    options = {"model": str(model), "faults": "token_masked:7", "threads": 1}
    faulty = EngineSpec.of("program", str(ENGINE), options)
    with InProcess(tmp_path / "runner", prompts(12)) as runner:
        experiments = Experiments(runner, measured(runner, plain(model), faulty, SAMPLING))
        variant = with_reference(experiments, experiments.first())
        assert variant.setup.swapped
        assert MaskedTokens().hypothesize(experiments, variant) is not None
        result = MaskedTokens().experiment(experiments, variant, Hypothesis(1.0))
    assert result is not None
    assert result.details == ("token 7 masked",)
    assert result.identity is not None
    assert result.identity.title == "The learner masks real tokens"
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.parametrize("other", [0.0, 0.4])
def test_a_suspect_precedes_every_gap(other: float) -> None:
    """A gap before the token's first occurrence has another cause."""
    gap_N = np.zeros(12)
    gap_N[[2, 3, 4, 5, 11]] = 0.5
    gap_N[7] = other
    nothing_B = np.zeros(2, np.int64)
    tokens = Tokens(
        sampler_N=np.full(12, -1.0), learner_N=gap_N - 1.0, lengths_B=np.array([6, 6]),
        prompt_B=np.array([0, 1]), sample_B=nothing_B, prompt_lengths_B=np.array([3, 3]),
        ended_B=nothing_B.astype(bool), cached_B=nothing_B, counted_N=np.ones(12, bool),
        ids_N=np.array([10, 5, 11, 12, 13, 14, 15, 16, 17, 18, 5, 19]),
    )  # fmt: skip
    experiments = SimpleNamespace(sampled_prompts={0: [1, 2, 3], 1: [1, 2, 4]})
    assert _suspects(experiments, tokens) == ((5,) if not other else ())


@pytest.mark.slow
def test_a_prefix_of_the_base_model_is_found(tmp_path: Path) -> None:
    model = checkpoint(tmp_path / "llama", "llama")
    adapter(tmp_path / "adapter", model, alpha=4)
    own = {"adapter": str(tmp_path / "adapter")}
    faults = f"prefix_without_adapter:{tmp_path / 'adapter'}"
    options = {"model": str(model), "faults": faults, "threads": 1, **own}
    faulty = EngineSpec.of("program", str(ENGINE), options)
    with InProcess(tmp_path / "runner", prompts(12)) as runner:
        case = measured(runner, faulty, plain(model, **own), SAMPLING)
        experiments = Experiments(runner, case)
        first = experiments.first()
        assert CachedPrefix().hypothesize(experiments, first) is not None
        result = CachedPrefix().experiment(experiments, first, Hypothesis(1.0))
    assert result is not None
    assert result.after is not None
    assert result.after.gap < 1e-8
