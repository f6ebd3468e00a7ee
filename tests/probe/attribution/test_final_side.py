"""Which side has the wrong temperature, if the sampler also truncates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.edits import Edits
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.final_side import with_final_place, with_final_side
from grpodoctor.probe.contract import Processing, Response
from grpodoctor.probe.engines.jobs import BudgetSpentError
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import NamedCause
from tests.probe.attribution.scripted import LEARNER, VLLM, Scripted, case_of, processed, truth

NAMED = NamedCause(
    cause="temperature",
    title="The two sides use different temperatures",
    confidence="proven",
    explained=0.7,
    summary="",
    figures={"fitted": 1.05, "drawn": 0.98, "asked": 1.0, "learner": 1.0},
)


def kept(logits_NV: Any, processing: Processing) -> Any:
    """Logits of the tokens that a truncation keeps."""
    return np.maximum(processed(logits_NV, processing), -1e9)


@pytest.mark.parametrize(
    ("drawn_at", "reported_at", "side"),
    [
        (1.05, 1.05, "the sampler is wrong, its tokens also follow temperature 1.05"),
        (1.0, 0.8, "the sampler's reported values are wrong, its tokens follow temperature 1"),
        (1.0, 1.0, "the learner is wrong, 1 was requested"),
    ],
)
def test_truncated_tokens_are_judged_under_their_truncation(
    drawn_at: float, reported_at: float, side: str, tmp_path: Path
) -> None:
    """The temperature that fits them in the whole distribution is lower."""

    def sampler(engine: EngineSpec, logits_NV: Any, _: Any) -> Any:
        drawn = Processing(temperature=drawn_at, top_p=0.95)
        return kept(logits_NV, drawn) if engine is VLLM else logits_NV

    def told(response: Response) -> None:
        logits_NV = truth(0, response.prompt, response.sample)
        columns_NV = processed(logits_NV, Processing(temperature=reported_at, top_p=0.95))
        ids = response.response_ids
        response.logprobs = columns_NV[np.arange(len(ids)), ids].tolist()

    runner = Scripted(tmp_path, sampler)
    experiments = Experiments(runner, case_of(runner, VLLM, LEARNER, told=told))
    processing = Processing(temperature=reported_at, top_p=0.95)
    final = experiments.vary(experiments.first(), processing=processing)
    summary = with_final_side(experiments, NAMED, final).summary
    assert summary.startswith("below top_p 0.95, the sampler's log-probabilities have temperature")
    assert summary.endswith(side)


def test_the_side_is_not_claimed_if_the_budget_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Scripted(tmp_path, lambda _, logits_NV, __: logits_NV)
    experiments = Experiments(runner, case_of(runner, VLLM, LEARNER))
    first = experiments.first()
    assert with_final_side(experiments, NAMED, first) is NAMED  # no truncation was found
    final = experiments.vary(first, processing=Processing(temperature=1.2, top_p=0.95))

    def spent(*_: Any) -> Any:
        raise BudgetSpentError("no time is left")

    monkeypatch.setattr(experiments, "score_all", spent)
    assert with_final_side(experiments, NAMED, final).summary.endswith("was not tested")


SCALED = ("output_scale", json.dumps(["self_attn", 1.64]))
STORED = ("kv_cache", json.dumps("fp8"))


@pytest.mark.parametrize(
    ("edits", "cause"),
    [
        ((SCALED, STORED), "value-scale"),
        ((("site_scale", json.dumps(["2:self_attn.v_proj/out", 1.64])), STORED), "value-scale"),
        ((SCALED,), "residual-scale"),
        ((("output_scale", json.dumps(["mlp", 1.64])), STORED), "residual-scale"),
    ],
)
def test_stored_values_have_a_scale(edits: Edits, cause: str, tmp_path: Path) -> None:
    """A factor on the values equals one on what attention returns."""
    runner = Scripted(tmp_path, lambda _, logits_NV, __: logits_NV)
    first = Experiments(runner, case_of(runner, VLLM, LEARNER)).first()
    final = replace(first, setup=replace(first.setup, edits=edits))
    scale = cause_of(edits[0])
    named = replace(NAMED, cause=scale.id, title=scale.title.format(side="sampler"))
    found = with_final_place(named, final)
    assert named.cause == "residual-scale"
    assert found.cause == cause
    assert ("the values or the output of" in found.title) == ("self_attn" in edits[0][1])
