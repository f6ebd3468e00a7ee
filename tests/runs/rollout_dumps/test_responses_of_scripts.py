"""Responses that users' own scripts write: names, lists, documents, and what is no dump."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import orjson
import pytest

from grpodoctor.errors import RunError
from grpodoctor.frameworks.rollout_formats.registry import dump_format_of
from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.runs.records import StepRecord
from grpodoctor.vocabulary.values import scalar
from tests.runs.rollout_dumps.samples import lines

TEXTS = ("it is seven because three and four are seven", "eight", "it may be nine after all")


def row(step: int, place: int, reward: float, **others: Any) -> dict[str, Any]:
    text = f"{TEXTS[place % 3]} {step}.{place}"
    return {"step": step, "prompt": "3 + 4?", "completion": text, "reward": reward, **others}


def read(path: Path) -> list[StepRecord]:
    run = open_run(path)
    assert isinstance(run, FrameworkRun)
    return list(run.steps)


def values(record: StepRecord) -> dict[str, float]:
    return {
        name: number for name, each in record.values.items() if (number := scalar(each)) is not None
    }


def test_a_step_has_the_mean_of_all_its_rows(tmp_path: Path) -> None:
    rows = [row(step, place, float(place >= step)) for step in range(4) for place in range(4)]
    lines(tmp_path / "trace.jsonl", rows)
    records = read(tmp_path)
    assert [values(record)["reward/mean"] for record in records] == [1.0, 0.75, 0.5, 0.25]
    assert values(records[1])["groups/size"] == 4


def test_a_row_per_step_with_an_example_is_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines(path, [row(step, 0, step / 40) for step in range(40)])
    assert dump_format_of(path) is None
    assert len(read(path)) == 40


def test_rows_with_metrics_of_an_update_are_a_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines(path, [row(step, place, 1.0, kl=0.1) for step in range(9) for place in range(4)])
    assert dump_format_of(path) is None


def test_actions_of_episodes_are_no_responses_of_a_step(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    rows = [row(step, place, 0.1, episode=place) for step in range(9) for place in range(2)]
    lines(path, rows)
    assert dump_format_of(path) is None


def test_lists_of_responses_and_of_rewards_are_taken_apart(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": [{"role": "user", "content": f"{prompt} + 4?"}],
            "completions": [f"{text} {prompt}" for text in TEXTS],
            "rewards": [1.0, 0.0, 0.0],
            "ground_truth": "7",
            "pass@k": {"1": 0.33},
        }
        for prompt in range(5)
    ]
    lines(tmp_path / "samples.jsonl", rows)
    [record] = read(tmp_path)
    assert values(record)["reward/mean"] == pytest.approx(1 / 3)
    assert values(record)["groups/size"] == 3


@pytest.mark.parametrize("text", ["text", "response"])
def test_objects_in_a_list_are_responses(tmp_path: Path, text: str) -> None:
    rollouts = [{text: each, "correct": index == 0} for index, each in enumerate(TEXTS)]
    rows = [{"question": f"{prompt} + 4?", "rollouts": rollouts} for prompt in range(4)]
    (tmp_path / "rollouts.json").write_bytes(orjson.dumps(rows))
    [record] = read(tmp_path)
    assert values(record)["accuracy/train"] == pytest.approx(1 / 3)


def test_a_document_of_verifiers_is_read(tmp_path: Path) -> None:
    outputs = [
        {
            "example_id": example,
            "prompt": [{"role": "user", "content": "3 + 4?"}],
            "completion": [{"role": "assistant", "content": text}],
            "reward": float(index == 0),
            "is_truncated": index == 2,
            "metrics": {"format": 1.0},
        }
        for example in range(4)
        for index, text in enumerate(TEXTS)
    ]
    document = {"metadata": {"model": "m", "avg_reward": 1 / 3}, "outputs": outputs}
    (tmp_path / "run.json").write_bytes(orjson.dumps(document))
    [record] = read(tmp_path)
    assert values(record)["length/truncated_rate"] == pytest.approx(1 / 3)
    assert values(record)["groups/size"] == 3


def test_a_table_whose_cells_have_line_breaks_is_read(tmp_path: Path) -> None:
    rows = [row(step, place, float(place == 0)) for step in range(3) for place in range(4)]
    with (tmp_path / "completions.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows({**each, "completion": f'"a"\n{each["completion"]}'} for each in rows)
    records = read(tmp_path)
    assert [values(record)["reward/mean"] for record in records] == [0.25] * 3


def test_a_short_table_and_a_cut_line_are_read_as_responses(tmp_path: Path) -> None:
    table, cut = tmp_path / "table.csv", tmp_path / "cut.jsonl"
    table.write_text('prompt,completion,reward,step\nQ,"a\nb",0.5,1\nQ,"other",0.1,1\n')
    lines(cut, [row(1, place, float(place == 0)) for place in range(4)])
    with cut.open("a") as file:
        file.write('{"step": 1, "prompt": "3 +')
    assert [values(record)["reward/mean"] for record in read(table)] == [0.3]
    assert [values(record)["reward/mean"] for record in read(cut)] == [0.25]


def test_the_name_of_a_folder_has_the_step(tmp_path: Path) -> None:
    for step in (100, 200):
        rows = [row(0, place, float(place < step / 100)) for place in range(4)]
        bare = [{key: value for key, value in each.items() if key != "step"} for each in rows]
        lines(tmp_path / f"step-{step}" / "rl.jsonl", bare)
    records = read(tmp_path)
    assert [record.step for record in records] == [100, 200]
    assert [values(record)["reward/mean"] for record in records] == [0.25, 0.5]


def test_responses_without_a_step_are_read_only_if_named(tmp_path: Path) -> None:
    rows = [{"prompt": "3 + 4?", "response": text, "score": 1.0} for text in TEXTS * 10]
    path = tmp_path / "run" / "data" / "set.jsonl"
    lines(path, rows)
    lines(tmp_path / "run" / "log.jsonl", [{"step": 1, "reward": 0.1}, {"step": 2, "reward": 0.2}])
    assert [record.step for record in read(tmp_path / "run")] == [1, 2]
    [record] = read(path)
    assert values(record)["reward/mean"] == 1


def test_responses_of_an_evaluation_are_skipped_and_the_error_says_so(tmp_path: Path) -> None:
    rows = [{"prompt": "3 + 4?", "response": text, "correct": True} for text in TEXTS * 10]
    lines(tmp_path / "step_250" / "eval_samples.jsonl", rows)
    with pytest.raises(RunError, match="held-out prompts"):
        read(tmp_path)
    [record] = read(tmp_path / "step_250")
    assert record.step == 250


def test_single_responses_to_each_prompt_are_no_groups(tmp_path: Path) -> None:
    rows = [row(step, place, 1.0) | {"prompt": f"{place}"} for step in (1, 2) for place in range(6)]
    lines(tmp_path / "trace.jsonl", rows)
    assert "groups/zero_variance_rate" not in values(read(tmp_path)[0])
