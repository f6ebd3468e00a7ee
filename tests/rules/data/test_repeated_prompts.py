"""Prompts that appear several times in a batch of a rollout dump."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpodoctor.monitor.replay import replay
from grpodoctor.rules.base import Finding

GROUPS, SIZE = 8, 8


def dump(
    folder: Path,
    prompts_of: Callable[[int], list[str]],
    success: Callable[[int], float] = lambda _: 0.4,
    steps: int = 12,
) -> Path:
    """TRL's completions: a reward of 1 at random, and its advantages."""
    (folder / "completions").mkdir()
    rng = random.Random(1)
    for step in range(1, steps + 1):
        rows: dict[str, list[object]] = {
            name: [] for name in ("step", "prompt", "completion", "good", "advantage")
        }
        for prompt in prompts_of(step):
            rewards = [float(rng.random() < success(step)) for _ in range(SIZE)]
            mean = sum(rewards) / SIZE
            deviation = (sum((each - mean) ** 2 for each in rewards) / (SIZE - 1)) ** 0.5
            for reward in rewards:
                rows["step"].append(step)
                rows["prompt"].append(prompt)
                rows["completion"].append(f"answer {rng.random()}")
                rows["good"].append(reward)
                rows["advantage"].append((reward - mean) / (deviation + 1e-4))
        file = folder / "completions" / f"completions_{step:05d}.parquet"
        pq.write_table(pa.table(rows), file)
    return folder


def findings(folder: Path) -> list[Finding]:
    return list(replay(folder, select=["DAT007"]).report.findings)


def drawn(count: int) -> Callable[[int], list[str]]:
    """Prompts of a data set, shuffled in each epoch and cut into batches."""
    rng, order = random.Random(2), list[str]()

    def of(_: int) -> list[str]:
        while len(order) < GROUPS:
            order.extend(rng.sample([f"{row} + 1 =" for row in range(count)], count))
        batch = order[:GROUPS]
        del order[:GROUPS]
        return batch

    return of


def test_one_prompt_in_all_groups_is_an_alarm(tmp_path: Path) -> None:
    (finding,) = findings(dump(tmp_path, lambda _: ["{question}"] * GROUPS))
    assert finding.severity == "warning"
    assert finding.summary == "All 8 groups of a batch have the same prompt."
    assert finding.onset_step == 1


def test_one_prompt_that_is_learned_is_a_note(tmp_path: Path) -> None:
    one = dump(tmp_path, lambda _: ["1 + 1 ="] * GROUPS, lambda step: 0.1 + 0.03 * step, steps=30)
    assert [each.severity for each in findings(one)] == ["info"]


def test_a_data_set_of_four_prompts_is_a_note(tmp_path: Path) -> None:
    (finding,) = findings(dump(tmp_path, drawn(4)))
    assert finding.severity == "info"
    assert finding.summary == "50% of the groups of a batch repeat a prompt of it."


@pytest.mark.parametrize("count", [9, 12, 40])
def test_several_epochs_over_a_small_set_are_ordinary(tmp_path: Path, count: int) -> None:
    assert findings(dump(tmp_path, drawn(count), steps=30)) == []


def test_a_batch_with_replacement_is_ordinary(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = [f"{row} + 1 =" for row in range(GROUPS)]
    assert findings(dump(tmp_path, lambda _: rng.choices(rows, k=GROUPS), steps=30)) == []


def test_a_broken_shuffle_is_seen_when_it_begins(tmp_path: Path) -> None:
    def doubled(step: int) -> list[str]:
        distinct = [f"{step}: {row}" for row in range(GROUPS)]
        return distinct if step < 8 else distinct[: GROUPS // 4] * 4

    (finding,) = findings(dump(tmp_path, doubled, steps=20))
    assert (finding.severity, finding.onset_step) == ("info", 8)
