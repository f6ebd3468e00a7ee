"""Causes that were planted in TRL runs after the rules were written; see `planted_unseen`.

ENT006, REW017, REW018, REW019 and SYN010 were written because of `temperature-3`, `one-nan-reward`,
`labels-flipped-40`, `judge-outages` and `weights-reset`, and accepted for them afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from planted_trl import Rewards, before_steps, on_batch
from planted_unseen import STARTS_AT

from grpodoctor.trials import rewards as sick_rewards


def _from_step(
    change: Callable[[list[float], list[str]], Rewards], start: int = STARTS_AT
) -> Callable[[], list[Callable[..., Rewards]]]:
    """The right reward, changed from a step on."""

    def build() -> list[Callable[..., Rewards]]:
        calls = {"count": 0}

        def reward(
            prompts: list[str], completions: list[str], answer: list[str], **_: Any
        ) -> Rewards:
            calls["count"] += 1
            values = sick_rewards.good(prompts, completions, answer)
            return list(values) if calls["count"] < start else change(values, completions)

        return [reward]

    return build


def _one_nan(values: list[float], _: list[str]) -> Rewards:
    return [float("nan"), *values[1:]]


def _only_short(values: list[float], texts: list[str]) -> Rewards:
    return [value * (len(text) <= 8) for value, text in zip(values, texts, strict=True)]


def _scaled(values: list[float], _: list[str]) -> Rewards:
    return [100 * value for value in values]


def _coin(values: list[float], _: list[str]) -> Rewards:
    return [1 - value if random.random() < 0.4 else value for value in values]


_OUTAGES = frozenset({*range(30, 34), *range(50, 54), *range(65, 69)})
"""Calls in which the judge is down."""


def _outages() -> list[Callable[..., Rewards]]:
    """The right reward, but 0 for every response while the judge is down."""
    calls = {"count": 0}

    def reward(prompts: list[str], completions: list[str], answer: list[str], **_: Any) -> Rewards:
        calls["count"] += 1
        if calls["count"] in _OUTAGES:
            return [0.0] * len(completions)
        return list(sick_rewards.good(prompts, completions, answer))

    return [reward]


def _of_last_batch() -> list[Callable[..., Rewards]]:
    """Each response has the reward of the same place in the batch before."""
    last: list[Rewards] = []

    def reward(prompts: list[str], completions: list[str], answer: list[str], **_: Any) -> Rewards:
        last.append(list(sick_rewards.good(prompts, completions, answer)))
        return last[max(0, len(last) - 2)]

    return [reward]


REWARDS = {
    "outages": _outages,
    "of_last_batch": _of_last_batch,
    "one_nan": _from_step(_one_nan),
    "only_short": _from_step(_only_short),
    "scaled": _from_step(_scaled),
    "coin": _from_step(_coin, 0),
}


def _before_step(change: Callable[[Any, Any], None]) -> Callable[[Any], None]:
    """Call `change(trainer, optimizer)` before each step from step 40 on."""

    def changed(trainer: Any, optimizer: Any, step: int) -> None:
        if step >= STARTS_AT:
            change(trainer, optimizer)

    return before_steps(changed)


def _lower_limit(trainer: Any, _: Any) -> None:
    trainer.max_completion_length = 9
    trainer.generation_config.max_new_tokens = 9


def _raise_rate(_: Any, optimizer: Any) -> None:
    for group in optimizer.param_groups:
        group["lr"] = 1e-2


def _end_not_in_loss(trainer: Any) -> None:
    def change(batch: dict[str, Any]) -> None:
        mask = batch["completion_mask"]
        after = torch.nn.functional.pad(mask[:, 1:], (0, 1))
        batch["completion_mask"] = mask * after

    on_batch(trainer, change)


def _same_samples(trainer: Any) -> None:
    """From step 40 on, all responses of a group are copies of its first one."""
    generate = trainer._generate_single_turn

    def changed(prompts: list[Any], *arguments: Any, **options: Any) -> Any:
        ids, logprobs = generate(prompts, *arguments, **options)
        if trainer.state.global_step < STARTS_AT:
            return ids, logprobs
        group = trainer.num_generations
        return [ids[at - at % group] for at in range(len(ids))], logprobs

    trainer._generate_single_turn = changed


def _reset_weights(trainer: Any) -> None:
    """At step 40 the weights are those of the start."""
    start = [weight.detach().clone() for weight in trainer.model.parameters()]

    @torch.no_grad()
    def reset(trainer: Any, _: Any) -> None:
        if trainer.state.global_step == STARTS_AT:
            for weight, first in zip(trainer.model.parameters(), start, strict=True):
                weight.copy_(first)

    _before_step(reset)(trainer)


def _cool_down(trainer: Any, _: Any) -> None:
    """The temperature falls by a tenth per step, and the loss uses it too."""
    trainer.temperature = max(0.05, trainer.temperature * 0.9)
    trainer.generation_config.temperature = trainer.temperature


def _freeze(trainer: Any) -> None:
    for weight in list(trainer.model.parameters())[:-1]:
        weight.requires_grad_(requires_grad=False)


def _mixed_groups(trainer: Any) -> None:
    """Each response has the advantage of the same place in another group."""
    on_batch(trainer, lambda batch: batch.update(advantages=batch["advantages"].roll(8, 0)))


FAULTS: dict[str, Callable[[Any], None]] = {
    "lower_limit": _before_step(_lower_limit),
    "raise_rate": _before_step(_raise_rate),
    "end_not_in_loss": _end_not_in_loss,
    "mixed_groups": _mixed_groups,
    "same_samples": _same_samples,
    "reset_weights": _reset_weights,
    "cool_down": _before_step(_cool_down),
    "freeze": _freeze,
}

_FALL = ("REW014", "REW002")
_TOO_FAR = ("OPT006", "CLP001", "KLD001", "CFG050", "OPT002", "OPT004")

PLANTS: dict[str, tuple[Any, ...]] = {
    "healthy-cosine": (('lr_scheduler_type="cosine"', "warmup_steps=10"), (), None, None, 80),
    "healthy-group-16": (("num_generations=16",), (), None, None, 80),
    "healthy-lr-1e-4": (("learning_rate=1e-4",), (), None, None, 80),
    "one-nan-reward": (("reward=one_nan",), ("REW017", "OPT003", "REW004", *_FALL), None, None, 80),
    "parser-breaks": (("reward=only_short",), (*_FALL, "GRP002", "REW004"), None, None, 80),
    "reward-100x": (("reward=scaled",), ("REW016", "REW010", "OPT002", "OPT004"), None, None, 80),
    "labels-flipped-40": (
        ("reward=coin",), ("REW018", "REW011", "REW001", "REW012"), None, None, 80
    ),
    "limit-lowered": ((), ("LEN002", "LEN003", "LEN005", "REW014"), "lower_limit", None, 80),
    "lr-jumps": ((), (*_TOO_FAR, *_FALL), "raise_rate", None, 80),
    "temperature-3": (
        ("temperature=3.0",),
        ("ENT006", "CFG020", "ENT002", "GRP002", "GRP007", "LEN002", "LEN007"), None, None, 80,
    ),
    "end-not-in-loss": (
        (), ("DAT001", "LEN007", "LEN006", "LEN002", "LEN004"), "end_not_in_loss", None, 80
    ),
    "groups-rolled": ((), ("REW001", "REW002", "REW011", "OPT005"), "mixed_groups", None, 80),
    "judge-outages": (
        ("reward=outages",), ("REW019", "REW011", "DAT002", "GRP002", "OPT001", *_FALL),
        None, None, 80,
    ),
    "rewards-of-last-batch": (
        ("reward=of_last_batch",), ("REW001", "REW011", "REW012", "REW002"), None, None, 80
    ),
    "same-samples": (
        (), ("DAT006", "GRP001", "GRP002", "GRP004", "GRP007", "OPT001"), "same_samples", None, 80
    ),
    "weights-reset": ((), (*_FALL, "SYN009", "SYN010"), "reset_weights", None, 80),
    "temperature-decays": (
        (), ("ENT001", "GRP001", "GRP004", "CFG020", "OPT001"), "cool_down", None, 80
    ),
    "only-last-layer": ((), ("OPT005", "OPT001", "REW001"), "freeze", None, 80),
}  # fmt: skip
"""Settings, codes that name the cause, fault, preset (none), steps."""
