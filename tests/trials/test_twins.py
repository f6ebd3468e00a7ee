import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grpodoctor.errors import RunError
from grpodoctor.runs.records import StepRecord
from grpodoctor.trials.twins import TrainingProcess, TwinComparison, TwinResult, result_of
from grpodoctor.vocabulary.values import Mean, Rate


def _comparison(treated: int, untreated: int) -> TwinComparison:
    return TwinComparison(
        TwinResult(Rate(treated, 300), 0.2, 60), TwinResult(Rate(untreated, 300), 0.2, 60)
    )


@pytest.mark.parametrize(
    ("treated", "untreated", "sentence"),
    [
        (240, 60, "The treatment helped: held-out accuracy 0.80 with treatment, 0.20 without"),
        (150, 140, "The treatment made no measurable difference on this seed"),
        (60, 240, "The treatment did harm on this seed"),
    ],
)
def test_the_comparison_says_what_happened(treated: int, untreated: int, sentence: str) -> None:
    assert _comparison(treated, untreated).sentence().startswith(sentence)


def test_the_standard_error_is_that_of_two_binomials() -> None:
    assert _comparison(150, 150).error == pytest.approx((2 * 0.25 / 300) ** 0.5)


def test_two_perfect_twins_do_not_differ() -> None:
    assert "no measurable difference" in _comparison(300, 300).sentence()


def _write(run_dir: Path, records: list[StepRecord]) -> None:
    run_dir.mkdir()
    (run_dir / "steps.jsonl").write_bytes(b"".join(record.to_line() for record in records))


def test_a_result_pools_the_last_three_evaluations(tmp_path: Path) -> None:
    rates = [Rate(1, 10), Rate(4, 10), Rate(5, 10), Rate(6, 10)]
    steps = [StepRecord(step, {"accuracy/heldout": rate}) for step, rate in enumerate(rates)]
    _write(tmp_path / "run", [*steps, StepRecord(4, {"entropy/mean": Mean.of([0.5])})])
    assert result_of(tmp_path / "run") == TwinResult(Rate(15, 30), 0.5, 4)


def test_a_run_without_evaluation_has_no_result(tmp_path: Path) -> None:
    _write(tmp_path / "run", [StepRecord(0, {"entropy/mean": Mean.of([0.5])})])
    with pytest.raises(RunError, match="never evaluated"):
        result_of(tmp_path / "run")


def _process(tmp_path: Path, program: str) -> TrainingProcess:
    log = tmp_path / "twin.log"
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=output, stderr=output)
    return TrainingProcess(tmp_path / "twin", log, process)


def test_a_failed_process_is_reported_with_its_last_words(tmp_path: Path) -> None:
    twin = _process(tmp_path, "print('all is well'); raise SystemExit('the model is missing')")
    twin.process.wait(timeout=20)
    with pytest.raises(RunError, match="ended with exit code 1: the model is missing"):
        twin.check()


def test_ending_a_process_stops_it(tmp_path: Path) -> None:
    twin = _process(tmp_path, "import time; time.sleep(60)")
    twin.check()
    twin.end()
    assert twin.process.returncode == -signal.SIGTERM  # it was stopped, not waited for
