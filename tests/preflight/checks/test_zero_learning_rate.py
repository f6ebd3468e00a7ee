"""A run at a learning rate of zero: flat is fine, a mismatch that grows is not."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from grpodoctor.preflight.catalogue import all_checks
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.results.check_results import CheckFinding, SkippedCheck
from grpodoctor.probe.results.results import Interval

Make = Callable[..., PreflightContext]
Findings = Callable[[str, PreflightContext], list[CheckFinding]]


def _verl_log(path: Path, kl: list[float], rate: float = 0.0) -> Path:
    rows = [
        {
            "step": step,
            "data": {
                "rollout_corr/kl": value,
                "actor/lr": rate,
                "actor/entropy": 0.4,
                "critic/score/mean": 0.5,
                "response_length/mean": 100.0,
            },
        }
        for step, value in enumerate(kl, start=1)
    ]
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def test_a_flat_run_is_fine(
    tmp_path: Path, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    log = _verl_log(tmp_path / "run.jsonl", [1e-3, 1.1e-3, 0.9e-3, 1e-3, 1.05e-3, 1e-3])
    (finding,) = findings_of("MIS102", context_of(dense_model, control=log))
    assert finding.severity == "info"
    assert "mismatch/kl_k1" in finding.summary


def test_a_mismatch_that_grows_is_critical(
    tmp_path: Path, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    log = _verl_log(tmp_path / "run.jsonl", [1e-3 * step for step in range(1, 9)])
    (finding,) = findings_of("MIS102", context_of(dense_model, control=log))
    assert finding.severity == "critical"


def test_a_run_with_updates_is_no_control(
    tmp_path: Path, dense_model: Path, context_of: Make
) -> None:
    log = _verl_log(tmp_path / "run.jsonl", [1e-3] * 6, rate=1e-6)
    (check,) = (each for each in all_checks() if each.code == "MIS102")
    outcome = check.examine(context_of(dense_model, control=log))
    assert isinstance(outcome, SkippedCheck)
    assert "above zero" in outcome.reason


def test_the_bundled_trainer_at_rate_zero_is_flat(
    tmp_path: Path, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    pytest.importorskip("torch")
    from typer.testing import CliRunner

    from grpodoctor.cli.main import app

    run = tmp_path / "run"
    settings = ["optimizer.learning_rate=0", "rollout.prompts_per_batch=4", "rollout.group_size=4"]
    done = CliRunner().invoke(
        app,
        ["train", "--run-dir", str(run), "--steps", "5", *_set(settings)],
    )
    assert done.exit_code == 0, done.output
    findings = findings_of("MIS102", context_of(dense_model, control=run))
    assert [each.severity for each in findings] == ["info"]


def _set(settings: list[str]) -> list[str]:
    return [part for each in settings for part in ("--set", each)]


@pytest.mark.parametrize(
    ("k3", "severity"), [((4.9e-5, 4.4e-5, 3.8e-5), "info"), ((4.9e-5, 9e-5, 16e-5), "warning")]
)
def test_rounds_that_differ_beyond_chance_are_found(
    k3: tuple[float, ...], severity: str, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    class Rounds:
        """Comparisons with only the interval that the check reads."""

        def mismatch(self, _learner: object, *, round_index: int) -> SimpleNamespace:
            value = k3[round_index]
            interval = Interval(value=value, low=0.9 * value, high=1.1 * value)
            return SimpleNamespace(intervals={"mismatch/kl_k3": interval})

    context = context_of(dense_model, sampler=Rounds(), learner=object())
    (finding,) = findings_of("MIS102", context)
    assert finding.severity == severity
