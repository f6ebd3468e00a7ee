"""A random part of an update, of which only the share is known."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[3] / "probes"))

from hf.what_if.partial_updates import partial_update

from grpodoctor.probe.attribution.base import ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.weights.weight_update import WeightUpdate
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.random_part import resembles
from grpodoctor.probe.contract import Sampling
from tests.probe.attribution.cases import measured, plain
from tests.probe.attribution.in_process import InProcess
from tests.probe.plants.families import checkpoint, prompts

NUMBERS = np.random.default_rng(3)
SCALE = NUMBERS.exponential(0.1, 2000)
EVERY = np.ones(2000, np.bool_)


def drawn(scale: object = SCALE) -> object:
    return NUMBERS.normal(0, 1, 2000) * scale


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (drawn(), True),
        (drawn() * 1.5, False),
        (drawn() * 0.6, False),
        (NUMBERS.permutation(drawn()), False),
        (np.zeros(2000), False),
    ],
    ids=["alike", "larger", "smaller", "other tokens", "no rest"],
)
def test_the_rest_has_the_size_and_the_tokens_of_other_parts(
    sampler: object, expected: bool
) -> None:
    parts = [drawn() for _ in range(8)]
    assert resembles(sampler, np.zeros(2000), parts, EVERY) is expected


def changed(now: Path, older: Path, folder: Path, kind: str) -> Path:
    """A checkpoint with a part of the update, or with all of a share of it and noise."""
    model, old = (transformers.AutoModelForCausalLM.from_pretrained(each) for each in (now, older))
    own, before = (dict(each.named_parameters()) for each in (model, old))
    drawn_weights = partial_update(own, before, "random:77", 0.4)
    torch.manual_seed(5)
    with torch.no_grad():
        for name, weight in own.items():
            line = before[name] + 0.4 * (weight - before[name])
            noise = 0.1 * line.std() * torch.randn_like(line) if line.ndim > 1 else 0.0
            weight.copy_(drawn_weights[name] if kind == "random" else line + noise)
    model.save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("random", "partial-sync"), ("noise", None)])
def test_a_random_part_is_likely_and_noise_is_not(
    tmp_path: Path, kind: str, name: str | None
) -> None:
    now = checkpoint(tmp_path / "llama", "llama")
    older = checkpoint(tmp_path / "older", "llama", changed=0.15)
    sampler = plain(now).with_options(weights=str(changed(now, older, tmp_path / "part", kind)))
    with InProcess(tmp_path / "runner", prompts(12)) as runner:
        case = measured(
            runner, sampler, plain(now), Sampling(samples=2, max_tokens=24), stale=older
        )
        experiments = Experiments(runner, case)
        result: ExperimentResult | None = WeightUpdate().experiment(
            experiments, experiments.first(), Hypothesis(1.0)
        )
    assert result is not None
    assert (result.identity.id if result.identity else None) == name
    assert name is None or result.confidence == "likely"
