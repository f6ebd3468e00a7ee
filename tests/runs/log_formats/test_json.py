"""Histories in one document and in lines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.frameworks.row_keys import RowKeys
from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.json_history import JsonHistory
from grpodoctor.runs.log_formats.jsonl import JsonLines
from grpodoctor.runs.log_formats.registry import log_format_of
from grpodoctor.runs.reading.opening import open_run
from grpodoctor.runs.reading.read_options import ReadOptions
from grpodoctor.vocabulary.values import scalar

ROWS = [{"step": step, "reward_mean": step / 10, "loss": 0.1} for step in range(3)]


def rows_of(data: Any, directory: Path) -> list[LogRow]:
    path = directory / "history.json"
    path.write_text(json.dumps(data))
    return JsonHistory(path, RowKeys()).read().records


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        {"config": {"lr": 1e-6}, "history": ROWS},
        {"metrics": {key: [row[key] for row in ROWS] for key in ROWS[0]}, "seed": 1},
        {key: [row[key] for row in ROWS] for key in ROWS[0]},
        {key.replace("step", "steps"): [row[key] for row in ROWS] for key in ROWS[0]},
        {"log_history": ROWS},
        {key: {str(row): ROWS[row][key] for row in range(3)} for key in ROWS[0]},
        {"seed": 1, "history": {str(row["step"]): row for row in ROWS}},
        {str(step): {"reward_mean": step / 10} for step in (2, 0, 1)},
        {"history": {str(step): {"reward_mean": step / 10} for step in range(3)}},
        {"final": {"reward": 0.2}, "curves": {key: [row[key] for row in ROWS] for key in ROWS[0]}},
    ],
)
def test_a_history_in_the_usual_shapes(data: Any, tmp_path: Path) -> None:
    rows = rows_of(data, tmp_path)
    assert [(row.step, row.values["reward_mean"]) for row in rows] == [(0, 0), (1, 0.1), (2, 0.2)]


def test_responses_by_their_number_are_no_steps(tmp_path: Path) -> None:
    responses = {str(at): {"response": "word " * 20, "reward": at / 10} for at in range(9)}
    path = tmp_path / "responses.json"
    path.write_text(json.dumps(responses))
    assert JsonHistory.history_of(responses) is None


def test_an_index_with_gaps_is_the_step(tmp_path: Path) -> None:
    columns = {"reward_mean": {"0": 0.1, "10": 0.2, "20": 0.3}, "loss": {"0": 1, "10": 2, "20": 3}}
    assert [row.step for row in rows_of(columns, tmp_path)] == [0, 10, 20]


def test_the_curve_with_rewards_is_the_run_next_to_that_of_the_training_before_it(
    tmp_path: Path,
) -> None:
    before = [{"step": step, "loss": 1 / (step + 1), "acc": 0.9} for step in range(9)]
    data = {"eval": {"base": {"n": 100}}, "curves": {"dpo": before, "grpo": ROWS}}
    assert [row.values["reward_mean"] for row in rows_of(data, tmp_path)] == [0, 0.1, 0.2]


def test_the_metrics_of_a_saved_state_need_no_steps(tmp_path: Path) -> None:
    metrics = [{"mean_reward": row["reward_mean"], "loss": 0.1} for row in ROWS]
    state = {"step": 3, "metrics_history": metrics, "entropy_history": [0.4, 0.5, 0.6]}
    assert [row.values["mean_reward"] for row in rows_of(state, tmp_path)] == [0, 0.1, 0.2]
    assert log_format_of(tmp_path / "history.json") is not None


@pytest.mark.parametrize("name", ["problems", "eval_history"])
def test_objects_with_rewards_under_another_name_are_no_history(name: str, tmp_path: Path) -> None:
    data = {"model": "m", name: [{"mean_reward": 0.5} for _ in range(4)]}
    assert not any("mean_reward" in row.values for row in rows_of(data, tmp_path))


@pytest.mark.parametrize(
    "data",
    [
        {"n_episodes": 3, "grpo_run": ROWS},
        {"model": "m", "results": {"grpo": {"per_update": ROWS}}},
        {"training": ROWS, "eval": ROWS[:1], "examples": [{"question": "q", "reward": 0}] * 9},
    ],
)
def test_a_list_that_counts_is_the_history_under_any_name(
    data: dict[str, Any], tmp_path: Path
) -> None:
    rows = rows_of(data, tmp_path)
    assert [(row.step, row.values["reward_mean"]) for row in rows] == [(0, 0), (1, 0.1), (2, 0.2)]


@pytest.mark.parametrize(
    "data",
    [
        {"results": [{"id": each, "score": 1.0} for each in range(9)]},
        {"problems": [{"step": 1, "reward": 1.0} for _ in range(9)]},
        {"plan": [{"step": each, "instruction": "add", "cost": 2} for each in range(9)]},
    ],
)
def test_a_list_that_does_not_count_or_has_no_known_name_is_no_history(
    data: dict[str, Any],
) -> None:
    (entries,) = data.values()
    assert JsonHistory.history_of(data) != entries


@pytest.mark.parametrize("data", [3, "text", [], {}, [1, 2], {"history": "none"}, None])
def test_other_json_is_damage(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps(data))
    chunk = JsonHistory(path, RowKeys()).read()
    assert chunk.records == []
    assert len(chunk.damage) == 1


def test_lines_with_the_metrics_one_level_down(tmp_path: Path) -> None:
    """verl's file logger."""
    path = tmp_path / "verl.jsonl"
    path.write_text('{"step": 7, "data": {"actor/entropy": 0.3, "critic/score/mean": 0.5}}\n')
    (row,) = JsonLines(path, RowKeys()).read().records
    assert (row.step, row.values["actor/entropy"]) == (7, 0.3)


def test_steps_as_ms_swift_and_wandb_write_them(tmp_path: Path) -> None:
    path = tmp_path / "logging.jsonl"
    path.write_text(
        '{"loss": 0.1, "reward": "0.5", "global_step/max_steps": "10/100", "elapsed": "3m 2s"}\n'
        '{"train/reward": 0.5, "train/global_step": 20, "_step": 3, "_timestamp": 1.7e9}\n'
        '{"loss": 0.1, "step": -1}\n{"loss": 0.1, "step": 1.5}\n{"loss": 0.1, "step": 1e300}\n'
    )
    rows = JsonLines(path, RowKeys()).read().records
    assert [row.step for row in rows] == [10, 20, None, None, None]
    assert rows[0].values["reward"] == 0.5
    assert rows[1].time == 1.7e9


def test_rows_without_a_step_are_counted_from_the_frameworks_first(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"env/all/reward/total": 0.5, "env/all/by_group/frac_mixed": 0.5}\n' * 3)
    assert [each.step for each in open_run(path).steps] == [0, 1, 2]
    path.write_text('{"mean_reward": 0.5, "loss": 0.1}\n' * 3)
    assert [each.step for each in open_run(path).steps] == [1, 2, 3]


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "loss": 0.5}\n{"step": 2, "lo\n[1]\n\xff\xfe\n{"step": 3}\n')
    chunk = JsonLines(path, RowKeys()).read()
    assert [row.step for row in chunk.records] == [1, 3]
    assert [each.line for each in chunk.damage] == [2, 3, 4]


def test_json_lines_in_a_file_that_is_named_as_one_document(tmp_path: Path) -> None:
    path = tmp_path / "training_log.json"
    lines = [f'{{"step": {step}, "loss": 0.1, "reward/mean": 0.5}}' for step in range(5)]
    path.write_text("\n".join(lines) + "\n")
    steps = list(open_run(path).steps)
    assert [each.step for each in steps] == list(range(5))
    assert scalar(steps[-1].values["reward/mean"]) == 0.5


def run_of(name: str, first: float, **settings: Any) -> dict[str, Any]:
    history = [{"step": step, "reward": first + step / 100, "loss": 0.1} for step in range(25)]
    return {"tag": name, **settings, "reward_trace": [first] * 25, "step_log": history}


@pytest.mark.parametrize("as_list", [True, False])
def test_a_document_of_several_runs_has_their_rows_by_name(as_list: bool, tmp_path: Path) -> None:
    """A public sweep lists each run by its setting and once more in the order of time."""
    hot, cold = run_of("hot", 0.3, temperature=1.0), run_of("cold", 0.1, temperature=0.2)
    data = [hot, cold] if as_list else {"temperature_sweep": [hot, cold], "runs": [cold, hot]}
    rows = rows_of(data, tmp_path)
    assert len(rows) == 50
    path = tmp_path / "history.json"
    firsts = {
        name: scalar(next(iter(open_run(path, ReadOptions(where={"run_name": name})).steps)).values[
            "reward/mean"
        ])
        for name in ("hot", "cold")
    }  # fmt: skip
    assert firsts == {"hot": 0.3, "cold": 0.1}


@pytest.mark.parametrize("shape", ["history", "columns", "rows", "below runs"])
@pytest.mark.parametrize(
    ("names", "several"),
    [(("outcome", "heuristic"), True), (("train", "val"), False), (("reward", "kl"), False)],
)
def test_a_document_with_an_object_per_run(
    shape: str, names: tuple[str, ...], several: bool, tmp_path: Path
) -> None:
    def rows(scale: float) -> list[dict[str, float]]:
        return [{"step": step, "mean_reward": scale * step} for step in range(1, 31)]

    def run(scale: float) -> Any:
        if shape == "rows":
            return rows(scale)
        if shape == "columns":
            return {key: [row[key] for row in rows(scale)] for key in ("step", "mean_reward")}
        return {"reward_key": "score/mean", "merged": rows(scale)}

    data = {name: run(1 / (place + 1)) for place, name in enumerate(names)}
    data = {"runs": data} if shape == "below runs" else data
    found = JsonHistory.history_of(data) or []
    assert [row.get("run_name") for row in found if isinstance(row, dict)] == (
        [name for name in names for _ in range(30)] if several else [None] * len(found)
    )
    if several:
        path = tmp_path / "results.json"
        path.write_text(json.dumps(data))
        steps = open_run(path, ReadOptions(where={"run_name": names[1]})).steps
        rewards = [scalar(step.values["reward/mean"]) for step in steps]
        assert rewards == [step / 2 for step in range(1, 31)]


def test_a_run_with_its_history_in_a_step_log_is_one_run(tmp_path: Path) -> None:
    """A public result file: settings, a list of rewards, and a list of steps with more."""
    rows = rows_of(run_of("one", 0.3, rank=32), tmp_path)
    assert [row.step for row in rows] == list(range(25))
    assert rows[3].values["loss"] == 0.1


def test_steps_that_list_their_responses_are_no_runs(tmp_path: Path) -> None:
    rows = [{**row, "name": f"step {row['step']}", "records": [{"score": 1.0}] * 4} for row in ROWS]
    assert [row.step for row in rows_of({"history": rows}, tmp_path)] == [0, 1, 2]
    assert [row.step for row in rows_of(rows, tmp_path)] == [0, 1, 2]


LONG = list(range(20_000))


@pytest.mark.parametrize(
    "data",
    [
        {"episode": LONG, "avg_reward": LONG},
        {"config": {"layers": ["a", "b"]}, "train": {"update_steps": LONG}},
        {"note": 'a " [ in a text', "episode_rewards": LONG},
    ],
)
def test_a_long_document_of_columns_is_a_log(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps(data, indent=2))
    log_format = log_format_of(path)
    assert log_format is not None
    assert log_format.name == "json"


@pytest.mark.parametrize(
    "data",
    [
        {"results": [{"problem": "p", "scores": [1, 2, 3], "episode": [1, 2]}] * 3000},
        {"vocab": {f"token {number}": number for number in LONG}},
        {"weight_map": {f"layers.{number}.step": "model.safetensors" for number in LONG}},
        {"bad_words_ids": LONG, "eos_token_id": [1, 2]},
        [{"episode": [1, 2, 3], "text": "x" * 100}] * 3000,
    ],
)
def test_other_long_documents_are_no_logs(data: Any, tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_text(json.dumps(data))
    assert log_format_of(path) is None


def test_columns_of_values_with_steps_of_their_own(tmp_path: Path) -> None:
    """Columns of different lengths, as a script exports them from TensorBoard."""
    data = {
        "metadata": {"seed": 1},
        "metrics": {
            "loss": [{"step": step, "value": step / 10, "epoch": 0.1} for step in (1, 10, 20)],
            "reward_mean": [{"step": step, "value": step / 100} for step in (20, 10)],
        },
    }
    rows = rows_of(data, tmp_path)
    assert [(row.step, dict(row.values)) for row in rows] == [
        (1, {"loss": 0.1}),
        (10, {"loss": 1.0, "reward_mean": 0.1}),
        (20, {"loss": 2.0, "reward_mean": 0.2}),
    ]


@pytest.mark.parametrize("step", [None, [1], {"a": 1}, "x", float("nan")])
def test_values_with_a_damaged_step_are_no_points(step: Any, tmp_path: Path) -> None:
    data = {"loss": [{"step": step, "value": 0.5}] * 3, "reward": [0.1, 0.2, 0.3]}
    rows = rows_of(data, tmp_path)
    assert [row.values["reward"] for row in rows] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("spell", [repr, json.dumps])
def test_metrics_as_the_text_of_a_dict(spell: Callable[[object], str], tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    rows = [
        {"step": step, "ppo_metrics": spell({"reward": 0.5, "kl": 0.01}), "memory": "{'rss': 7}"}
        for step in range(3)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    read = JsonLines(path, RowKeys()).read().records
    assert [row.step for row in read] == [0, 1, 2]
    assert read[0].values == {"ppo_metrics/reward": 0.5, "ppo_metrics/kl": 0.01}


@pytest.mark.parametrize("text", ["{'a': nan}", "{'reward': 1", "{0.5}", "{'reward': f()}"])
def test_texts_that_spell_no_dict_are_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps({"step": 1, "loss": 0.1, "metrics": text}) + "\n")
    (row,) = JsonLines(path, RowKeys()).read().records
    assert row.values == {"loss": 0.1}


@pytest.mark.parametrize("name", ["metric", "name", "key", "tag"])
def test_rows_with_one_value_hold_its_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        "".join(
            json.dumps({"step": step, name: key, "value": step / 10}) + "\n"
            for step in range(3)
            for key in ("reward", "kl")
        )
    )
    steps = list(open_run(path).steps)
    assert [each.step for each in steps] == [0, 1, 2]
    assert scalar(steps[2].values["reward/mean"]) == 0.2


def test_the_rewards_of_a_batch_have_a_mean_unless_they_are_components(tmp_path: Path) -> None:
    row = {"step": 1, "rewards": [0.0, 1.0, 1.0, 0.0]}
    (read,) = rows_of([row], tmp_path)
    assert read.values["reward_mean"] == read.values["batch_reward_std"] == 0.5
    (read,) = rows_of([{**row, "total_reward": 3.0}], tmp_path)
    assert "reward_mean" not in read.values


def test_a_list_under_an_unknown_name_whose_entries_count_in_two_words(tmp_path: Path) -> None:
    """A script lists its groups next to a shorter list of losses and to totals."""
    entries = [
        {"useful_step": step + 1, "total_step": step + step // 3, "target": 50.0 * step,
         "rewards": [0.8, 0.0, 0.4, step % 2], "loss": -0.01}
        for step in range(30)
    ]  # fmt: skip
    data = {"useful_steps": 30, "losses": [-0.01] * 12, "rewards_per_step": entries}
    path = tmp_path / "training_stats.json"
    path.write_text(json.dumps(data))
    steps = {each.step: each for each in open_run(path).steps}
    assert len(steps) == 30
    means = [scalar(each.values["reward/mean"]) for each in steps.values()]
    assert min(means) == pytest.approx(0.3)  # type: ignore[type-var]
    assert max(means) == pytest.approx(0.55)  # type: ignore[type-var]


@pytest.mark.parametrize(("nested", "first_null"), [(True, 20), (True, 4), (False, 20)])
def test_a_null_of_verls_logger_is_a_broken_number_if_its_key_always_had_one(
    nested: bool, first_null: int, tmp_path: Path
) -> None:
    """JSON has no NaN. A script's null may mean that nothing was measured in a step."""
    path = tmp_path / "metrics.jsonl"
    for step in range(1, 31):
        loss = None if step >= first_null else 0.1
        data = {"actor/pg_loss": loss, "critic/score/mean": step / 30, "val/acc": None}
        row = {"step": step, "data": data} if nested else {"step": step, **data}
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
    rows = JsonLines(path, RowKeys()).read().records
    broken = [row.step for row in rows if math.isnan(row.values.get("actor/pg_loss", 0.0))]
    assert broken == (list(range(20, 31)) if nested and first_null == 20 else [])
    assert not any("val/acc" in row.values for row in rows)


def test_a_step_that_is_too_large_is_damage_and_no_place_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    rows = [{"step": number * 10**15, "reward": 0.5} for number in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = open_run(path)
    assert [step.step for step in run.steps] == [number * 10**15 for number in range(10)]
    assert run.damaged_lines == 10
    assert "too large to be exact" in run.damage[0].why
