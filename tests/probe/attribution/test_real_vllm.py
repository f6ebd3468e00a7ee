"""Settings of a real vLLM that act while it draws; `test_sampled_without.py` has stand-ins of them.

Each test starts vLLM two or three times, at ten seconds or more each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpodoctor.probe.attribution.case import Attribution
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.cases import plain
from tests.probe.attribution.conftest import Directories, Investigate
from tests.probes.adapter_files import write_adapter
from tests.probes.programs import VLLM_ENVIRONMENT, vllm_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

NGRAM = (
    '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1,'
    ' "prompt_lookup_max": 3}'
)
CACHE = {"enable_prefix_caching": True, "block_size": 32}
"""The smallest block of vLLM on a CPU: longer prompts are cached in part."""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ({"HF_HUB_OFFLINE": "1"} | VLLM_ENVIRONMENT).items():
        monkeypatch.setenv(name, value)


def vllm(model: Path, **options: Any) -> EngineSpec:
    """Real vLLM in float32 on a small context."""
    given = {"dtype": "float32", "max_model_len": 512, "max_num_seqs": 64}
    return EngineSpec.of("vllm", str(model), {**given, **options, "python": str(vllm_python())})


def causes(found: Attribution) -> list[tuple[str, str]]:
    """The named causes, with their confidence."""
    return [(each.cause, each.confidence) for each in found.causes]


def test_speculative_decoding_that_draws_from_another_distribution(
    at: Directories, asked: Investigate
) -> None:
    """Drafts from the prompt, at temperature 1: vLLM 0.32 on a CPU accepts unlikely ones."""
    sampler = vllm(at.dense, speculative_config=NGRAM, enable_prefix_caching=False)
    _, found = asked(sampler, plain(at.dense))
    assert causes(found) == [("speculative-decoding", "proven")], found
    assert "drawn without speculative_config follow the learner" in found.causes[0].summary


def test_structured_output(at: Directories, asked: Investigate) -> None:
    """A grammar that most of the model's tokens violate."""
    sampler = vllm(at.dense, structured_outputs='{"regex": "[0-9]{4,40}"}')
    _, found = asked(sampler, plain(at.dense))
    assert causes(found) == [("structured-output", "proven")], found


def test_a_stale_prefix_cache(at: Directories, asked: Investigate) -> None:
    """Prompts that were cached before a sync, and are not cleared after it."""
    old = at.variant("old", at.dense, perturb=0.08)
    sampler = vllm(old, sync=str(at.dense), sync_reset_cache=False, **CACHE)
    case, found = asked(sampler, plain(at.dense))
    assert case.comparison.responses
    assert causes(found) == [("prefix-caching", "proven")], found


def test_a_sound_prefix_cache_has_no_cause(at: Directories, asked: Investigate) -> None:
    _, found = asked(vllm(at.dense, **CACHE), plain(at.dense))
    assert causes(found) == [], found


@pytest.mark.parametrize("use", ["unmerged", "merged"])
def test_the_same_adapter_on_both_sides_agrees(
    use: str, at: Directories, asked: Investigate, tmp_path: Path
) -> None:
    adapter = str(write_adapter(at.dense, tmp_path))
    learner = plain(at.dense, adapter=adapter, adapter_use=use)
    case, found = asked(vllm(at.dense, adapter=adapter), learner)
    assert causes(found) == [], found
    assert case.comparison.value("mismatch/prob_diff_max/worst_sequence") < 1e-4


def test_an_adapter_that_vllm_lacks(at: Directories, asked: Investigate, tmp_path: Path) -> None:
    adapter = str(write_adapter(at.dense, tmp_path))
    case, found = asked(vllm(at.dense), plain(at.dense, adapter=adapter))
    assert case.comparison.value("mismatch/kl_k3") > 1e-3
    assert causes(found) == [("adapter", "proven")], found


def test_an_adapter_that_the_learner_lacks(
    at: Directories, asked: Investigate, tmp_path: Path
) -> None:
    adapter = str(write_adapter(at.dense, tmp_path))
    _, found = asked(vllm(at.dense, adapter=adapter), plain(at.dense))
    assert causes(found) == [("adapter", "proven")], found


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs"])
def test_penalties_of_the_sampling_settings(mode: str, at: Directories, asked: Investigate) -> None:
    """They are in the values that vLLM reports, or only in the tokens that it draws."""
    sampling = {"repetition_penalty": 1.3}
    _, found = asked(vllm(at.dense, logprobs_mode=mode), plain(at.dense), sampling=sampling)
    assert causes(found) == [("repetition-penalty", "proven")], found
