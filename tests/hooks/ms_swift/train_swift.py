"""Trains a tiny model with ms-swift's own program, with and without grpodoctor.

Run by path in the environment that has ms-swift: train_swift.py FOLDER MODEL.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from swift.callbacks import callbacks_map
from swift.pipelines import rlhf_main
from swift.rewards import ORM, orms
from transformers import TrainerCallback

from grpodoctor.treatment.mailbox import Mailbox
from grpodoctor.treatment.requests import Request

SETTINGS = """--rlhf_type grpo --model_type qwen2 --template dummy --reward_funcs sevens
--check_model false --tuner_type full --torch_dtype float32 --max_steps 6 --num_generations 4
--per_device_train_batch_size 16 --max_completion_length 8 --learning_rate 5e-2 --logging_steps 1
--report_to none --save_strategy no --use_hf true --gradient_checkpointing false --beta 0.125
--dataloader_num_workers 0 --split_dataset_ratio 0 --log_entropy true --num_iterations 3
--lr_scheduler_type constant --add_version false"""


class Sevens(ORM):  # type: ignore[misc]
    def __call__(self, completions: list[str], **_: Any) -> list[float]:
        return [text.count("7") / 8 for text in completions]


class Weights(TrainerCallback):  # type: ignore[misc]
    """Keeps the weights at the end."""

    digest = ""

    def on_train_end(self, *_: Any, model: Any, **__: Any) -> None:
        digest = hashlib.sha256()
        for each in model.parameters():
            digest.update(each.detach().numpy().tobytes())
        Weights.digest = digest.hexdigest()


class Sender(TrainerCallback):  # type: ignore[misc]
    """Writes a request when the training begins, as another process would."""

    changes: dict[str, Any] = {}  # noqa: RUF012 - set before each training

    def on_train_begin(self, args: Any, *_: Any, **__: Any) -> None:
        request = Request("r", "apply", treatment_id="t", remedy="test", changes=self.changes)
        Mailbox(Path(args.output_dir) / "grpodoctor").send(request)


orms["sevens"] = Sevens
callbacks_map["weights"] = lambda args, trainer: Weights()  # noqa: ARG005 - ms-swift's signature
callbacks_map["sender"] = lambda args, trainer: Sender()  # noqa: ARG005


def train(folder: Path, model: str, callbacks: list[str], *settings: str) -> str:
    """One training; returns a digest of its weights."""
    plugin = folder.parent / "grpodoctor_plugin.py"
    plugin.write_text("import grpodoctor.hooks.ms_swift.plugin\n")
    data = folder.parent / "data.jsonl"
    prompts = [f"{number}+{number + 1}=" for number in range(10, 42)]
    messages = [{"messages": [{"role": "user", "content": each}]} for each in prompts]
    data.write_text("".join(json.dumps(each) + "\n" for each in messages))
    rlhf_main(
        [*SETTINGS.split(), "--model", model, "--dataset", str(data), "--output_dir", str(folder),
         "--external_plugins", str(plugin), "--callbacks", *callbacks, "weights", *settings]
    )  # fmt: skip
    return Weights.digest


def main(folder: Path, model: str) -> None:
    results = {
        "plain": train(folder / "plain", model, []),
        "attached": train(folder / "attached", model, ["grpodoctor"]),
    }
    cases: dict[str, tuple[dict[str, Any], list[str]]] = {
        "clip": ({"clip_low": 0.05, "clip_high": 0.01},
                 ["--epsilon", "0.05", "--epsilon_high", "0.01"]),
        "penalty": ({"kl_coefficient": 2.0}, ["--beta", "2.0"]),
        "truncated": ({"overlong": "mask"}, ["--overlong_filter", "true"]),
        "rate": ({"learning_rate": 1e-2}, ["--learning_rate", "1e-2"]),
    }  # fmt: skip
    for name, (changes, settings) in cases.items():
        Sender.changes = changes
        results[f"{name} treated"] = train(folder / name, model, ["grpodoctor", "sender"])
        results[f"{name} configured"] = train(folder / f"{name}-0", model, [], *settings)
    print(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
