from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpodoctor.frameworks.rollout_formats.base import DumpFormat
from grpodoctor.frameworks.rollout_formats.registry import all_dump_formats, dumps_among
from grpodoctor.measure.step import rollout_readings
from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.runs.rollout_dumps import runners
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.support.files.regular_files import files_below
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import NotApplicable, Reading, scalar
from tests.runs.rollout_dumps.samples import (
    RESPONSES,
    STEPS,
    WRITERS,
    batch,
    lines,
    responses,
    verl,
)

Steps = dict[int, dict[str, Reading]]


def found_in(root: Path) -> list[tuple[DumpFormat, Path]]:
    return dumps_among(files_below(root))


def read(root: Path, **options: object) -> tuple[Steps, DumpReader]:
    reader = DumpReader(found_in(root), **{"runner": runners.in_process, **options})  # type: ignore[arg-type]
    return dict(reader.steps()), reader


every_format = pytest.mark.parametrize("name", WRITERS)


def test_every_dump_format_has_a_sample() -> None:
    assert {each.name for each in all_dump_formats()} - {"SkyRL training input"} == set(WRITERS)


@every_format
def test_a_dump_is_recognized_and_read_completely(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path)
    assert {form.name for form, _ in found_in(tmp_path)} == {name}
    steps, reader = read(tmp_path)
    assert list(steps) == list(STEPS)
    assert not reader.failed
    assert not reader.damaged
    assert reader.responses == RESPONSES * len(STEPS) * (2 if name == "slime details" else 1)
    assert all(metric_of(metric) for metric in steps[1])


@every_format
def test_readings_equal_those_of_the_responses(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path)
    steps, _ = read(tmp_path)
    for step in STEPS:
        rows, values = responses(step), steps[step]
        expected = {
            "reward/mean": np.mean([row["reward"] for row in rows]),
            "length/mean": np.mean([row["length"] for row in rows]),
            "length/correct": np.mean([row["length"] for row in rows if row["reward"]]),
            "length/truncated_rate": np.mean([row["truncated"] for row in rows]),
            "groups/zero_variance_rate": 0.25,
            "groups/all_incorrect_rate": 0.25,
            "groups/size": 4.0,
            "accuracy/train": np.mean([row["reward"] for row in rows]),
            "mismatch/logprob_diff_mean": np.mean(
                [np.abs(np.subtract(row["learner"], row["sampler"])).mean() for row in rows]
            ),
        }
        if name == "open-instruct traces":  # a verifiable reward is 10 there, and no flag
            expected["reward/mean"] *= 10
        for metric, value in expected.items():
            if metric in values:
                assert scalar(values[metric]) == pytest.approx(value, rel=1e-5), metric


KNOWN = {
    "TRL completions": {"reward/mean", "groups/zero_variance_rate", "text/repetition_rate"},
    "verl rollouts": {"reward/mean", "groups/zero_variance_rate", "text/reflection_rate"},
    "prime-rl token export": {"mismatch/kl_k3", "mismatch/prob_diff_max/worst_sequence"},
    "prime-rl traces": {"reward/mean", "length/correct", "length/truncated_rate"},
    "NeMo RL train data": {"mismatch/kl_k3", "length/mean", "groups/zero_variance_rate"},
    "open-instruct traces": {"length/mean", "length/truncated_rate", "groups/size"},
    "tinker-cookbook rollout summaries": {"length/correct", "staleness/mean", "groups/size"},
    "ms-swift completions": {"reward/mean", "groups/zero_variance_rate", "text/reflection_rate"},
    "AReaL rollouts": {"length/correct", "groups/zero_variance_rate"},
    "ROLL rollouts": {"reward/mean", "groups/zero_variance_rate", "text/reflection_rate"},
    "slime details": {"mismatch/kl_k3", "length/correct", "length/truncated_rate"},
    "grpodoctor rollouts": {"mismatch/kl_k3", "length/group_gap", "text/unique_ngram_rate"},
    "generic responses with steps": {"reward/mean", "length/correct", "length/truncated_rate"},
    "generic responses without steps": {"reward/mean", "groups/zero_variance_rate", "length/mean"},
    "generic response document": {"reward/mean", "groups/size", "text/reflection_rate"},
}


@every_format
def test_every_column_of_a_format_is_read_and_no_other(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path)
    values = read(tmp_path)[0][1]
    assert set(values) >= KNOWN[name]
    only_text = ("TRL completions", "verl rollouts", "ms-swift completions", "ROLL rollouts")
    if name in only_text:
        assert not [each for each in values if each.startswith("length/")]


RECORDED_ONLY = {
    "groups/expected_duplicate_rate",
    "groups/uncentred_rate",
    "groups/reward_by_place",
    "groups/length_by_place",
}
"""Readings that need whole groups with all their tokens, or the order of their responses, while a
dump may hold a selection in any order."""


def test_a_native_dump_measures_as_the_recorder_did(tmp_path: Path) -> None:
    WRITERS["grpodoctor rollouts"](tmp_path)
    steps, _ = read(tmp_path)
    for step in STEPS:
        measured = rollout_readings(batch(step))
        for metric, reading in measured.items():
            if metric in RECORDED_ONLY:
                continue
            again = steps[step][metric]
            assert type(again) is type(reading), metric
            if not isinstance(reading, NotApplicable):
                assert scalar(again) == pytest.approx(scalar(reading), rel=1e-9), metric


def test_pickles_are_refused_and_not_executed(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return (Path.touch, (tmp_path / "ran",))

    (tmp_path / "dumped_data").mkdir()
    (tmp_path / "rollout_data").mkdir()
    evil = pickle.dumps(Evil())
    (tmp_path / "dumped_data/global_step_3_training_input.pkl").write_bytes(evil)
    (tmp_path / "rollout_data/4.pt").write_bytes(evil)
    verl(tmp_path)
    steps, reader = read(tmp_path)
    assert not (tmp_path / "ran").exists()
    assert list(steps) == list(STEPS)
    assert len(reader.failed) == 2
    assert any("run any code" in line for line in reader.notes())


def test_pass_rates_are_known_per_prompt(tmp_path: Path) -> None:
    verl(tmp_path)
    _, reader = read(tmp_path)
    assert len(reader.pass_rates) == 12
    assert [each.correct for each in reader.pass_rates] == [0] * 3 + [2] * 9
    assert reader.pass_rates[0].prompt.startswith("what is 0")


def test_loops_and_duplicates_are_found_without_tokens(tmp_path: Path) -> None:
    loop = "then again " * 20
    rows = [
        {"input": "p", "output": each, "gts": "", "score": 0.5, "step": 1}
        for each in (loop, loop, "a fine and quite different answer that ends at last. " * 2, "x")
    ]
    lines(tmp_path / "1.jsonl", rows)
    values = read(tmp_path)[0][1]
    assert scalar(values["text/repetition_rate"]) == 0.5
    assert scalar(values["groups/duplicate_rate"]) == 0.25
    assert "accuracy/train" not in values


def judged() -> list[dict[str, object]]:
    """Two prompts whose answers are 7 and 8; the second one's rewards are in a wrong order."""
    texts = ("so #7", "so #7", "so #8", "so #9")
    rewards = ((1.0, 1.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0))
    return [
        {"input": f"p{prompt}", "output": text, "gts": 7 + prompt, "score": reward, "step": 1}
        for prompt, scores in enumerate(rewards)
        for text, reward in zip(texts, scores, strict=True)
    ]


def test_rewards_are_compared_with_texts_and_reference_answers(tmp_path: Path) -> None:
    lines(tmp_path / "verl/1.jsonl", judged())
    rows = judged()
    names = {"prompt": "input", "completion": "output", "answer": "gts", "good": "score"}
    columns = {name: [row[key] for row in rows] for name, key in names.items()}
    columns["step"] = [1] * len(rows)
    path = tmp_path / "trl/completions/completions_00001.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({**columns, "answer": list(map(str, columns["answer"]))}), path)
    for folder in ("verl", "trl"):
        values = read(tmp_path / folder)[0][1]
        assert scalar(values["reward/answer_disagreement_rate"]) == 2 / 8
        assert 0 < scalar(values["reward/answer_correlation"]) < 0.5
        assert scalar(values["groups/equal_text_variance"]) == (0 + 1 / 2) / 2
        assert scalar(values["groups/other_text_variance"]) == pytest.approx((4 + 2) / 5 / 2 / 2)


@pytest.mark.parametrize("name", ["verl rollouts", "NeMo RL train data", "prime-rl token export"])
def test_a_first_line_longer_than_the_head_is_recognized(tmp_path: Path, name: str) -> None:
    """Thirty thousand tokens are longer than that; the keys behind them are not in sight."""
    many = 30_000
    row: dict[str, object]
    if name == "verl rollouts":
        path, row = tmp_path / "1.jsonl", {"input": "p", "output": "x" * many * 4, "score": 1.0}
    elif name == "NeMo RL train data":
        path = tmp_path / "train_data_step1.jsonl"
        row = {"rewards": [1.0], "input_lengths": [many], "token_ids": [[123456] * many],
               "token_loss_mask": [[1] * many], "generation_logprobs": [[-0.5] * many],
               "prev_logprobs": [[-0.5] * many]}  # fmt: skip
    else:
        path = tmp_path / "token_exports/step_1/rank_0.jsonl"
        row = {"schema_version": 1, "micro_sequence_idx": 0, "token_ids": [123456] * many,
               "position_ids": list(range(many)), "loss_mask": [True] * many,
               "inference_logprobs": [-0.5] * many, "trainer_logprobs": [-0.5] * many}  # fmt: skip
    lines(path, [row])
    assert [form.name for form, _ in found_in(tmp_path)] == [name]


def test_validation_dumps_are_not_training_dumps(tmp_path: Path) -> None:
    verl(tmp_path)
    for step in STEPS:
        row = {"input": "held out", "output": "x", "gts": "", "score": 0.0, "step": step}
        lines(tmp_path / "val_dump" / f"{step}.jsonl", [row] * 100)
    run = open_run(tmp_path)
    steps = list(run.steps)
    assert [scalar(step.values["reward/mean"]) for step in steps] == [6 / 16] * 3
    assert isinstance(run, FrameworkRun)
    assert "rollout dumps that are not read: they hold responses to held-out prompts" in run.notes
    (only,) = list(open_run(tmp_path / "val_dump" / "2.jsonl").steps)
    assert scalar(only.values["reward/mean"]) == 0.0, "what the user points at is read"


def test_older_traces_have_scalar_rewards_and_token_lists(tmp_path: Path) -> None:
    nodes = [{"message": {"role": "user", "content": "q"}, "token_ids": [1], "mask": [0],
              "advantages": [0.0]},
             {"message": {"role": "assistant", "content": "a"}, "token_ids": [2, 3],
              "mask": [1, 1], "advantages": [0.5, 0.5]}]  # fmt: skip
    trace = {"nodes": nodes, "rewards": {"a": 0.25, "b": 0.5}, "stop_condition": "max_turns"}
    row = {"id": "e", "task": "q", "group": "g", "traces": [trace]}
    lines(tmp_path / "rollouts/step_4/train/all/traces.jsonl", [row])
    values = read(tmp_path)[0][4]
    assert scalar(values["reward/mean"]) == 0.75
    assert scalar(values["length/mean"]) == 2
    assert scalar(values["length/truncated_rate"]) == 1
    assert scalar(values["advantage/abs_max"]) == 0.5


def test_filtered_rewards_of_dynamic_sampling_equal_the_rows(tmp_path: Path) -> None:
    row = {"token_ids": [[1, 2]], "token_loss_mask": [[0, 1]], "generation_logprobs": [[0, -1.0]],
           "prev_logprobs": [[0, -1.0]], "rewards": [0.0], "filtered_rewards": [1.0]}  # fmt: skip
    lines(tmp_path / "train_data_step3.jsonl", [row, row])
    assert scalar(read(tmp_path)[0][3]["reward/mean"]) == 1.0


def test_the_training_data_of_slime_before_its_second_format(tmp_path: Path) -> None:
    import torch

    (tmp_path / "train_data").mkdir()
    data = {"log_probs": [torch.tensor([-1.0, -2.0])], "rollout_log_probs": [[-1.5, -2.0]]}
    torch.save({"rollout_id": 5, "rollout_data": data}, tmp_path / "train_data/5.pt")
    assert scalar(read(tmp_path)[0][5]["mismatch/bias"]) == 0.25


def test_the_prompts_of_open_instruct_are_known_by_their_tokens(tmp_path: Path) -> None:
    """The index starts again at every step: two prompts, not one that is asked twice."""
    rows = [
        {"step": step, "sample_idx": 0, "prompt_idx": 0, "prompt_tokens": [step, 7],
         "response_tokens": [1, 2], "reward": float(step == 1), "advantage": 0.0}
        for step in (1, 2)
    ]  # fmt: skip
    lines(tmp_path / "run_rollouts_000000.jsonl", rows)
    rates = read(tmp_path)[1].pass_rates
    assert sorted((each.correct, each.responses) for each in rates) == [(0, 1), (1, 1)]
