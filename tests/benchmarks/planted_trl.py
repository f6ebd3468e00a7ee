"""Causes planted in real TRL runs, on the bundled trainer's tiny model and its arithmetic.

Only `trainer_state.json` remains of a run. `config` stands for runs whose settings the user
gives to `check` by `--run-config`.
"""

from __future__ import annotations

import json
import logging
import random
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import planted_truth
import torch
from planted_faults import DIES_AT

from grpodoctor.trials import rewards as sick_rewards

Rewards = list[float | None]
Reward = Callable[..., Rewards]

BATCH, GROUP, LENGTH, PROMPTS, HELDOUT = 64, 8, 24, 512, 32

_NAN_WEIGHTS = "probability tensor contains"
"""Part of the error with which a run ends whose weights are NaN."""

_BASE: Mapping[str, Any] = {
    "per_device_train_batch_size": BATCH,
    "num_generations": GROUP,
    "max_completion_length": LENGTH,
    "learning_rate": 3e-4,
    "lr_scheduler_type": "constant",
    "beta": 0.0,
    "num_iterations": 1,
    "logging_steps": 1,
    "bf16": False,
    "use_cpu": True,
    "gradient_checkpointing": False,
    "dataloader_pin_memory": False,
    "disable_tqdm": True,
    "save_strategy": "no",
    "report_to": "none",
    "generation_kwargs": {"use_cache": True},
}


def _trl(function: Callable[..., Any], part: str = "") -> Reward:
    """A function of `grpodoctor.trials.rewards` with the signature of TRL."""

    def reward(prompts: list[str], completions: list[str], answer: list[str], **_: Any) -> Rewards:
        values = function(prompts, completions, answer)
        return list(map(float, values[part] if part else values))

    reward.__name__ = part or function.__name__
    return reward


def _parts(function: Callable[..., Any]) -> list[Reward]:
    """One reward for each component of a function of `grpodoctor.trials.rewards`."""
    return [_trl(function, part) for part in function([], [], [])]


def _from_call(start: int, value: float | None) -> Reward:
    """The right reward, but the same value for every response from a step on."""
    calls = {"count": 0}

    def correct(prompts: list[str], completions: list[str], answer: list[str], **_: Any) -> Rewards:
        calls["count"] += 1
        if calls["count"] > start:
            return [value] * len(completions)
        return list(sick_rewards.good(prompts, completions, answer))

    return correct


def _impatient(share: float) -> Reward:
    """The right reward, but this share of the calls fails and counts as zero."""

    def correct(prompts: list[str], completions: list[str], answer: list[str], **_: Any) -> Rewards:
        values = sick_rewards.good(prompts, completions, answer)
        return [value * (random.random() >= share) for value in values]

    return correct


REWARDS: dict[str, Callable[[], list[Reward]]] = {
    "good": lambda: [_trl(sick_rewards.good)],
    "one": lambda: [_trl(sick_rewards.one)],
    "zero": lambda: [_trl(sick_rewards.zero)],
    "flipped": lambda: [_trl(sick_rewards.flipped)],
    "noise": lambda: [_trl(sick_rewards.noise)],
    "noisy": lambda: [_trl(sick_rewards.noisy)],
    "repeats": lambda: [_trl(sick_rewards.repeats)],
    "almost_never": lambda: [_trl(sick_rewards.almost_never)],
    "length_only": lambda: [_trl(sick_rewards.length_only)],
    "length_bonus": lambda: _parts(sick_rewards.length_bonus),
    "short_only": lambda: _parts(sick_rewards.short_only),
    "format_first": lambda: _parts(sick_rewards.format_first),
    "outweighed": lambda: _parts(sick_rewards.outweighed),
    "canceling": lambda: _parts(sick_rewards.canceling),
    "dies": lambda: [_from_call(40, 0.0)],
    "unscored": lambda: [_from_call(40, None)],
    "infinite": lambda: [_from_call(40, float("inf"))],
    "timeouts": lambda: [_impatient(0.7)],
}


def train(settings: Sequence[str], fault: str | None, seed: int, steps: int, run_dir: Path) -> None:
    """Train with TRL, and keep `trainer_state.json` and the config."""
    chosen = dict(text.split("=", 1) for text in settings)
    task_settings = {key: chosen.pop(key) for key in [k for k in chosen if k.startswith("task.")]}
    import planted_trl_field
    import planted_trl_ordinary
    import planted_trl_pipeline
    import planted_trl_reports
    import planted_trl_unseen
    import planted_trl_usage

    reward, peft = chosen.pop("reward", "good"), chosen.pop("peft", None)
    later = (
        planted_trl_unseen, planted_trl_field, planted_trl_reports, planted_trl_pipeline,
        planted_trl_usage, planted_trl_ordinary,
    )  # fmt: skip
    faults, functions = dict(FAULTS), dict(REWARDS)
    for module in later:
        faults |= module.FAULTS
        functions |= module.REWARDS
    rewards = functions[reward]()
    arguments = {**_BASE, **{key: json.loads(value) for key, value in chosen.items()}}
    if peft:
        arguments["peft"] = json.loads(peft)
    run_dir.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        model, rows, heldout = _prepare(Path(folder), seed, task_settings)
        trainer = _trainer(model, rows, heldout, rewards, arguments, seed, steps, run_dir)
        if fault:
            faults[fault](trainer)
        try:
            trainer.train()
        except RuntimeError as error:
            if _NAN_WEIGHTS not in str(error):
                raise
            planted_truth.write(run_dir, 0.0)  # its log ends here, as that of the user does
        else:
            _write_truth(trainer, task_settings, run_dir)
    trainer.state.save_to_json(str(run_dir / "trainer_state.json"))
    config = run_dir.with_name(f"config-{run_dir.name.rpartition('-')[2]}.json")
    config.write_text(json.dumps(trainer.args.to_dict(), default=str), encoding="utf-8")


def _prepare(
    folder: Path, seed: int, settings: Mapping[str, str]
) -> tuple[Path, list[Any], list[Any]]:
    """Save the warm-started model with its tokenizer; draw prompts and held-out prompts."""
    from grpodoctor.trainer.config.train_config import load_config
    from grpodoctor.trainer.data.loading import build_task
    from grpodoctor.trainer.model.policy import load_policy

    assignments = [f"{key}={value}" for key, value in settings.items() if "." in key]
    config = load_config(assignments=[a for a in assignments if not a.startswith("task.cold")])
    if "task.cold" in settings:
        config = load_config({"model": {"warm_start_steps": 0}})
    task: Any = build_task(config.task)
    model = load_policy(config, task).model
    model.config.eos_token_id, model.config.pad_token_id = 1, 0
    model.config.bos_token_id = None
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = 1, 0
    model.save_pretrained(folder / "model")
    _save_tokenizer(folder / "model")
    problems = task.problems(random.Random(seed), PROMPTS)
    return folder / "model", _rows(problems), _rows(task.heldout(HELDOUT))


def _rows(problems: Sequence[Any]) -> list[Any]:
    return [{"prompt": problem.prompt, "answer": problem.answer} for problem in problems]


def _write_truth(trainer: Any, settings: Mapping[str, str], run_dir: Path) -> None:
    """Keep the accuracy of the final policy on held-out prompts."""
    from grpodoctor.trainer.config.train_config import load_config
    from grpodoctor.trainer.model.tokenizer import CharTokenizer

    assignments = [f"{key}={value}" for key, value in settings.items() if "." in key]
    task = load_config(assignments=[a for a in assignments if not a.startswith("task.cold")]).task
    accuracy = planted_truth.true_accuracy(trainer.model, CharTokenizer(), task, LENGTH)
    planted_truth.write(run_dir, accuracy)


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from grpodoctor.trainer.model.tokenizer import ALPHABET

    words = {word: index for index, word in enumerate(["<pad>", "<end>", *ALPHABET])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))  # noqa: S106 - a token's name
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    names = {"unk_token": "<pad>", "pad_token": "<pad>", "eos_token": "<end>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


def _trainer(
    model: Path,
    rows: list[Any],
    heldout: list[Any],
    rewards: list[Reward],
    arguments: Mapping[str, Any],
    seed: int,
    steps: int,
    run_dir: Path,
) -> Any:
    from datasets import Dataset, disable_progress_bars
    from transformers import PrinterCallback
    from transformers.utils.logging import disable_progress_bar as progress_bars_off
    from trl import GRPOConfig, GRPOTrainer

    disable_progress_bars()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    progress_bars_off()
    options = dict(arguments)
    adapter = _adapter(options.pop("peft", None))
    settings = GRPOConfig(str(run_dir), max_steps=steps, seed=seed, **options)
    trainer = GRPOTrainer(
        str(model),
        reward_funcs=rewards,
        args=settings,
        train_dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(heldout) if settings.eval_strategy != "no" else None,
        peft_config=adapter,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _adapter(options: Mapping[str, Any] | None) -> Any:
    from peft import LoraConfig

    return LoraConfig(target_modules="all-linear", **options) if options else None


def on_batch(trainer: Any, change: Callable[[dict[str, Any]], None]) -> None:
    """Change every generated batch."""
    generate = trainer._generate_and_score_completions

    def changed(inputs: Any) -> Any:
        batch = generate(inputs)
        change(batch)
        return batch

    trainer._generate_and_score_completions = changed


def _flip_sign(trainer: Any) -> None:
    on_batch(trainer, lambda batch: batch.update(advantages=-batch["advantages"]))


def _shuffle(trainer: Any) -> None:
    on_batch(trainer, lambda batch: batch.update(advantages=batch["advantages"].roll(1, 0)))


def _positive_only(trainer: Any) -> None:
    on_batch(trainer, lambda batch: batch.update(advantages=batch["advantages"].abs()))


def _shift_old(trainer: Any) -> None:
    """The old log-probabilities belong to the next token."""

    def shift(batch: dict[str, Any]) -> None:
        batch["old_per_token_logps"] = batch["old_per_token_logps"].roll(-1, 1)

    on_batch(trainer, shift)


def _pad_in_loss(trainer: Any) -> None:
    """The loss covers the padding after the end token."""
    on_batch(
        trainer,
        lambda batch: batch.update(completion_mask=torch.ones_like(batch["completion_mask"])),
    )


def _nan_advantage(trainer: Any) -> None:
    def broken(batch: dict[str, Any]) -> None:
        if trainer.state.global_step >= 40:
            batch["advantages"][0] = float("nan")

    on_batch(trainer, broken)


@torch.no_grad()
def _other_reference(trainer: Any) -> None:
    for weight in trainer.ref_model.parameters():
        weight.mul_(1 + 0.3 * torch.randn_like(weight))


def _dropout(trainer: Any) -> None:
    """Dropout of 20 % while the trainer scores and learns; generation is without."""

    def dropped(module: Any, _inputs: Any, output: Any) -> Any:
        return torch.nn.functional.dropout(output, 0.2, module.training)

    for name, module in trainer.model.named_modules():
        if name.endswith("down_proj"):
            module.register_forward_hook(dropped)


def before_steps(change: Callable[[Any, Any, int], None]) -> Callable[[Any], None]:
    """Call `change(trainer, optimizer, step)` before each step; the first one is 0."""

    def fault(trainer: Any) -> None:
        from transformers import TrainerCallback

        class Change(TrainerCallback):
            def on_step_begin(self, _a: Any, state: Any, _c: Any, **options: Any) -> None:
                change(trainer, options["optimizer"], state.global_step)

        trainer.add_callback(Change())

    return fault


def _lose_optimizer(_: Any, optimizer: Any, step: int) -> None:
    if step >= DIES_AT // 2:
        optimizer.state.clear()


FAULTS: dict[str, Callable[[Any], None]] = {
    "flip_sign": _flip_sign,
    "shuffle": _shuffle,
    "positive_only": _positive_only,
    "shift_old": _shift_old,
    "pad_in_loss": _pad_in_loss,
    "nan_advantage": _nan_advantage,
    "other_reference": _other_reference,
    "dropout": _dropout,
    "lose_optimizer": before_steps(_lose_optimizer),
}

_TOO_FAR = ("OPT006", "CLP001", "KLD001", "CFG050", "REW002", "OPT002")
_TWICE = ("num_iterations=2",)

PLANTS: dict[str, tuple[Any, ...]] = {
    "healthy": ((),),
    "healthy-beta": (("beta=0.04",),),
    "healthy-iterations": (
        ("num_iterations=4", "learning_rate=1e-4"), (), None, None, 160,
    ),
    "healthy-dr-grpo": (('loss_type="dr_grpo"', 'scale_rewards="none"'),),
    "healthy-two-rewards": (("reward=format_first", "reward_weights=[1.0, 0.1]"),),
    "healthy-sorting": (("task.name=sorting",),),
    "lr-10x-too-high": (("learning_rate=5e-3",), _TOO_FAR),
    "lr-100x-too-high": (("learning_rate=5e-2",), _TOO_FAR),
    "lr-1000x-too-low": (("learning_rate=3e-7",), ("OPT005", "CFG051")),
    "bf16-weights": (
        ('model_init_kwargs={"dtype": "bfloat16"}', "learning_rate=1e-6"), ("OPT005", "CFG052"),
    ),
    "grad-clip-too-low": (("max_grad_norm=1e-8",), ("OPT005",)),
    "reward-constant": (("reward=one",), ("REW004", "GRP004")),
    "reward-zero": (("reward=zero",), ("REW004", "GRP002", "GRP004")),
    "reward-negated": (("reward=flipped",), ("REW003", "REW012")),
    "reward-random": (("reward=noise",), ("REW018", "REW001", "REW011"), None, None, 120),
    "reward-noisy": (("reward=noisy",), ("REW001", "REW011"), None, None, 120),
    "reward-is-length": (("reward=length_only",), ("REW013", "LEN004", "LEN006", "REW010")),
    "length-bonus": (("reward=length_bonus",), ("REW010", "REW013", "LEN004", "LEN006")),
    "length-penalty": (("reward=short_only",), ("LEN005", "REW010", "REW013")),
    "format-dominates": (("reward=format_first",), ("REW010", "REW007", "REW005")),
    "reward-outweighed": (("reward=outweighed",), ("REW005", "REW010", "REW012")),
    "components-cancel": (("reward=canceling",), ("GRP003",)),
    "reward-dies": (("reward=dies",), ("REW002", "REW004", "GRP002", "GRP004")),
    "reward-unscored": (("reward=unscored",), ("OPT001", "OPT003", "REW002", "GRP004")),
    "reward-infinite": (("reward=infinite",), ("OPT003",)),
    "repetition": (("reward=repeats",), ("LEN008", "LEN004", "LEN006", "LEN002")),
    "judge-times-out": (("reward=timeouts",), ("REW011", "GRP002", "DAT002")),
    "group-of-two": (("num_generations=2",), ("GRP007", "CFG006", "CFG013"), None, None, 60, True),
    "all-hard": (("reward=almost_never",), ("GRP002", "GRP007")),
    "cold-start": (("task.cold=1",), ("GRP002", "REW004", "LEN007", "LEN002")),
    "all-easy": (("task.difficulty=1",), ("GRP001", "REW006", "GRP004"), None, None, 200),
    "limit-too-low": (("max_completion_length=9",), ("LEN002", "LEN003")),
    "end-token-suppressed": (
        ('generation_kwargs={"suppress_tokens": [1], "use_cache": true}',), ("LEN007", "LEN002")
    ),
    "repetition-penalty": (("repetition_penalty=1.5",), ("CFG023",), None, None, 60, True),
    "top-p": (("top_p=0.6",), ("CFG021",), None, None, 60, True),
    "kl-sign-inverted": (("beta=-0.5",), ("KLD004", "KLD002", "KLD001", "REW002", "CFG060")),
    "beta-too-high": (("beta=20.0",), ("CFG043", "CFG060"), None, None, 60, True),
    "other-reference": (("beta=0.04",), ("KLD003",), "other_reference"),
    "clip-too-narrow": (
        ("epsilon=1e-4", "epsilon_high=1e-4", "num_iterations=4"), ("CLP001",), None, None, 160,
    ),
    "gspo-epsilon-0.2": (
        ('importance_sampling_level="sequence"', "epsilon=0.2", "num_iterations=4"),
        ("CFG001", "CLP002"), None, None, 160, True,
    ),
    "16-updates-per-batch": (
        ("num_iterations=16", "learning_rate=1e-3"), _TOO_FAR, None, None, 480,
    ),
    "shifted-old-logprobs": (
        _TWICE, ("MIS002", "CLP001", "KLD001", "REW002"), "shift_old", None, 120,
    ),
    "dropout-in-learner": (_TWICE, ("MIS002", "CLP001"), "dropout", None, 120),
    "advantage-sign": ((), ("REW002",), "flip_sign"),
    "advantages-shuffled": ((), ("REW001", "REW002"), "shuffle"),
    "advantages-positive": ((), ("GRP005", "ENT001", "REW001"), "positive_only"),
    "padding-in-loss": ((), ("DAT001", "LEN006", "LEN007"), "pad_in_loss"),
    "nan-advantage": ((), ("OPT003",), "nan_advantage"),
    "optimizer-state-lost": (("learning_rate=1e-3",), _TOO_FAR, "lose_optimizer"),
}  # fmt: skip
"""Settings, codes that name the cause, fault, preset (none), steps, config given."""
