"""The first round: a first answer from few responses, which a spent budget leaves as the result."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from grpodoctor.probe import run
from grpodoctor.probe.engines.jobs import BudgetSpentError
from grpodoctor.probe.first_round import (
    first_plan,
    first_prompts,
    is_checked,
    is_late,
    is_too_low,
)
from grpodoctor.probe.forecast import Forecast
from grpodoctor.probe.inputs.plan import ProbePlan, plan_from_options
from grpodoctor.probe.measurement import Measurement
from grpodoctor.probe.results.results import ProbeResult
from grpodoctor.probe.severity import EXACT

ENGINE = f"program:{Path(__file__).with_name('fault_engine.py')}?model=x"


def plan_of(learner: str = ENGINE, *, samples: int = 4, length: int = 160) -> ProbePlan:
    sampling = {"samples": samples, "max_tokens": length}
    return plan_from_options([ENGINE], [learner], sampling=sampling, attribution=False)


def with_prompts(plan: ProbePlan, folder: Path) -> ProbePlan:
    prompts = folder / "prompts.txt"
    prompts.write_text("".join(f"prompt {number}\n" for number in range(40)))
    return plan.model_copy(update={"prompts": prompts})


def forecast(seconds: float | None, loading: float = 0.0) -> Forecast:
    return Forecast(
        loads=3, sampled=1, scored=1, budget=None, seconds=seconds, loading_seconds=loading,
        per_pair=None, is_measured=False, attribution=True,
    )  # fmt: skip


class Remarks(list[str]):
    """A listener that keeps the lines."""

    def stage(self, what: str, done: int, total: int) -> None:
        pass

    def engine(self, progress: object) -> None:
        pass

    def remark(self, text: str) -> None:
        self.append(text)


def test_a_first_round_is_made_where_it_answers_much_sooner() -> None:
    plan = plan_of()
    small = first_plan(plan, 40)
    assert small is not None
    assert (small.sampling.samples, small.sampling.max_tokens) == (1, (64,))
    assert first_plan(plan_of(samples=1, length=64), 40) is None
    gate = plan.model_copy(update={"attribution": False, "controls": False})
    assert first_plan(gate, 40) is None
    assert is_late(forecast(None))
    assert is_late(forecast(300.0, 40.0))
    assert not is_late(forecast(30.0)), "the measurement itself is fast"
    assert not is_late(forecast(300.0, 200.0)), "loads cost most of the time"
    tight = dataclasses.replace(forecast(50.0, 40.0), budget=60.0)
    assert is_late(tight), "the measurement would take most of the budget"
    short = first_plan(plan.model_copy(update={"budget": 60.0}), 40)
    assert short is not None
    assert (short.limit, short.sampling.max_tokens) == (16, (32,))
    earlier = dataclasses.replace(forecast(50.0), is_measured=True)
    assert not is_checked(earlier)
    assert is_checked(dataclasses.replace(earlier, budget=60.0)), "the machine may be busy now"
    assert not is_checked(dataclasses.replace(earlier, budget=600.0))
    prompts = [{"text": str(number)} for number in range(100)]
    assert first_prompts(prompts)[-1] == {"text": "96"}, "prompts of the whole file"
    assert first_prompts(prompts[:3]) == prompts[:3]


def test_a_forecast_that_is_far_too_low_is_corrected() -> None:
    assert is_too_low(forecast(18.0), forecast(50.0)), "a busy machine"
    assert is_too_low(forecast(50.0), forecast(70.0)), "a first round is needed after all"
    assert not is_too_low(forecast(18.0), forecast(30.0))
    assert not is_too_low(forecast(None), forecast(50.0)), "no time was printed"


def test_the_first_answer_names_the_likely_cause_and_is_refined(tmp_path: Path) -> None:
    lines = Remarks()
    plan = with_prompts(plan_of(f"{ENGINE}&shift=0.3"), tmp_path)
    result = run.probe(plan, tmp_path / "out", lines)
    first, second = [line for line in lines if line.startswith("first answer after ")]
    assert ": large gap." in first
    assert " 32 responses" in first
    assert first.endswith("Refining: the whole measurement follows.")
    assert " 160 responses" in second
    (cell,) = result.cells
    assert cell.status == "done"
    assert cell.comparison is not None
    assert cell.comparison.responses == 160


@pytest.mark.slow
def test_the_time_of_the_first_part_corrects_the_forecast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An estimate from the sizes of the models knows nothing of other programs."""
    forecasts = iter([forecast(40.0), forecast(400.0, 20.0)])
    monkeypatch.setattr(run, "forecast_of", lambda *_: next(forecasts))
    lines = Remarks()
    run.probe(with_prompts(plan_of(), tmp_path), tmp_path / "out", lines)
    assert lines[0].startswith("forecast: about 40 s")
    assert lines[1].startswith("corrected forecast: about 7 min")
    first, second = [line for line in lines if line.startswith("first answer after ")]
    assert first.endswith("Refining: the whole measurement follows within 7 min.")
    assert ", 160 responses" not in first
    assert " 160 responses" in second


def test_a_fast_measurement_has_no_first_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forecasts = iter([forecast(400.0), forecast(40.0)])
    monkeypatch.setattr(run, "forecast_of", lambda *_: next(forecasts))
    lines = Remarks()
    run.probe(with_prompts(plan_of(), tmp_path), tmp_path / "out", lines)
    (first,) = [line for line in lines if line.startswith("first answer after ")]
    assert " 160 responses" in first


def test_a_budget_that_ends_after_the_first_round_leaves_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, calls = Measurement.sample, []

    def sampled(self: Measurement) -> None:
        calls.append(self)
        if len(calls) > 1:
            raise BudgetSpentError("the time budget is spent")
        sample(self)

    monkeypatch.setattr(Measurement, "sample", sampled)
    monkeypatch.setattr(run, "forecast_of", lambda *_: forecast(400.0))
    plan = with_prompts(plan_of(), tmp_path)
    result: ProbeResult = run.probe(plan, tmp_path / "out", Remarks())
    (cell,) = result.cells
    assert cell.status == "not_run"
    assert "the time budget was spent" in cell.reason
    assert cell.comparison is not None
    assert cell.comparison.responses == 32
    assert cell.verdict.startswith("The first 32 responses alone: The engines agree")
    assert (cell.gap, cell.noise) == (0.0, EXACT), "the rounding is judged, too"
    assert result.engines, "the engines are described"
