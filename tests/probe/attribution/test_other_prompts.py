"""Prompts that one side reads with more tokens, with fewer, or tokenized otherwise."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.tokens import tokenized_otherwise
from grpodoctor.probe.attribution.causes.tokens.added_tokens import AddedTokens
from grpodoctor.probe.attribution.causes.tokens.lost_tokens import LostTokens
from grpodoctor.probe.attribution.causes.tokens.prompt_search import LOST
from grpodoctor.probe.attribution.causes.tokens.tokenized_otherwise import (
    TokenizedOtherwise,
    retokenized,
)
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.investigate import investigate
from grpodoctor.probe.attribution.reference import with_reference
from grpodoctor.probe.attribution.search.edit_gaps import total_gap
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.cases import measured, plain
from tests.probe.attribution.in_process import InProcess
from tests.probe.attribution.one_cause import ENGINE, found_by
from tests.probe.plants.families import checkpoint, prompts

SAMPLING = Sampling(samples=2, max_tokens=16)


def found_in_learner(
    cause: Cause, root: Path, fault: str, count: int = 12, sampling: Sampling = SAMPLING,
    family: str = "llama",
) -> ExperimentResult | None:  # fmt: skip
    """Plant a fault in the learner, for which transformers stands in."""
    model = checkpoint(root / family, family)
    options = {"model": str(model), "faults": fault, "threads": 1}
    faulty = EngineSpec.of("program", str(ENGINE), options)
    with InProcess(root / "runner", prompts(count)) as runner:
        experiments = Experiments(runner, measured(runner, plain(model), faulty, sampling))
        variant = with_reference(experiments, experiments.first())
        assert variant.setup.swapped
        assert cause.hypothesize(experiments, variant)
        return cause.experiment(experiments, variant, Hypothesis(1.0))


def test_a_token_that_the_learner_drops_is_found(tmp_path: Path) -> None:
    result = found_in_learner(LostTokens(), tmp_path, "span_lost:1")
    assert result is not None
    assert result.details == ("without the token at place 2",)
    assert result.summary.startswith("the learner reads other prompt ids than the sampler reports")
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.slow
def test_several_tokens_that_the_learner_drops_are_found(tmp_path: Path) -> None:
    result = found_in_learner(LostTokens(), tmp_path, "span_lost:4")
    assert result is not None
    assert result.details == ("without the tokens at place 2 to place 5",)
    assert result.figures["lost"] == 4
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cause", "fault", "words"),
    [
        (LostTokens(), "token_twice:4", "with its token at place 5 twice"),
        (AddedTokens(), "prompt_ended", "token 1 after every prompt"),
    ],
)
def test_a_token_that_the_learner_reads_in_addition_is_found(
    tmp_path: Path, cause: Cause, fault: str, words: str
) -> None:
    result = found_in_learner(cause, tmp_path, fault)
    assert result is not None
    assert result.details == (words,)
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.slow
def test_prompts_that_the_learner_tokenizes_otherwise_are_found_one_by_one(tmp_path: Path) -> None:
    """`retokenised` merges two tokens in the middle of three of ten prompts."""
    sampling = Sampling(samples=3, max_tokens=40)
    result = found_in_learner(TokenizedOtherwise(), tmp_path, "retokenised:0.3", 24, sampling)
    assert result is not None
    assert result.figures == {"prompts": 24, "differing": 8}
    assert result.details[0].endswith("(8 with fewer tokens, 0 with more)")
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.slow
def test_each_prompt_is_searched_until_its_own_change_is_found(tmp_path: Path) -> None:
    """In one of these prompts, the right place is not among the first ones that are tried."""
    sampling = Sampling(samples=3, max_tokens=40)
    result = found_in_learner(
        TokenizedOtherwise(), tmp_path, "retokenised:0.84", 24, sampling, "codegen"
    )
    assert result is not None
    assert result.figures == {"prompts": 24, "differing": 21}
    assert result.after is not None
    assert result.after.gap < 1e-9


def test_further_places_are_tried_where_the_first_ones_explain_some_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every second prompt, the best places are only tried after the next ones."""
    plain_ranks, calls, size = tokenized_otherwise._ranked_places, itertools.count(), 6

    def ranked(tried: Any, merits: Any) -> Any:
        places = plain_ranks(tried, merits)
        if next(calls) % 2:
            return places
        return [*places[size : 2 * size], *places[:size], *places[2 * size :]]

    monkeypatch.setattr(tokenized_otherwise, "_ranked_places", ranked)
    sampling = Sampling(samples=2, max_tokens=16)
    result = found_in_learner(TokenizedOtherwise(), tmp_path, "retokenised:1", 6, sampling)
    assert result is not None
    assert result.figures == {"prompts": 6, "differing": 6}
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 5])
def test_a_system_prompt_is_found_token_by_token(tmp_path: Path, count: int) -> None:
    result = found_by(AddedTokens(), tmp_path, "llama", f"system_prompt:{count}")
    assert result is not None
    tokens = ", ".join(str(3 + (19 * n + 4) % 61) for n in range(count))
    assert result.details == (f"tokens {tokens} before every prompt",)
    assert result.after is not None
    assert result.after.gap < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("cause", [AddedTokens(), LostTokens(), TokenizedOtherwise()])
def test_no_other_prompt_explains_another_fault_of_the_learner(
    tmp_path: Path, cause: Cause
) -> None:
    result = found_in_learner(cause, tmp_path, "attention_scale:1.3")
    assert result is None or result.after is None or result.after.gap > 1e-3


@pytest.mark.slow
def test_a_fault_of_the_model_is_found_below_a_system_prompt(tmp_path: Path) -> None:
    """The sampler's own scores have the one fault and lack the other."""
    model = checkpoint(tmp_path / "llama", "llama")
    faults = "attention_scale:1.3+system_prompt:3"
    options = {"model": str(model), "faults": faults, "threads": 1}
    sampler = EngineSpec.of("program", str(ENGINE), options)
    with InProcess(tmp_path / "runner", prompts(24)) as runner:
        sampling = Sampling(samples=3, max_tokens=40)
        found = investigate(runner, measured(runner, sampler, plain(model), sampling))
    assert {each.cause for each in found.causes} == {"prompt-ids", "attention-scale"}
    assert all(each.confidence == "proven" for each in found.causes)


def test_texts_show_how_a_prompt_can_be_tokenized_otherwise() -> None:
    texts = {1: "a", 2: "b", 3: "ab", 4: "c", 5: "bc"}
    changes = set(retokenized([1, 2, 4], texts))
    assert changes == {
        ((0, (3,)), (1, (LOST,))),
        ((1, (5,)), (2, (LOST,))),
    }
    assert set(retokenized([3, 4], texts)) == {((0, (1, 2)),), ((0, (1,)), (1, (5,)))}


def test_a_change_that_loses_a_value_closes_no_gap() -> None:
    """A token that counts and has no value is worse than any gap; one that does not is ignored."""
    target_N, lost_N = np.array([-1.0, -2.0, -3.0]), np.array([-1.0, -2.0, -np.inf])
    first_N = np.array([True, True, False])
    assert total_gap(lost_N, target_N, np.ones(3, np.bool_)) == np.inf
    assert total_gap(lost_N, target_N, first_N) == 0
    assert total_gap(lost_N - 0.5, target_N, first_N) == pytest.approx(2 * (np.exp(-0.5) - 0.5))
