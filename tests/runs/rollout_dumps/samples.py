"""Small dumps in every framework's format, written as the frameworks write them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.runs.rollouts import write_rollouts

STEPS, PROMPTS, COPIES = (1, 2, 3), 4, 4
RESPONSES = PROMPTS * COPIES
WORDS = tuple("so then we add both sides wait the number is even and odd twice".split())  # noqa: SIM905 - shorter


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))


def text(source: random.Random, count: int = 40) -> str:
    return " ".join(source.choices(WORDS, k=count))


def responses(step: int) -> list[dict[str, Any]]:
    """What a step holds, in no framework's words."""
    source = random.Random(step)
    rows = []
    for prompt in range(PROMPTS):
        for copy in range(COPIES):
            length = source.randint(5, 30)
            learner = [-source.expovariate(2.0) for _ in range(length)]
            rows.append(
                {
                    "prompt": f"what is {prompt} + {step}?",
                    "group": prompt,
                    "copy": copy,
                    "text": text(source),
                    "tokens": [source.randrange(1000) for _ in range(length)],
                    "learner": learner,
                    "sampler": [each + source.gauss(0, 0.01) for each in learner],
                    "reward": float(prompt != 0 and copy % 2 == 0),
                    "advantage": 0.0 if prompt == 0 else 1.0 - 2 * (copy % 2),
                    "length": length,
                    "truncated": copy == 3,
                }
            )
    return rows


def trl(root: Path) -> None:
    folder = root / "completions"
    folder.mkdir(parents=True)
    for step in STEPS:
        rows = responses(step)
        columns = {
            "step": [step] * len(rows),
            "prompt": [row["prompt"] for row in rows],
            "completion": [row["text"] for row in rows],
            "accuracy_reward": [row["reward"] for row in rows],
            "advantage": [row["advantage"] for row in rows],
        }
        pq.write_table(pa.table(columns), folder / f"completions_{step:05d}.parquet")


def verl(root: Path) -> None:
    for step in STEPS:
        rows = [
            {
                "input": row["prompt"],
                "output": row["text"],
                "gts": "7",
                "score": row["reward"],
                "step": step,
                "uid": f"{step}-{row['group']}_{row['copy']}_0",
            }
            for row in responses(step)
        ]
        lines(root / "rollouts" / f"{step}.jsonl", rows)


def prime_rl_tokens(root: Path) -> None:
    for step in STEPS:
        for rank in range(2):
            rows = []
            for row in responses(step)[rank::2]:
                count = row["length"]
                rows.append(
                    {
                        "schema_version": 1,
                        "token_ids": [1, 2, 3, *row["tokens"]],
                        "position_ids": list(range(count + 3)),
                        "loss_mask": [False] * 3 + [True] * count,
                        "inference_logprobs": [0.0] * 3 + row["sampler"],
                        "trainer_logprobs": [0.0] * 3 + row["learner"],
                        "entropy": [9.0] * 3 + [0.5] * count,
                    }
                )
            lines(root / "token_exports" / f"step_{step}" / f"rank_{rank}.jsonl", rows)


def prime_rl_traces(root: Path) -> None:
    """As verifiers' `Episode.to_record` gives them: what is None is left out."""
    for step in STEPS:
        rows = [
            {
                "id": f"e{step}-{place}",
                "env": {"id": "maths"},
                "task": {"type": "Task", "data": {"prompt": row["prompt"]}, "key": row["prompt"]},
                "group": {"id": str(row["group"])},
                "run": {"type": "train", "id": "r", "work": {"type": "train", "step": step}},
                "ok": True,
                "errors": [],
                "traces": [_trace(row), _of_a_judge(row)],
            }
            for place, row in enumerate(responses(step))
        ]
        lines(root / "rollouts" / f"step_{step}" / "train" / "all" / "traces.jsonl", rows)
        lines(root / "rollouts" / f"step_{step}" / "train" / "effective" / "traces.jsonl", rows[1:])
        lines(root / "rollouts" / f"step_{step}" / "eval" / "all" / "traces.jsonl", rows[:1])


def _trace(row: dict[str, Any]) -> dict[str, Any]:
    """A template's two tokens stand before the sampled ones; lists of these are as long as they."""
    finished = "length" if row["truncated"] else "stop"
    return {
        "version": 1,
        "id": "t",
        "agent": {"config": {}, "name": "agent", "trainable": True},
        "nodes": [
            {"message": {"role": "user", "content": row["prompt"]}, "sampled": False,
             "token_ids": [1, 2], "mask": [False, False], "is_content": [], "logprobs": []},
            {"parent": 0, "message": {"role": "assistant", "content": row["text"]},
             "sampled": True, "token_ids": [3, 4, *row["tokens"]],
             "mask": [False, False] + [True] * row["length"], "is_content": [],
             "logprobs": row["sampler"], "advantages": [row["advantage"]] * row["length"]},
        ],
        "calls": [{"node": 1, "finish_reason": finished, "time": {"start": 0.0, "end": 1.0}}],
        "rewards": {"correct": {"score": 2 * row["reward"], "weight": 0.5}},
        "metrics": {"num_turns": 1.0},
        "is_completed": True,
        "ok": True,
        "stop_condition": "agent_completed",
    }  # fmt: skip


def _of_a_judge(row: dict[str, Any]) -> dict[str, Any]:
    judge = {"config": {}, "name": "judge", "trainable": False}
    return {**_trace(row), "agent": judge, "rewards": {}}


def nemo_rl(root: Path) -> None:
    """As `log_batched_dict_as_jsonl` slices a batch: in lists of one."""
    for step in STEPS:
        rows = [
            {
                "content": [row["text"]],
                "rewards": [row["reward"]],
                "input_lengths": [row["length"] + 2],
                "token_ids": [[row["group"], 7, *row["tokens"], 0]],
                "token_loss_mask": [[0, 0] + [1] * row["length"] + [0]],
                "sample_loss_mask": [1.0],
                "advantages": [[row["advantage"]] * (row["length"] + 3)],
                "generation_logprobs": [[0.0, 0.0, *row["sampler"], 0.0]],
                "prev_logprobs": [[0.0, 0.0, *row["learner"], 0.0]],
                "idx": place,
            }
            for place, row in enumerate(responses(step))
        ]
        lines(root / f"train_data_step{step}.jsonl", rows)


def open_instruct(root: Path) -> None:
    rows = [
        {
            "step": step,
            "sample_idx": place,
            "prompt_idx": row["group"],
            "prompt_tokens": [1, step, row["group"]],
            "response_tokens": row["tokens"],
            "reward": row["reward"] * 10,
            "advantage": row["advantage"],
            "finish_reason": "length" if row["truncated"] else "stop",
            "dataset": "gsm8k",
            "logprobs": row["sampler"],
        }
        for step in STEPS
        for place, row in enumerate(responses(step))
    ]
    half = len(rows) // 2 + 3
    lines(root / "run_rollouts_000000.jsonl", rows[:half])
    lines(root / "run_rollouts_000001.jsonl", rows[half:])


def tinker(root: Path) -> None:
    for step in STEPS:
        rows = [
            {
                "schema_version": 1,
                "split": "train",
                "iteration": step,
                "group_idx": row["group"],
                "traj_idx": row["copy"],
                "sampling_client_step": step - 1,
                "total_reward": row["reward"],
                "steps": [{"step_idx": 0, "ob_len": 3, "ac_len": row["length"]}],
            }
            for row in responses(step)
        ]
        lines(root / f"iteration_{step:06d}" / "train_rollout_summaries.jsonl", rows)


def ms_swift(root: Path) -> None:
    rows = []
    for step in STEPS:
        found = responses(step)
        rows.append(
            {
                "step": [str(step)] * len(found),
                "prompt": [row["prompt"] for row in found],
                "completion": [row["text"] for row in found],
                "MathAccuracy": [row["reward"] for row in found],
                "advantages": [row["advantage"] for row in found],
            }
        )
    lines(root / "completions.jsonl", rows)


def areal(root: Path) -> None:
    for step in STEPS:
        for prompt in range(PROMPTS):
            rows = [
                {
                    "task_id": f"{step}-{prompt}",
                    "sample_idx": row["copy"],
                    "seqlen": row["length"] + 5,
                    "prompt_len": 5,
                    "head_version": -1,
                    "tail_version": step,
                    "reward": row["reward"],
                    "prompt": row["prompt"],
                    "completion": row["text"],
                }
                for row in responses(step)
                if row["group"] == prompt
            ]
            lines(root / "rollout" / str(step) / f"{step}-{prompt}.jsonl", rows)


def roll(root: Path) -> None:
    for step in STEPS:
        rows = responses(step)
        columns = {
            "id": [f"{row['group']}" for row in rows],
            "prompt": [row["prompt"] for row in rows],
            "tag": ["aime"] * len(rows),
            "domain": ["math_rule"] * len(rows),
            "responses": [row["text"] for row in rows],
            "scores": [row["reward"] for row in rows],
            "sampling_params": ["{}"] * len(rows),
            "global_step": [step] * len(rows),
        }
        lines(root / f"rollout_dump_data.step_{step}.jsonl", [columns])


def slime(root: Path) -> None:
    import torch

    for name in ("rollout_data", "train_data"):
        (root / name).mkdir(parents=True)
    for step in STEPS:
        rows = responses(step)
        samples = [
            {
                "group_index": row["group"],
                "index": place,
                "prompt": row["prompt"],
                "tokens": [1, 2, *row["tokens"]],
                "response": row["text"],
                "response_length": row["length"],
                "reward": row["reward"],
                "status": "truncated" if row["truncated"] else "completed",
            }
            for place, row in enumerate(rows)
        ]
        torch.save({"rollout_id": step, "samples": samples}, root / f"rollout_data/{step}.pt")
        trained = [
            {
                "data_parallel_rank": place % 2,
                "rollout_position": place,
                "tokens": torch.tensor([1, 2, *row["tokens"]]),
                "response_lengths": row["length"],
                "rewards": row["reward"],
                "log_probs": torch.tensor(row["learner"]),
                "rollout_log_probs": torch.tensor(row["sampler"]),
                "loss_masks": torch.ones(row["length"], dtype=torch.int32),
            }
            for place, row in enumerate(rows)
        ]
        torch.save(
            {"format_version": 2, "rollout_id": step, "rank": 0, "samples": trained,
             "dp_shards": [{"rank": 0, "data_parallel_rank": 0}]},
            root / f"train_data/{step}.pt",
        )  # fmt: skip


def batch(step: int) -> RolloutBatch:
    """The responses of a step as our own recorder takes them."""
    rows = responses(step)
    width = max(row["length"] for row in rows)

    def padded(name: str, kind: type) -> np.ndarray:
        return np.array([row[name] + [0] * (width - row["length"]) for row in rows], kind)

    lengths = np.array([row["length"] for row in rows])
    return RolloutBatch(
        step=step,
        sequence_ids=[f"{step}/{place}" for place in range(len(rows))],
        group_ids_B=np.array([row["group"] for row in rows]),
        prompt_ids=[str(row["group"]) for row in rows],
        prompts=[row["prompt"] for row in rows],
        texts=[row["text"] for row in rows],
        references=[""] * len(rows),
        tokens_BT=padded("tokens", np.int64),
        mask_BT=np.arange(width) < lengths[:, None],
        rewards_B=np.array([row["reward"] for row in rows]),
        truncated_B=np.array([row["truncated"] for row in rows]),
        components={"task": np.array([row["reward"] for row in rows])},
        correct_B=np.array([row["reward"] > 0 for row in rows]),
        advantages_B=np.array([row["advantage"] for row in rows]),
        learner_logprobs_BT=padded("learner", np.float32),
        sampler_logprobs_BT=padded("sampler", np.float32),
    )


def own(root: Path) -> None:
    (root / "rollouts").mkdir(parents=True)
    for step in STEPS:
        write_rollouts(root, batch(step), depth="full")


def _scripts_row(row: dict[str, Any]) -> dict[str, Any]:
    """A response under names that users' own scripts choose."""
    return {
        "prompt": [{"role": "user", "content": row["prompt"]}],
        "completion": row["text"],
        "reward": row["reward"],
        "completion_tokens": row["length"],
        "is_truncated": row["truncated"],
        "metrics": {"format": 1.0},
    }


def with_steps(root: Path) -> None:
    rows = [{"step": step, **_scripts_row(row)} for step in STEPS for row in responses(step)]
    lines(root / "samples.jsonl", rows)


def without_steps(root: Path) -> None:
    for step in STEPS:
        lines(root / f"rollouts_step_{step}.jsonl", [_scripts_row(row) for row in responses(step)])


def in_documents(root: Path) -> None:
    """A table as W&B saves it, whose name has the step and a hash."""
    root.mkdir(parents=True, exist_ok=True)
    for step in STEPS:
        rows = [_scripts_row(row) for row in responses(step)]
        table = {"columns": list(rows[0]), "data": [list(row.values()) for row in rows]}
        (root / f"completions_step_{step}_5ab1.table.json").write_bytes(orjson.dumps(table))


WRITERS: dict[str, Callable[[Path], None]] = {
    "TRL completions": trl,
    "verl rollouts": verl,
    "prime-rl token export": prime_rl_tokens,
    "prime-rl traces": prime_rl_traces,
    "NeMo RL train data": nemo_rl,
    "open-instruct traces": open_instruct,
    "tinker-cookbook rollout summaries": tinker,
    "ms-swift completions": ms_swift,
    "AReaL rollouts": areal,
    "ROLL rollouts": roll,
    "slime details": slime,
    "grpodoctor rollouts": own,
    "generic responses with steps": with_steps,
    "generic responses without steps": without_steps,
    "generic response document": in_documents,
}
