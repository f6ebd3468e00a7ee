"""Runs without log-probabilities of both sides: one line that names what is missing."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from grpodoctor.errors import RunError
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.probe.run_mismatch.missing_side import no_dump
from grpodoctor.probe.run_mismatch.run_mismatch import measure_run
from grpodoctor.probe.run_mismatch.run_source import source_of
from grpodoctor.runs.records import MANIFEST, Manifest
from grpodoctor.runs.rollouts import Depth, rollout_table
from tests.cli.in_process import run as grpodoctor
from tests.probe.run_mismatch.conftest import train


def recorded(
    folder: Path, framework: str, depth: Depth, *, sampler: bool = False, **config: object
) -> Path:
    """A recording of four responses."""
    count, length = 4, 6
    logprobs_BT = np.full((count, length), -0.5)
    batch = RolloutBatch(
        step=1,
        sequence_ids=[f"s{row}" for row in range(count)],
        group_ids_B=np.arange(count) // 2,
        prompt_ids=["p"] * count,
        prompts=["a prompt"] * count,
        references=[""] * count,
        tokens_BT=np.ones((count, length), np.int64),
        mask_BT=np.ones((count, length), bool),
        rewards_B=np.zeros(count),
        learner_logprobs_BT=logprobs_BT,
        sampler_logprobs_BT=logprobs_BT if sampler else None,
    )
    (folder / "rollouts").mkdir(parents=True)
    file = folder / "rollouts" / "step-000001.rank-0.parquet"
    pq.write_table(rollout_table(batch, depth, worst=1), file)
    (folder / "steps.jsonl").write_text("")
    manifest = Manifest(run_id="r", framework=framework, config=dict(config))
    (folder / MANIFEST).write_bytes(manifest.to_json())
    return folder


def refusal(run: Path) -> RunError:
    with pytest.raises(RunError) as error:
        measure_run(run, 5)
    done = grpodoctor("probe", "--run", run)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    return error.value


@pytest.mark.parametrize(
    ("framework", "setting"),
    [
        ("trl", "use_vllm=True"),
        ("verl", "calculate_log_probs=True"),
        ("torch", "pass sampler_logprobs to step.rollouts"),
        ("openrlhf", "record log-probabilities of both sides"),
    ],
)
def test_a_missing_sampler_is_named_with_its_setting(
    framework: str, setting: str, tmp_path: Path
) -> None:
    error = refusal(recorded(tmp_path / "run", framework, "full"))
    assert "hold no log-probabilities of the sampler, so there is no mismatch" in error.what
    assert setting in error.remedy
    assert "depth" not in error.remedy, "it is full already"


@pytest.mark.parametrize("depth", ["summary", "worst"])
def test_the_depth_is_advised_where_it_is_missing(depth: Depth, tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", "trl", depth, use_vllm=False)
    error = refusal(run)
    assert "attach(trainer, depth='full')" in error.remedy
    assert "use_vllm=True" in error.remedy
    assert "--set" not in error.remedy
    with_vllm = refusal(recorded(tmp_path / "vllm", "trl", depth, sampler=True, use_vllm=True))
    assert "use_vllm" not in with_vllm.remedy


def test_the_bundled_trainer_has_a_setting_for_the_depth(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "steps=1", "record.depth=summary")
    with pytest.raises(RunError) as error:
        measure_run(run, 5)
    assert "--set record.depth=full" in error.value.remedy
    assert "attach" not in error.value.remedy
    done = grpodoctor("probe", "--run", run)  # the run logs the means of each step
    text = " ".join(done.stdout.split())
    assert "for that, record whole responses with --set record.depth=full" in text


def test_rollouts_without_their_run_name_both_ways(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", "trl", "summary")
    (run / MANIFEST).unlink()
    (run / "steps.jsonl").unlink()
    error = refusal(run)
    assert "attach(trainer, depth='full') or --set record.depth=full" in error.remedy


def test_a_log_without_rollouts_names_the_setting_of_its_framework(tmp_path: Path) -> None:
    steps = [
        json.dumps({"step": step, "actor/pg_loss": 0.1, "critic/score/mean": 0.5 + step / 100})
        for step in range(1, 5)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(steps) + "\n")
    error = refusal(log)
    assert "no rollout dump" in error.what
    assert "trainer.rollout_data_dir" in error.remedy


def test_values_that_are_not_finite_are_no_missing_side(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", "trl", "full", sampler=True)
    file = next((run / "rollouts").iterdir())
    table = pq.read_table(file)
    place = table.schema.get_field_index("sampler_logprobs")
    nan = [[float("nan")] * 6] * 4
    column = pa.array(nan, table.schema[place].type)
    pq.write_table(table.set_column(place, table.schema[place], column), file)
    assert "no token of the rollouts" in refusal(run).what


def test_a_hooked_verl_run_without_dumps_is_not_told_to_attach(tmp_path: Path) -> None:
    """Its hooks record the means of each step only."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "steps.jsonl").write_text("")
    (folder / MANIFEST).write_bytes(Manifest(run_id="r", framework="verl").to_json())
    error = no_dump(folder)
    assert "trainer.rollout_data_dir" in error.remedy
    assert "attach" not in error.remedy


def test_an_output_directory_has_the_model_of_its_only_recording(tmp_path: Path) -> None:
    recorded(tmp_path / "output" / "grpodoctor", "trl", "full", model_name_or_path="some/model")
    assert source_of(tmp_path / "output", (1,), "none").model == "some/model"
    recorded(tmp_path / "output" / "another", "trl", "full", model_name_or_path="other/model")
    assert source_of(tmp_path / "output", (1,), "none").model == "", "which one is not known"
