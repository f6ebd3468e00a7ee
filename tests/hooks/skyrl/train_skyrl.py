"""Trains with SkyRL's own trainer, with a small model in this process instead of GPU workers.

Run by path in the environment that has SkyRL. The loop, advantages, metrics, callbacks, losses and
configuration are SkyRL's. What is replaced: the generator, which samples from the model, and the
dispatch to workers, which computes log-probabilities and SkyRL's loss.
"""

from __future__ import annotations

import asyncio
import json
import sys
import typing
from types import SimpleNamespace
from typing import Any

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # pydantic requires it below Python 3.12

import torch  # noqa: E402
from skyrl.backends.skyrl_train.distributed.dispatch import WorkerOutput  # noqa: E402
from skyrl.backends.skyrl_train.utils.ppo_utils import ppo_policy_loss  # noqa: E402
from skyrl.train.config import SkyRLTrainConfig  # noqa: E402
from skyrl.train.entrypoints.main_base import BasePPOExp  # noqa: E402
from skyrl.train.fully_async_trainer import FullyAsyncRayPPOTrainer  # noqa: E402
from skyrl.train.trainer import RayPPOTrainer  # noqa: E402

import grpodoctor  # noqa: E402
from grpodoctor.treatment.mailbox import Mailbox  # noqa: E402
from grpodoctor.treatment.requests import Request  # noqa: E402

END, LIMIT, STEPS = 1, 6, 4
SETTINGS = {
    "trainer.train_batch_size": 4, "trainer.policy_mini_batch_size": 2, "trainer.epochs": 1,
    "trainer.max_training_steps": STEPS, "trainer.eval_interval": -1, "trainer.ckpt_interval": -1,
    "trainer.hf_save_interval": -1, "trainer.resume_mode": "none", "trainer.seed": 3,
    "trainer.policy.model.path": "tiny", "trainer.placement.colocate_all": False,
    "generator.n_samples_per_prompt": 4, "data.dataloader.num_workers": 0,
    "data.dataloader.persistent_workers": False, "trainer.algorithm.use_kl_loss": False,
    "trainer.algorithm.temperature": 1.0, "trainer.enable_ray_gpu_monitor": False,
    "generator.inference_engine.enable_ray_prometheus_stats": False,
}  # fmt: skip


class Model(torch.nn.Module):
    """The next token's logits depend on the current token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Parameter(0.1 * torch.randn(12, 12))
        self.random = torch.Generator().manual_seed(1)

    def logprobs(self, sequences: Any, width: int) -> Any:
        shifted = torch.log_softmax(self.table[sequences[:, -width - 1 : -1]], dim=-1)
        return shifted.gather(-1, sequences[:, -width:, None])[..., 0]


class Generator:
    """Samples from the model; the reward is the share of sevens."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def generate(self, batch: Any) -> dict[str, Any]:
        rows = [self._sample(prompt) for prompt in batch["prompts"]]
        ids = [row[0] for row in rows]
        return {
            "prompt_token_ids": batch["prompts"],
            "response_ids": ids,
            "rewards": [each.count(7) / len(each) for each in ids],
            "loss_masks": [[1] * len(each) for each in ids],
            "stop_reasons": ["stop" if each[-1] == END else "length" for each in ids],
            "rollout_metrics": {
                "generate/avg_num_tokens": sum(map(len, ids)) / len(ids),
                "generate/max_num_tokens": max(map(len, ids)),
            },
            "rollout_logprobs": [row[1] for row in rows],
        }

    def _sample(self, prompt: list[int]) -> tuple[list[int], list[float]]:
        tokens, logprobs, last = list[int](), list[float](), prompt[-1]
        while len(tokens) < LIMIT and last != END:
            row = torch.log_softmax(self.model.table[last].detach(), dim=-1)
            last = int(torch.multinomial(row.exp(), 1, generator=self.model.random))
            tokens.append(last)
            logprobs.append(float(row[last]))
        return tokens, logprobs


class Dispatch:
    """One worker in this process."""

    def __init__(self, model: Model, config: Any) -> None:
        self.model, self.algorithm = model, config.trainer.algorithm
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def init_weight_sync_state(self, _: Any) -> None: ...

    async def save_weights_for_sampler(self) -> None: ...

    def empty_cache(self, *_: Any) -> None: ...

    def get_lcm_dp_size(self) -> int:
        return 1

    def forward_from_staged(self, _: str, batch: Any) -> WorkerOutput:
        width = batch.metadata["response_length"]
        rows = self.model.logprobs(batch["sequences"], width).detach()
        return WorkerOutput(loss_fn_outputs=[{"logprobs": row.tolist()} for row in rows])

    def stage_data(self, _: str, batch: Any, boundaries: Any) -> list[Any]:
        return [batch[first:last] for first, last in boundaries]

    def forward_backward_from_staged(self, _: str, chunk: Any) -> WorkerOutput:
        width = chunk["response_mask"].shape[1]
        loss, metrics = ppo_policy_loss(
            self.model.logprobs(chunk["sequences"], width), chunk["action_log_probs"],
            chunk["advantages"], self.algorithm, loss_mask=chunk["loss_mask"].float(),
        )  # fmt: skip
        self.optimizer.zero_grad()
        loss.backward()
        named = {f"loss_metrics/{name}": value for name, value in metrics.items()}
        return WorkerOutput(metrics={"final_loss": loss.item(), "policy_lr": 0.5, **named})

    def optim_step(self, _: str) -> float:
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1e9))
        self.optimizer.step()
        return norm


class Prompts(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 4 * STEPS

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"prompt": [2 + row % 9], "env_class": "none", "env_extras": {}, "uid": str(row)}

    def collate_fn(self, rows: list[Any]) -> list[Any]:
        return rows


class Tracker:
    """Keeps the rows."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def log(self, row: Any, step: int, commit: bool = False) -> None:  # noqa: ARG002 - SkyRL's
        self.rows.append((step, dict(row)))

    def finish(self) -> None: ...


def trainer_of(
    folder: str, kind: type[RayPPOTrainer] = RayPPOTrainer, **changes: Any
) -> RayPPOTrainer:
    config = SkyRLTrainConfig.from_cli_overrides(
        {**SETTINGS, "trainer.export_path": folder, **changes}
    )
    model = Model()
    tokenizer = SimpleNamespace(
        pad_token_id=0, decode=str, batch_decode=lambda rows: [" ".join(map(str, r)) for r in rows]
    )
    trainer = kind(config, Tracker(), tokenizer, Prompts(), None, Generator(model))
    trainer.dispatch = Dispatch(model, config)
    return trainer


def train(
    folder: str, attach: bool, request: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    trainer = trainer_of(folder, **changes)
    attachment = grpodoctor.attach(trainer) if attach else None
    if attachment is not None and request is not None:
        trainer.add_callback(sender(attachment, request))
    asyncio.run(trainer.train())
    if attachment is not None:
        attachment.close()
    return {
        "weights": trainer.dispatch.model.table.detach().numpy().tobytes().hex(),
        "rows": trainer.tracker.rows,
        "missing": attachment.missing if attachment else {},
    }


def sender(attachment: Any, changes: dict[str, Any]) -> Any:
    """A callback that writes a request as another process would."""
    from skyrl.train.utils.callbacks import TrainingCallback

    class Sender(TrainingCallback):
        def on_train_start(self, *_: Any) -> None:
            request = Request("r", "apply", treatment_id="t", remedy="test", changes=changes)
            Mailbox(attachment.run_dir).send(request)

    return Sender()


def refusals(folder: str) -> list[str]:
    """The problems of trainers that cannot be recorded."""
    begun = trainer_of(folder)
    begun.global_step = 3
    other = RayPPOTrainer.__new__(FullyAsyncRayPPOTrainer)
    other.__dict__.update(trainer_of(folder).__dict__)
    return [grpodoctor.attach(each).problem for each in (begun, other)]


def entry_point(folder: str) -> dict[str, Any]:
    """What `trainer.override_entrypoint` starts, up to the workers."""
    from grpodoctor.hooks.skyrl import entrypoint

    chosen = "trainer.override_entrypoint=grpodoctor.hooks.skyrl.entrypoint"
    settings = ["trainer.policy.model.path=tiny", "trainer.seed=9", "trainer.logger=console"]
    config = entrypoint.config_of([chosen, *settings])
    BasePPOExp.__init__ = lambda *_: None  # it loads the model's tokenizer and the data
    experiment = entrypoint.observed_experiment(config)
    plain = trainer_of(folder)
    trainer = experiment.get_trainer(
        plain.cfg, plain.tracker, plain.tokenizer, Prompts(), None, None, plain.generator, None
    )
    callbacks = trainer._callback_handler.callbacks
    return {"seed": config.trainer.seed, "callbacks": [type(each).__name__ for each in callbacks]}


def main(folder: str) -> None:
    norm = "trainer.algorithm.grpo_norm_by_std"
    results = {
        "plain": train(f"{folder}/plain", attach=False),
        "attached": train(f"{folder}/attached", attach=True),
        "treated": train(f"{folder}/treated", True, {"advantage": "centred"}),
        "configured": train(f"{folder}/configured", False, **{norm: False}),
        "refusals": refusals(f"{folder}/refused"),
        "entry point": entry_point(f"{folder}/entry"),
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
