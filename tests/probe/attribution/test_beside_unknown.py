"""A setting of sampling next to weights that no checkpoint shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpodoctor.probe.attribution.base import ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.sampling import beside_unknown
from grpodoctor.probe.attribution.causes.sampling.beside_unknown import BesideUnknown
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.investigate import investigate
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.cases import measured, plain
from tests.probe.attribution.in_process import InProcess
from tests.probe.attribution.one_cause import ENGINE
from tests.probe.plants.families import checkpoint, prompts

CHANGED = 0.03
"""Noise of the sampler's weights, relative to their size."""
SAMPLING = Sampling(samples=3, max_tokens=40)


def _sampler(root: Path, family: str, fault: str, changed: float = CHANGED) -> EngineSpec:
    model = checkpoint(root / family, family)
    options = {"model": str(model), "faults": fault, "threads": 1}
    if changed:
        options["weights"] = str(checkpoint(root / f"{family}-old", family, changed=changed))
    return EngineSpec.of("program", str(ENGINE), options)


def found_in(
    root: Path, family: str, fault: str, *, changed: float = CHANGED
) -> ExperimentResult | None:
    """What the cause alone finds."""
    sampler = _sampler(root, family, fault, changed)
    with InProcess(root / "runner", prompts(24)) as runner:
        case = measured(runner, sampler, plain(root / family), SAMPLING)
        experiments = Experiments(runner, case)
        first = experiments.first()
        assert BesideUnknown().hypothesize(experiments, first)
        return BesideUnknown().experiment(experiments, first, Hypothesis(1.0))


@pytest.fixture
def _without_own_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside_unknown, "own_scores", lambda *_: None)


FAULTS = {
    "llama repetition:1.15": "repetition-penalty",
    "qwen2 presence:0.6": "presence-penalty",
    "mistral hidden_temperature:0.85": "temperature",
    "llama hidden_top_p:0.85": "truncation",
    "gpt_neox min_tokens:8": "min-tokens",
    "qwen3 bias:9,2": "logit-bias",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_what_generation_adds_is_named(tmp_path: Path, fault: str) -> None:
    found = found_in(tmp_path, *fault.split())
    assert found is not None
    assert found.identity is not None
    assert (found.identity.id, found.confidence) == (FAULTS[fault], "likely")
    assert found.explained is not None
    assert 0.05 < found.explained < 0.95


@pytest.mark.slow
@pytest.mark.usefixtures("_without_own_scores")
@pytest.mark.parametrize("fault", ["llama repetition:1.15", "qwen2 presence:0.6", "qwen3 bias:9,2"])
def test_an_effect_in_the_gap_is_named(tmp_path: Path, fault: str) -> None:
    """For a sampler that cannot score its tokens."""
    found = found_in(tmp_path, *fault.split())
    assert found is not None
    assert found.identity is not None
    assert (found.identity.id, found.confidence) == (FAULTS[fault], "likely")
    assert found.figures["size"] == pytest.approx(1.0, abs=0.2)


UNKNOWN = {"llama": 0.03, "qwen2": 0.03, "phi": 0.04, "gemma2": 0.05, "gpt_neox": 0.06}


@pytest.mark.slow
@pytest.mark.parametrize("family", UNKNOWN)
def test_other_weights_alone_have_no_setting(tmp_path: Path, family: str) -> None:
    assert found_in(tmp_path, family, "", changed=UNKNOWN[family]) is None


@pytest.mark.slow
@pytest.mark.usefixtures("_without_own_scores")
@pytest.mark.parametrize("family", UNKNOWN)
def test_other_weights_alone_have_no_effect_of_a_setting(tmp_path: Path, family: str) -> None:
    assert found_in(tmp_path, family, "", changed=UNKNOWN[family]) is None


@pytest.mark.slow
@pytest.mark.usefixtures("_without_own_scores")
@pytest.mark.parametrize(
    "fault",
    [
        *("qwen3 system_prompt:3", "llama system_prompt:4", "mistral system_prompt:2"),
        *("phi rope_base_times:0.5", "llama spans_exchanged:1,3"),
    ],
)
def test_another_fault_is_no_setting(tmp_path: Path, fault: str) -> None:
    """A prompt that one side repeats looks like a negative penalty, but not in the whole gap."""
    assert found_in(tmp_path, *fault.split(), changed=0.0) is None


@pytest.mark.slow
def test_the_search_reports_it_with_the_unknown_rest(tmp_path: Path) -> None:
    sampler = _sampler(tmp_path, "llama", "repetition:1.15")
    with InProcess(tmp_path / "runner", prompts(24)) as runner:
        found = investigate(runner, measured(runner, sampler, plain(tmp_path / "llama"), SAMPLING))
    causes = {each.cause: each for each in found.causes}
    assert causes["repetition-penalty"].confidence == "likely"
    assert not any(each.confidence == "proven" for each in found.causes)
    assert found.left is not None
    assert 0.3 < found.left < 0.8
