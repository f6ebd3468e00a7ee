"""The part of the third set of planted causes that is trained with TRL; see `planted_field`."""

from __future__ import annotations

import copy
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from planted_trl import GROUP, Reward, Rewards, before_steps, on_batch
from planted_unseen import share

from grpodoctor.trials import rewards as sick_rewards

STEPS = 80
_BEGINS = 30

Texts = list[str]


def _scored(change: Callable[[list[float], Texts, Texts, Texts], Rewards]) -> Callable[..., Any]:
    """The right reward, changed by `change(rewards, prompts, completions, answers)`."""

    def build() -> list[Reward]:
        def correct(prompts: Texts, completions: Texts, answer: Texts, **_: Any) -> Rewards:
            values = sick_rewards.good(prompts, completions, answer)
            return change(values, prompts, completions, answer)

        return [correct]

    return build


def _the_prompt(_: list[float], prompts: Texts, __: Texts, answers: Texts) -> Rewards:
    """The parser gets the prompt, whose last digit it takes for the answer."""
    return [float(prompt[-2] == answer) for prompt, answer in zip(prompts, answers, strict=True)]


def _other_format(values: list[float], prompts: Texts, _: Texts, __: Texts) -> Rewards:
    """Most answers of the data set are spelled as 7.0, which no response equals."""
    return [value * (share(prompt) < 0.15) for value, prompt in zip(values, prompts, strict=True)]


def _sorted(_: list[float], prompts: Texts, completions: Texts, answers: Texts) -> Rewards:
    """The reward model sorts responses by length, and returns its scores in that order."""
    order = sorted(range(len(completions)), key=lambda row: len(completions[row]))
    values = sick_rewards.good(prompts, completions, answers)
    return [values[row] for row in order]


def _stuck() -> list[Reward]:
    """From step 30 on, the judge returns the scores of that step for every batch."""
    calls: list[Rewards] = []

    def correct(prompts: Texts, completions: Texts, answer: Texts, **_: Any) -> Rewards:
        if len(calls) < _BEGINS:
            calls.append(list(sick_rewards.good(prompts, completions, answer)))
        return calls[-1]

    return [correct]


def _half_inverted(values: list[float], prompts: Texts, _: Texts, __: Texts) -> Rewards:
    """Half of the rows are labeled with whether the response is wrong."""
    return [
        1 - value if share(prompt) < 0.5 else value
        for value, prompt in zip(values, prompts, strict=True)
    ]


def _first_only(values: list[float], _: Texts, __: Texts, ___: Texts) -> Rewards:
    """Of each group, only the first response is scored; the others get 0."""
    return [value * (row % GROUP == 0) for row, value in enumerate(values)]


def _novelty() -> list[Reward]:
    """A bonus for responses that no other response of the batch resembles."""

    def correct(prompts: Texts, completions: Texts, answer: Texts, **_: Any) -> Rewards:
        return list(sick_rewards.good(prompts, completions, answer))

    def novelty(completions: Texts, **_: Any) -> Rewards:
        bags = [frozenset(itertools.pairwise(text)) for text in completions]
        counts = Counter(itertools.chain.from_iterable(bags))
        return [3 * sum(1 / counts[pair] for pair in bag) / max(1, len(bag)) for bag in bags]

    return [correct, novelty]


def _noisy(values: list[float], _: Texts, __: Texts, ___: Texts) -> Rewards:
    """A judge with noise of a third of the reward's range."""
    return [value + random.gauss(0, 0.3) for value in values]


REWARDS: dict[str, Callable[[], list[Reward]]] = {
    "the_prompt": _scored(_the_prompt),
    "other_format": _scored(_other_format),
    "sorted": _scored(_sorted),
    "stuck": _stuck,
    "half_inverted": _scored(_half_inverted),
    "first_only": _scored(_first_only),
    "novelty": _novelty,
    "a_little_noise": _scored(_noisy),
}


def _frozen_sampler(trainer: Any) -> None:
    """The server samples with the weights that it was started with."""
    sampler = copy.deepcopy(trainer.model)
    sampler.__dict__.pop("forward")  # the wrapper around it still calls the learner
    trainer.model.generate = sampler.generate


def _short_prompts(trainer: Any) -> None:
    """The prompt limit is too small: only the last four tokens are left."""
    tokenize = trainer._tokenize_prompts

    def changed(prompts: Any) -> Any:
        ids, *rest = tokenize(prompts)
        return ([row[-4:] for row in ids], *rest)

    trainer._tokenize_prompts = changed


def _zero_old(trainer: Any) -> None:
    """The old log-probabilities are the zeros of a buffer that nothing fills."""

    def change(batch: dict[str, Any]) -> None:
        batch["old_per_token_logps"] = torch.zeros_like(batch["old_per_token_logps"])

    on_batch(trainer, change)


def _last_micro_batch(trainer: Any) -> None:
    """Gradients are cleared before each micro-batch, so only the last one counts."""
    step = trainer.training_step

    def changed(*arguments: Any, **options: Any) -> Any:
        trainer.model.zero_grad()
        return step(*arguments, **options)

    trainer.training_step = changed


@torch.no_grad()
def _new_layer(trainer: Any) -> None:
    """A weight was missing in the checkpoint, and was initialized at random."""
    for name, weight in trainer.model.named_parameters():
        if "layers.1" in name and "proj" in name:
            weight.copy_(0.1 * torch.randn_like(weight))


def _reset_often(trainer: Any) -> None:
    """Every 20 steps, an evaluation loads the checkpoint of the start and leaves it loaded."""
    start = copy.deepcopy(trainer.model.state_dict())

    def reset(trainer: Any, _: Any, step: int) -> None:
        if step and step % 20 == 0:
            trainer.model.load_state_dict(start)

    before_steps(reset)(trainer)


def _copied_parameters(trainer: Any) -> None:
    """The model was wrapped after the optimizer was made, which updates a copy."""

    def swap(trainer: Any, _: Any, step: int) -> None:
        if step:
            return
        for group in trainer.optimizer.param_groups:
            copies = [torch.nn.Parameter(weight.detach().clone()) for weight in group["params"]]
            for weight in copies:
                weight.grad = torch.zeros_like(weight)
            group["params"] = copies

    before_steps(swap)(trainer)


def _sort_rows(key: Callable[[dict[str, str]], Any]) -> Callable[[Any], None]:
    def fault(trainer: Any) -> None:
        rows = sorted(trainer.train_dataset, key=key)
        trainer.train_dataset = type(trainer.train_dataset).from_list(rows)

    return fault


def _few_rows(trainer: Any) -> None:
    """The subset of a test run is still in force."""
    trainer.train_dataset = trainer.train_dataset.select([0, 1, 2, 3] * 16)


FAULTS: dict[str, Callable[[Any], None]] = {
    "frozen_sampler": _frozen_sampler,
    "short_prompts": _short_prompts,
    "zero_old": _zero_old,
    "last_micro_batch": _last_micro_batch,
    "new_layer": _new_layer,
    "reset_often": _reset_often,
    "copied_parameters": _copied_parameters,
    "sort_by_answer": _sort_rows(lambda row: row["answer"]),
    "few_rows": _few_rows,
}

_FLAT = ("REW001", "REW020")
_BLIND = ("REW018", "REW021", "REW011", "REW012", *_FLAT)
_FALL = ("REW014", "REW002")
_OFF = ("MIS001", "MIS003", "SYN001", "SYN002", "SYN008")

PLANTS: dict[str, tuple[Any, ...]] = {
    "reward-reads-prompt": (("reward=the_prompt",), ("GRP004", "OPT001", *_FLAT)),
    "answers-in-other-format": (("reward=other_format",), ("GRP002", "GRP007", "REW101")),
    "rewards-in-sorted-order": (("reward=sorted",), (*_BLIND, "REW002")),
    "judge-stuck": (
        ("reward=stuck",), ("REW004", "GRP004", "REW018", "REW011", "INS001", *_FLAT, *_FALL),
    ),
    "half-of-labels-inverted": (("reward=half_inverted",), _BLIND),
    "first-of-group-scored": (
        ("reward=first_only",), ("GRP002", "REW021", "GRP007", "REW017", "GRP004", *_FLAT)
    ),
    "novelty-bonus": (
        ("reward=novelty",), ("ENT002", "REW010", "REW005", "REW012", "REW009", "ENT006"),
    ),
    "temperature-0.05": (
        ("temperature=0.05",),
        ("CFG022", "ENT001", "ENT003", "GRP001", "GRP002", "GRP004", "GRP007", "DAT006"),
    ),
    "sampler-never-updated": ((), (*_OFF, *_FLAT), "frozen_sampler"),
    "prompts-too-short": (
        (), ("GRP002", "REW018", "DAT106", "DAT115", "GRP007", *_FLAT), "short_prompts"
    ),
    "truncated-masked": (
        ("max_completion_length=6", "mask_truncated_completions=true"),
        ("LEN002", "LEN003", "LEN005", "DAT005"),
    ),
    "old-logprobs-zero": (
        ("num_iterations=2",), ("MIS002", "CLP001", "KLD001"), "zero_old", None, 2 * STEPS
    ),
    "last-micro-batch-counts": (
        ("per_device_train_batch_size=8", "gradient_accumulation_steps=8"),
        ("OPT002", "OPT004", "GRP007", "REW011", *_FLAT), "last_micro_batch",
    ),
    "four-prompts": (
        ("learning_rate=1e-3",),
        ("GRP001", "REW006", "ENT001", "ENT003", "CFG014", "DAT125", "REW003", "DAT107"),
        "few_rows",
    ),
    "layer-initialized-at-random": (
        (), ("GRP002", "ENT006", "LEN002", "LEN007", "REW004", "GRP007", *_FLAT), "new_layer"
    ),
    "sorted-by-answer": (
        ("shuffle_dataset=false", "learning_rate=1e-3"),
        ("REW011", "REW019", "GRP001", "ENT001", "ENT003", *_FALL), "sort_by_answer",
    ),
    "one-percent-of-tokens": (
        ("top_entropy_quantile=0.01",), ("OPT005", "DAT005", "CFG060", *_FLAT)
    ),
    "weights-reset-every-20": (
        (), ("SYN010", "SYN009", "SYN004", *_FLAT, *_FALL), "reset_often"
    ),
    "optimizer-updates-a-copy": (
        (), ("OPT005", "OPT001", "CFG051", *_FLAT), "copied_parameters"
    ),
    "beta2-below-beta1": (
        ("adam_beta1=0.99", "adam_beta2=0.5", "learning_rate=1e-3"),
        ("OPT006", "OPT002", "OPT004", "KLD001", "CFG058", "CFG060", *_FALL),
    ),
    "healthy-linear-decay": (('lr_scheduler_type="linear"',), ()),
    "healthy-noisy-judge": (("reward=a_little_noise",), ()),
    "healthy-beta": (("beta=0.1",), ()),
    "healthy-lr-8e-4": (("learning_rate=8e-4",), ()),
    "healthy-short": ((), (), None, None, 25),
    "healthy-two-updates": (("num_iterations=2", 'loss_type="dr_grpo"'), (), None, None, 2 * STEPS),
}  # fmt: skip
"""Settings, codes that name the cause, fault, preset (none), steps."""
