"""Runs of one log are judged by one length limit, or the report states the difference."""

from grpodoctor.monitor.diagnosis.verdict import Verdict
from grpodoctor.monitor.report import EarlierRun, Report, RunFacts
from grpodoctor.monitor.response_lengths import Lengths, lengths_of
from grpodoctor.report.run.phrases import earlier_run_lines
from grpodoctor.rules.length.length_near_limit import LengthNearLimit
from tests.rules.scenario import Curve, Patient, noisy, steps

FLAT = Verdict("flat", "reward 0.2 → 0.2.")


def remark(level: float, own_limit: float, limit: float) -> str:
    run = EarlierRun(1, 1, 50, FLAT, Lengths(level, own_limit))
    report = Report(RunFacts("log", "areal"), earlier_runs=(run,), lengths=Lengths(200, limit))
    (line,) = earlier_run_lines(report)
    return line.removeprefix(run.line).strip()


def test_a_limit_that_only_the_last_run_shows_is_stated_for_an_earlier_one() -> None:
    assert remark(226, 0, 256) == (
        "In run 1, responses average 226 tokens, 88% of the limit of 256 that only the last run "
        "shows."
    )
    assert remark(226, 256, 256) == "", "it was judged by this limit"
    assert remark(100, 0, 256) == "", "far from the limit"
    assert remark(300, 0, 256) == "", "another limit was in force"
    assert remark(226, 0, 0) == "", "no limit is known"


def test_the_limit_is_inferred_from_batches_that_are_cut_as_a_whole() -> None:
    means: Curve = [256.0 if step in (7, 19, 33) else 200 + step % 7 for step in range(40)]
    curves: dict[str, Curve] = {"reward/mean": noisy(0.4, 0.1, 1), "length/mean": means}
    lengths = lengths_of(Patient(steps(40, curves)).engine.chart)
    assert (lengths.limit, round(lengths.level)) == (256, 203)
    counted = {**curves, "length/truncated_rate": 0.1}
    assert lengths_of(Patient(steps(40, counted)).engine.chart) == Lengths(), "it is counted"


def test_an_earlier_run_is_judged_by_the_share_that_the_project_sets() -> None:
    means: Curve = [256.0 if step in (7, 19, 33) else 150 + step % 7 for step in range(40)]
    curves: dict[str, Curve] = {"reward/mean": noisy(0.4, 0.1, 1), "length/mean": means}
    chart = Patient(steps(40, curves)).engine.chart
    assert not lengths_of(chart).is_near(150)
    rules = [LengthNearLimit(near_limit_share=0.5)]
    assert lengths_of(chart, rules).is_near(150)
