"""Experiments: the rounding without a search, causes within it, and bounded memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.investigate import investigate, measured_rounding
from grpodoctor.probe.attribution.variant import ColumnMap, Setup, Variant
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.scripted import Scripted, case_of, noisy

SAMPLER = EngineSpec.of("transformers", "model", {"attention": "eager"})
LEARNER = EngineSpec.of("transformers", "model", {"attention": "sdpa"})


def by_kernel(engine: EngineSpec, logits_NV: Any, generator: Any) -> Any:
    """In bfloat16 each kernel has errors of its own, and none in float32."""
    if engine.options.get("dtype", "bfloat16") != "bfloat16":
        return logits_NV
    kernel = len(str(engine.options["attention"]))
    return noisy(logits_NV, 0.05, np.random.default_rng((generator.integers(1 << 30), kernel)))


def healthy(folder: Path) -> Scripted:
    return Scripted(folder, by_kernel, dtypes={"transformers": "bfloat16"})


def test_a_kernel_within_the_noise_is_named_but_the_engines_agree(tmp_path: Path) -> None:
    runner = healthy(tmp_path)
    found = investigate(runner, case_of(runner, SAMPLER, LEARNER))
    assert found.noise is not None
    assert found.gap < 4 * found.noise
    assert [each.cause for each in found.causes] == ["attention-kernel"]
    assert found.verdict.startswith("The engines agree within the precision of bfloat16")
    assert "The difference comes from: the two sides compute attention" in found.verdict


def test_the_rounding_is_measured_without_a_search(tmp_path: Path) -> None:
    runner = healthy(tmp_path)
    found = measured_rounding(runner, case_of(runner, SAMPLER, LEARNER))
    assert found.causes == ()
    assert found.noise == pytest.approx(found.gap / 2, rel=0.3)
    assert not found.noise_is_usual
    assert len(runner.loaded) == 3, "the learner's columns, and its two precisions"


def test_the_usual_rounding_is_named_as_such(tmp_path: Path) -> None:
    runner = healthy(tmp_path)
    case = case_of(runner, SAMPLER, LEARNER)
    runner.refuses = lambda _: True
    found = measured_rounding(runner, case)
    assert found.noise_is_usual
    assert found.noise == 5e-4


@pytest.mark.slow
def test_scores_are_kept_on_disk_and_few_in_memory(tmp_path: Path) -> None:
    runner = healthy(tmp_path)
    case = case_of(runner, SAMPLER, LEARNER)
    experiments = Experiments(runner, case)
    experiments.first()
    processings = [Processing(temperature=1 + at / 100) for at in range(40)]
    first = experiments.score_all(LEARNER, processings, Setup(LEARNER, Processing()))
    loads = len(runner.loaded)
    again = experiments.score_all(LEARNER, processings, Setup(LEARNER, Processing()))
    assert len(runner.loaded) == loads, "nothing is scored twice"
    assert all(np.array_equal(*each) for each in zip(first, again, strict=True))
    assert experiments._read_scores.cache_info().currsize <= 8


def test_values_that_depend_on_other_rows_are_never_scored_in_part(tmp_path: Path) -> None:
    runner = healthy(tmp_path)
    experiments = Experiments(runner, case_of(runner, SAMPLER, LEARNER))
    variant = experiments.first()
    folder, some = experiments.one_of_each_prompt(variant)
    assert folder is not None
    assert 0 < some.size < variant.tokens.sampler_N.size
    rows = ColumnMap(lambda _, column_N: column_N, needs_all=True)
    whole = Variant(replace(variant.setup, learner_map=rows), variant.tokens)
    for folder, every in (experiments.one_of_each_prompt(whole), experiments.sub_sample(whole)):
        assert folder is None
        assert np.array_equal(every, np.arange(variant.tokens.sampler_N.size))
