"""A truncation next to a change of the model is found without a pass for each truncation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from grpodoctor.probe.attribution.edit_effects import EffectMemory
from grpodoctor.probe.attribution.search.pair_search import PairSearch
from grpodoctor.probe.attribution.search.truncation_effects import truncation_effects
from grpodoctor.probe.attribution.tokens import of_columns
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.contract import Processing
from tests.probe.attribution.in_process import PROBES

TOKENS, VOCABULARY, LIKELIEST = 500, 40, 20
GENERATOR = np.random.default_rng(5)
LOGITS = 2.0 * GENERATOR.normal(size=(TOKENS, VOCABULARY))
EDITS = [(f"edit{n}", "true") for n in range(30)]
EFFECTS = {edit: 0.2 * GENERATOR.normal(size=LOGITS.shape) for edit in EDITS}


@pytest.fixture(autouse=True)
def probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROBES))


def logprobs(edits: Any, processing: Processing) -> torch.Tensor:
    from hf.logits import log_probabilities

    logits = LOGITS + sum((EFFECTS[edit] for edit in edits), np.zeros_like(LOGITS))
    return log_probabilities(torch.tensor(logits, dtype=torch.float32), processing)


class Learner:
    """A learner that computes logits, and the tokens that a sampler drew."""

    def __init__(self, edits: Any, processing: Processing) -> None:
        torch.manual_seed(3)
        self.effects, self.passes, self.has_passes = EffectMemory(), 0, True
        self.pair_searches: set[str] = set()
        drawn = logprobs(edits, processing)
        self.ids = torch.multinomial(drawn.exp(), 1)
        self.sampler_N = self.of(drawn)

    def of(self, logprobs_NV: torch.Tensor) -> np.ndarray:
        return logprobs_NV.gather(1, self.ids)[:, 0].double().numpy()

    def score_edits(self, setup: Setup, edits: Any, _folder: Any = None) -> list[np.ndarray]:
        self.passes += len(edits)
        return [self.of(logprobs(each, setup.processing)) for each in edits]

    def sub_sample(self, _variant: Any) -> tuple[Path, np.ndarray]:
        return Path("sample"), np.arange(TOKENS)

    def is_loud(self, gap: float) -> bool:
        return gap > 1e-9

    def vary(self, variant: Variant, **changes: Any) -> Variant:
        setup = replace(variant.setup, **changes)
        (learner_N,) = self.score_edits(setup, [setup.edits])
        return Variant(setup, variant.tokens.with_learner(learner_N))


def searched(edits: Any, processing: Processing) -> tuple[Any, Learner]:
    learner, engine = Learner(edits, processing), SimpleNamespace(key="learner")
    setup = Setup(engine, Processing())  # type: ignore[arg-type]
    plain = logprobs((), Processing())
    likeliest = plain.topk(LIKELIEST, dim=-1).values.double().numpy()
    tokens = of_columns(learner.of(plain), learner.sampler_N)
    tokens = replace(tokens, likeliest_logprob_NM=likeliest)
    for edit in EDITS:
        moved_N = learner.of(logprobs([edit], Processing())) - tokens.learner_N
        learner.effects.note(setup, Path("sample"), edit, moved_N)
    found: Any = PairSearch(learner, Variant(setup, tokens), None).best()  # type: ignore[arg-type]
    return found, learner


@pytest.mark.parametrize(
    "processing", [Processing(top_p=0.8), Processing(top_k=6), Processing(min_p=0.05)]
)
def test_a_truncation_is_found_next_to_an_edit(processing: Processing) -> None:
    found, learner = searched([EDITS[7]], processing)
    assert found is not None
    assert found.after.setup.edits == (EDITS[7],)
    assert found.after.gap < 1e-9
    for name in ("top_p", "top_k", "min_p"):
        value = getattr(found.after.setup.processing, name)
        assert value == pytest.approx(getattr(processing, name), rel=0.02)
    assert learner.passes < 150


def test_a_truncation_next_to_an_unknown_difference_is_no_pair() -> None:
    EFFECTS["unknown", "true"] = 0.5 * np.random.default_rng(9).normal(size=LOGITS.shape)
    found, _ = searched([("unknown", "true")], Processing(top_p=0.8))
    assert found is None


@pytest.mark.parametrize(("likeliest", "error"), [(VOCABULARY, 1e-4), (LIKELIEST, 0.15)])
def test_effects_are_those_of_the_whole_distribution(likeliest: int, error: float) -> None:
    """Up to the mass of the tokens that the learner does not return."""
    plain = logprobs((), Processing())
    top_NM = plain.topk(likeliest, dim=-1).values.double().numpy()
    for name, value, moved_N in truncation_effects(top_NM):
        changes: dict[str, Any] = {name: int(value) if name == "top_k" else value}
        kept = logprobs((), Processing(**changes))
        # The likeliest token is always kept.
        expected_N = (kept.amax(dim=1) - plain.amax(dim=1)).double().numpy()
        np.testing.assert_allclose(moved_N, expected_N, atol=error)
        assert np.median(np.abs(moved_N - expected_N)) < 0.01


def test_a_learner_that_truncates_already_gets_no_second_truncation() -> None:
    learner, engine = Learner([], Processing()), SimpleNamespace(key="learner")
    setup = Setup(engine, Processing(top_p=0.9))  # type: ignore[arg-type]
    tokens = replace(
        of_columns(learner.sampler_N, learner.sampler_N),
        likeliest_logprob_NM=np.full((TOKENS, 2), -1.0),
    )
    search: Any = PairSearch(learner, Variant(setup, tokens), None)  # type: ignore[arg-type]
    assert not list(search._of_truncations())
