"""Engines with different LoRA adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.probe.attribution.causes.weights.adapter import loading_engine
from grpodoctor.probe.controls.run_controls import Weights, adapters_in_words
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.cases import plain
from tests.probe.attribution.conftest import Directories, Investigate
from tests.probes.adapter_files import write_adapter


def folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


@pytest.mark.slow
def test_an_adapter_of_an_earlier_step_is_proven(
    at: Directories, asked: Investigate, tmp_path: Path
) -> None:
    old, new = (
        str(write_adapter(at.dense, folder(tmp_path, f"step-{seed}"), seed=seed)) for seed in (3, 4)
    )
    sampler, learner = plain(at.dense, adapter=old), plain(at.dense, adapter=new)
    _, found = asked(sampler, learner)
    (named,) = found.causes
    assert (named.cause, named.confidence) == ("adapter", "proven"), found
    assert f"the sampler has the adapter {old}" in named.summary


@pytest.mark.slow
def test_an_adapter_that_the_learner_lacks_is_proven(
    at: Directories, asked: Investigate, tmp_path: Path
) -> None:
    sampler = plain(at.dense, adapter=str(write_adapter(at.dense, tmp_path)))
    _, found = asked(sampler, plain(at.dense))
    (named,) = found.causes
    assert (named.cause, named.confidence) == ("adapter", "proven"), found
    assert "the learner has no adapter" in named.summary


def test_an_adapter_that_the_sampler_lacks_is_proven(
    at: Directories, asked: Investigate, tmp_path: Path
) -> None:
    learner = plain(at.dense, adapter=str(write_adapter(at.dense, tmp_path)))
    _, found = asked(plain(at.dense), learner)
    (named,) = found.causes
    assert (named.cause, named.confidence) == ("adapter", "proven"), found


def test_a_sharded_learner_is_replaced_by_one_process_that_loads_adapters() -> None:
    """FSDP's program refuses adapters."""
    sharded = EngineSpec.of("fsdp", "model", {"fsdp": 2, "dtype": "bfloat16"})
    single = loading_engine(sharded)
    assert single is not None
    assert single.engine == "transformers"
    assert dict(single.options) == {"dtype": "bfloat16"}
    assert loading_engine(EngineSpec.of("openai_server", "http://localhost:1", {})) is None


def test_the_weights_control_compares_adapters(at: Directories, tmp_path: Path) -> None:
    one, copy, other = (
        str(write_adapter(at.dense, folder(tmp_path, name), seed=seed))
        for name, seed in (("one", 3), ("copy", 3), ("other", 4))
    )
    weights, sampler = Weights(), plain(at.dense, adapter=one)
    assert adapters_in_words(sampler, plain(at.dense, adapter=copy)) == ""
    assert weights.control(sampler, plain(at.dense, adapter=copy)).passed
    for learner in (plain(at.dense, adapter=other), plain(at.dense)):
        control = weights.control(sampler, learner)
        assert control.passed is False
        assert "of the base model are equal, but the sampler has the adapter" in control.summary
        assert weights.differing(sampler, learner) is None
