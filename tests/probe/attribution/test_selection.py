"""Which causes belong to an explanation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.explanation import Explanation
from grpodoctor.probe.attribution.investigate import _Investigation
from grpodoctor.probe.attribution.search.refit import fitted_numbers, refitted
from grpodoctor.probe.attribution.search.selection import (
    Step,
    gaps_in_order,
    is_sure,
    is_worth_accepting,
    unneeded,
)
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.engines.jobs import BudgetSpentError
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import NamedCause
from tests.probe.attribution.scripted import VOCABULARY, Scripted, case_of, processed

SAMPLER = EngineSpec.of("vllm", "m", {})
LEARNER = EngineSpec.of("transformers", "m", {})


def plain(_: EngineSpec, logits_NV: Any, __: Any) -> Any:
    """Logits of an engine without a fault."""
    return logits_NV


@pytest.mark.parametrize(
    ("share", "left", "settled", "imitated", "worth"),
    [
        (0.4, 1.0, False, False, True),  # a large part of the whole gap
        (0.9, 0.001, False, False, True),  # a removed cause leaves nothing of its own
        (0.4, 0.001, False, False, False),  # too little of a small remainder
        (0.9, 0.001, False, True, False),  # the remainder may be the imitation's error
        (0.99, 0.001, False, True, True),  # which no other cause removes whole
        (0.9, 0.01, False, True, True),  # more than an imitation's error
        (0.1, 0.001, True, True, True),  # only rounding is left
    ],
)
def test_a_further_cause_must_exceed_the_error_of_the_earlier_ones(
    share: float, left: float, settled: bool, imitated: bool, worth: bool
) -> None:
    accepted = is_worth_accepting(
        share, left=left, is_settled=settled, has_imitated=imitated, is_first=False
    )
    assert accepted is worth
    assert is_worth_accepting(
        share, left=left, is_settled=settled, has_imitated=imitated, is_first=True
    )


def test_a_cause_of_a_small_remainder_is_proven_only_if_rounding_is_left() -> None:
    assert is_sure(0.6, left=1.0, is_settled=False)
    assert not is_sure(0.6, left=0.01, is_settled=False)
    assert not is_sure(0.4, left=1.0, is_settled=False)
    assert is_sure(0.6, left=0.01, is_settled=True)


def test_causes_that_later_ones_make_superfluous_are_dropped(tmp_path: Path) -> None:
    def hot(engine: EngineSpec, logits_NV: Any, _: Any) -> Any:
        return logits_NV / (1.4 if engine.engine == "vllm" else 1.0)

    runner = Scripted(tmp_path, hot)
    experiments = Experiments(runner, case_of(runner, SAMPLER, LEARNER))
    first = experiments.first()
    float32 = experiments.vary(first, learner=LEARNER.with_options(dtype="float32"))
    final = experiments.vary(float32, processing=Processing(temperature=1.4))
    steps = [
        Step("precision", first.setup, float32.setup),
        Step("temperature", float32.setup, final.setup),
    ]
    dropped, kept = unneeded(experiments, final, steps)
    assert dropped == ["precision"]
    assert kept.setup.learner == LEARNER
    assert kept.setup.processing.temperature == 1.4
    assert unneeded(experiments, final, steps[1:]) == ([], final)


def test_a_cause_is_not_judged_by_scores_that_lack_it(tmp_path: Path) -> None:
    """The sampler's scores replace the values that it reported at another temperature."""
    runner = Scripted(tmp_path, plain)
    experiments = Experiments(runner, case_of(runner, SAMPLER, LEARNER))
    first = experiments.first()
    warm = experiments.vary(first, processing=Processing(temperature=1.05))
    final = experiments.vary(warm, rescored=SAMPLER.with_options(dtype="float32"))
    steps = [
        Step("temperature", first.setup, warm.setup),
        Step("precision", warm.setup, final.setup),
    ]
    assert unneeded(experiments, final, steps) == ([], final)


def test_an_edit_that_was_fitted_again_is_the_same_edit(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, plain)
    experiments = Experiments(runner, case_of(runner, SAMPLER, LEARNER))
    first = experiments.first()
    rope, window = ("setting", '["rope", 3000.0]'), ("window", "16")
    fitted = ("setting", '["rope", 3010.0]')
    one = replace(first.setup, edits=(rope,))
    final = replace(first, setup=replace(first.setup, edits=(fitted, window)))
    steps = [
        Step("rope-base", first.setup, one),
        Step("sliding-window", replace(one, edits=(fitted,)), final.setup),
    ]
    dropped, kept = unneeded(experiments, final, steps)
    assert dropped == ["rope-base"]  # no edit changes a scripted engine
    assert kept.setup.edits == (window,)


def test_numbers_are_fitted_again_until_the_gap_is_closed(tmp_path: Path) -> None:
    def hot(engine: EngineSpec, logits_NV: Any, _: Any) -> Any:
        return logits_NV / (1.37 if engine.engine == "vllm" else 1.0)

    runner = Scripted(tmp_path, hot)
    experiments = Experiments(runner, case_of(runner, SAMPLER, LEARNER))
    first = experiments.first()
    rough = experiments.vary(first, processing=Processing(temperature=1.4))
    fitted = refitted(experiments, rough, first.setup)
    assert fitted.setup.processing.temperature == pytest.approx(1.37, rel=1e-3)
    assert fitted.gap < 0.01 * rough.gap
    assert fitted_numbers(fitted.setup, rough.setup) == ("fitted again: temperature 1.37",)
    assert refitted(experiments, fitted, fitted.setup) is fitted  # no cause has set a number


@pytest.mark.parametrize("top_k", [5, 6])
def test_fitted_numbers_are_rounded_and_counts_corrected(top_k: int, tmp_path: Path) -> None:
    """Settings seldom have many digits; next to another fault, ranks are off by one."""

    wanted = Processing(temperature=1.2, top_k=5)

    def narrow(engine: EngineSpec, logits_NV: Any, _: Any) -> Any:
        return processed(logits_NV, wanted) if engine.engine == "vllm" else logits_NV

    runner = Scripted(tmp_path, narrow)
    experiments = Experiments(runner, case_of(runner, SAMPLER, LEARNER))
    first = experiments.first()
    rough = experiments.vary(first, processing=Processing(1.17, top_k=top_k))
    fitted = refitted(experiments, rough, first.setup)
    assert fitted.setup.processing == wanted


def test_the_shares_add_up_after_a_cause_was_dropped(tmp_path: Path) -> None:
    """The second of three causes took nearly the whole gap, and the third one replaces it."""

    def cut(engine: EngineSpec, logits_NV: Any, _: Any) -> Any:
        return logits_NV / (1.4 if engine.engine == "vllm" else 1.0)

    runner = Scripted(tmp_path, cut)
    explanation = Explanation(Experiments(runner, case_of(runner, SAMPLER, LEARNER)))
    experiments = explanation.experiments
    first = experiments.first()
    float32 = experiments.vary(first, learner=LEARNER.with_options(dtype="float32"))
    truncated = Processing(top_k=VOCABULARY - 1)
    between = experiments.vary(float32, processing=truncated)
    final = experiments.vary(between, processing=replace(truncated, temperature=1.4))
    explanation.steps = [
        Step("precision", first.setup, float32.setup),
        Step("truncation", float32.setup, between.setup),
        Step("temperature", between.setup, final.setup),
    ]
    shares = {"precision": 0.75, "truncation": 0.2, "temperature": 0.05}
    explanation.named = [
        NamedCause(cause=cause, title=cause, confidence="proven", explained=share, summary="")
        for cause, share in shares.items()
    ]
    explanation._drop_unneeded(final)
    left = {each.cause: each.explained for each in explanation.named}
    assert "precision" not in left
    assert sum(share or 0.0 for share in left.values()) == pytest.approx(1.0)
    assert left["temperature"] == pytest.approx(1.0, abs=0.05)
    (hot,) = (each for each in explanation.named if each.cause == "temperature")
    assert hot.figures["gap_before"] == pytest.approx(first.gap, rel=0.05)
    assert any("next to the other named causes" in each for each in hot.details)


def test_shares_are_unknown_if_a_cause_cannot_be_restored_alone(tmp_path: Path) -> None:
    runner = Scripted(tmp_path, plain)
    experiments = Experiments(runner, case_of(runner, SAMPLER, LEARNER))
    first = experiments.first()
    shifted = replace(first.setup, shift=1)
    assert gaps_in_order(experiments, first, [Step("off-by-one", first.setup, shifted)]) is None


def test_a_cause_that_a_later_one_may_replace_is_not_proven_if_the_budget_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Scripted(tmp_path, plain)
    case = case_of(runner, SAMPLER, LEARNER)
    investigation = _Investigation(runner, case)
    setup = investigation.experiments.first().setup

    def cut_short() -> None:
        causes = ("precision", "temperature")
        investigation.steps = [Step(cause, setup, setup) for cause in causes]
        investigation.named = [
            NamedCause(cause=cause, title=cause, confidence="proven", explained=0.5, summary="")
            for cause in causes
        ]
        raise BudgetSpentError("no time is left")

    monkeypatch.setattr(investigation, "_investigate", cut_short)
    confidences = {each.cause: each.confidence for each in investigation.result().causes}
    assert confidences == {"precision": "likely", "temperature": "proven"}
