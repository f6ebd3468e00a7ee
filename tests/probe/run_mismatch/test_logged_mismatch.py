"""`grpodoctor probe --run` on logs that have only the mean mismatch of each step."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.in_process import run as grpodoctor

SOUND = 4e-4
MEAN_DIFFERENCE = "training/rollout_probs_diff_mean"


def verl_log(
    path: Path, kl: Callable[[int], float], steps: int = 30, key: str = "rollout_corr/k3_kl"
) -> Path:
    """A file logger of verl with rollout log-probabilities."""
    noise = random.Random(1)
    rows = [
        {
            "step": step,
            "data": {
                "critic/score/mean": 0.3 + step / 100,
                "actor/pg_loss": 0.01,
                "actor/entropy": 0.5,
                key: kl(step) * (1 + noise.gauss(0, 0.05)),
                MEAN_DIFFERENCE: 0.003,
            },
        }
        for step in range(1, steps + 1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def judged(log: Path, *options: str) -> tuple[dict, str, int]:
    report = json.loads(grpodoctor("probe", "--run", log, "--json", *options).stdout)
    done = grpodoctor("probe", "--run", log, *options)
    assert done.stderr == ""
    return report, " ".join(done.stdout.split()), done.returncode


@pytest.mark.parametrize(
    ("kl", "severity", "kind", "first"),
    [
        (lambda _: SOUND, "info", "rounding", "healthy: the KL between the engines (k3) is 0.0004"),
        (lambda _: 0.004, "warning", "unknown", "warning: "),
        (lambda step: SOUND * 1.2**step, "critical", "undelivered-weights", "critical: "),
        (lambda step: 0.01 if step > 18 else SOUND, "warning", "jump", "warning: "),
    ],
    ids=["sound", "large", "growing", "jump"],
)
def test_size_and_course_are_judged(
    kl: Callable[[int], float], severity: str, kind: str, first: str, tmp_path: Path
) -> None:
    report, text, code = judged(verl_log(tmp_path / "log.jsonl", kl))
    assert (report["severity"], report["metric"]) == (severity, "mismatch/kl_k3")
    assert [cause["kind"] for cause in report["causes"]] == [kind]
    assert [step["step"] for step in report["steps"]] == list(range(11, 31))
    assert text.startswith(first)
    assert "only means of each step were logged" in text
    assert "trainer.rollout_data_dir" in text
    assert code == int(severity != "info")


def test_a_jump_is_dated_and_an_unknown_gap_has_an_experiment(tmp_path: Path) -> None:
    jump, text, _ = judged(verl_log(tmp_path / "jump.jsonl", lambda s: 0.01 if s > 18 else SOUND))
    assert jump["trend"]["jump_step"] == 19
    assert "changed at step 19" in text
    _, text, _ = judged(verl_log(tmp_path / "large.jsonl", lambda _: 0.004))
    assert "grpodoctor probe \\ --sampler vllm:MODEL" in text


def test_the_mean_difference_decides_where_no_kl_is_logged(tmp_path: Path) -> None:
    log = verl_log(tmp_path / "log.jsonl", lambda _: 0.0, key="perf/throughput")
    report, text, code = judged(log)
    assert (report["metric"], report["severity"], code) == ("mismatch/prob_diff_mean", "info", 0)
    assert text.startswith("healthy: the mean difference of the probabilities is 0.003")


@pytest.mark.parametrize(
    ("limit", "passes"), [("k3=0.0011", True), ("k3=0.0001", False), ("prob_diff_mean=1", True)]
)
def test_limits_judge_the_logged_figures(limit: str, passes: bool, tmp_path: Path) -> None:
    log = verl_log(tmp_path / "log.jsonl", lambda _: SOUND)
    done = grpodoctor("probe", "--run", log, "--accept", limit)
    assert done.returncode == int(not passes)
    assert done.stdout.startswith("accepted" if passes else "rejected")
    assert "as logged" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--accept", "pearson=.9"), "has no figure pearson"),
        (("--exact",), "no rollout dump of a known format"),
    ],
)
def test_what_a_log_cannot_show_is_refused_in_one_line(
    options: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    done = grpodoctor("probe", "--run", verl_log(tmp_path / "log.jsonl", lambda _: 1.0), *options)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_log_without_a_mismatch_names_the_setting_that_logs_it(tmp_path: Path) -> None:
    log = verl_log(tmp_path / "log.jsonl", lambda _: 0.0, key="perf/throughput")
    log.write_text(log.read_text().replace(MEAN_DIFFERENCE, "perf/other"))
    done = grpodoctor("probe", "--run", log)
    assert done.returncode == 2
    assert "calculate_log_probs=True alone logs the mean mismatch of each step" in done.stderr


def test_a_run_that_went_back_is_judged_by_its_last_pass(tmp_path: Path) -> None:
    first = verl_log(tmp_path / "first.jsonl", lambda _: 1.0, steps=25).read_text()
    again = verl_log(tmp_path / "log.jsonl", lambda _: SOUND)
    again.write_text(first + again.read_text())
    report, _, _ = judged(again)
    assert report["severity"] == "info"
