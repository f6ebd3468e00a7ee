"""A held-out component of the reward that measures success, next to others that are paid."""

from __future__ import annotations

import math
from pathlib import Path

import orjson
import pytest

from grpodoctor.monitor.replay import replay
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.vocabulary.values import scalar

RESPONSES = 64
Row = dict[str, float]


def std(share: float, mark: float) -> float:
    """The unbiased deviation of a batch in which a share of the responses earns the mark."""
    return mark * math.sqrt(share * (1 - share) * RESPONSES / (RESPONSES - 1))


def log(folder: Path, name: str = "exact_match", mark: float = 1.0, other: str = "judge") -> Path:
    """A judge's score rises, in training and held out, while held-out success falls to nothing."""
    rows: list[Row] = []
    for step in range(1, 81):
        score = 0.3 + 0.006 * step + 0.02 * math.sin(5 * step)
        share = round(RESPONSES * (0.45 + 0.05 * math.sin(3 * step))) / RESPONSES
        row = {"step": step, "reward": score, "reward_std": 0.2, "completions/mean_length": 40.0}
        parts = {f"rewards/{name}/mean": mark * share, f"rewards/{name}/std": std(share, mark)}
        row |= parts | ({f"rewards/{other}/mean": score} if other else {})
        rows.append(row)
        if step % 10 == 0:
            held = round(RESPONSES * (0.5 - 0.006 * step)) / RESPONSES
            evaluated = {
                "step": step,
                "eval_reward": score,
                f"eval_rewards/{name}/mean": mark * held,
            }
            rows.append(evaluated | ({f"eval_rewards/{other}/mean": score} if other else {}))
    (folder / "trainer_state.json").write_bytes(orjson.dumps({"log_history": rows}))
    return folder


def test_a_fall_of_held_out_success_is_named_although_the_held_out_judge_rises(
    tmp_path: Path,
) -> None:
    findings = {each.code: each for each in replay(log(tmp_path)).report.findings}
    assert findings["REW003"].severity == "critical"
    assert findings["REW003"].summary.startswith("Held-out accuracy fell")


def accuracies(folder: Path) -> list[float | None]:
    records = [record.values for record in open_run(folder).steps]
    return [scalar(each["accuracy/heldout"]) for each in records if "accuracy/heldout" in each]


def test_it_is_read_as_the_held_out_accuracy(tmp_path: Path) -> None:
    levels = accuracies(log(tmp_path))
    assert len(levels) == 8
    assert levels[0] == pytest.approx(0.44, abs=0.01)


@pytest.mark.parametrize(
    ("name", "mark", "other"),
    [
        ("exact_match", 2.0, "judge"),  # out of [0, 1] in single responses
        ("exact_match", 0.5, "judge"),  # a perfect policy has one half
        ("helpfulness", 1.0, "judge"),  # no name of success
        ("answer_format", 1.0, "judge"),  # any response can earn it
        ("exact_match", 1.0, ""),  # the reward itself, which the log has
        ("exact_match", 1.0, "correct_unit"),
    ],
)
def test_other_components_are_not(tmp_path: Path, name: str, mark: float, other: str) -> None:
    if other == "correct_unit":
        two_measures(tmp_path, name, other)
    else:
        log(tmp_path, name, mark, other)
    assert not accuracies(tmp_path)


def two_measures(folder: Path, name: str, other: str) -> None:
    """Two components that are both named for success: which is meant is unclear."""
    log(folder, name, 1.0, other)
    state = folder / "trainer_state.json"
    rows = orjson.loads(state.read_bytes())["log_history"]
    for row in rows:
        if f"rewards/{name}/std" in row:
            share = round(RESPONSES * row[f"rewards/{other}/mean"]) / RESPONSES
            row |= {f"rewards/{other}/mean": share, f"rewards/{other}/std": std(share, 1.0)}
    state.write_bytes(orjson.dumps({"log_history": rows}))
