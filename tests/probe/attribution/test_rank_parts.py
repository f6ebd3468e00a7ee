"""A tensor-parallel rank's wrong part of projections is named without another checkpoint."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import transformers

sys.path.insert(0, str(Path(__file__).parents[3] / "probes"))

from hf.what_if import rank_parts

from grpodoctor.probe.attribution.base import Hypothesis
from grpodoctor.probe.attribution.causes.computation.what_if import WhatIf
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.cases import measured, plain
from tests.probe.attribution.in_process import InProcess
from tests.probe.attribution.one_cause import ENGINE
from tests.probe.plants.families import checkpoint, prompts

PARTS = [
    ("llama", r"\.k_proj\.", "lost 2/2", "lost-part"),
    ("mistral", r"layers\.1\.mlp\.(gate|up)_proj\.", "lost 3/4", "lost-part"),
    ("qwen3", r"\.self_attn\..*_proj\.", "first 2", "weight-layout"),
]


def with_parts(model: Path, folder: Path, only: str, change: str) -> Path:
    """A checkpoint in which ranks hold other parts of some projections."""
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model)
    for name, weight in loaded.named_parameters():
        new = rank_parts.changed(loaded, name, weight, change) if re.search(only, name) else None
        if new is not None:
            weight.data = new
    loaded.save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("family", "only", "change", "cause"), PARTS)
def test_a_rank_s_part_is_named(
    tmp_path: Path, family: str, only: str, change: str, cause: str
) -> None:
    model = checkpoint(tmp_path / family, family)
    weights = with_parts(model, tmp_path / "parts", only, change)
    options = {"model": str(model), "weights": str(weights), "faults": "", "threads": 1}
    sampler = EngineSpec.of("program", str(ENGINE), options)
    with InProcess(tmp_path / "runner", prompts(12)) as runner:
        sampling = Sampling(samples=2, max_tokens=16)
        experiments = Experiments(runner, measured(runner, sampler, plain(model), sampling))
        result = WhatIf().experiment(experiments, experiments.first(), Hypothesis(1.0))
    assert result is not None
    assert result.identity is not None
    assert result.identity.id == cause
    assert result.after is not None
    assert result.after.gap < 1e-6
