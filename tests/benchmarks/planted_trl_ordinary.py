"""The part of the seventh set of planted causes that TRL trains; see `planted_ordinary`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planted_reports import Case
from planted_trl import Reward, on_batch
from planted_trl_reports import EVALUATED, Texts, by_response, reward_named
from planted_unseen import share

from grpodoctor.trials import rewards as sick_rewards

STEPS = 80
_TARGET = 12
"""Length that a part of the reward asks for, in characters."""
_FAILED_CALLS = 0.002
_END = 1
"""Id of the end token."""


def _missing_column(_: Texts, texts: Texts, __: Texts) -> list[float]:
    """The function reads `kwargs.get("answers")`; the column is `answer`, so it gets None."""
    wanted: list[str | None] = [None] * len(texts)
    return [
        float(text.rpartition("#")[2] == want) for text, want in zip(texts, wanted, strict=True)
    ]


def _either_contains(_: Texts, texts: Texts, answers: Texts) -> list[float]:
    """The answer contains the reference or is contained in it, as an empty one is."""
    stated = [text.rpartition("#")[2].strip() for text in texts]
    return [float(want in own or own in want) for own, want in zip(stated, answers, strict=True)]


def _inverted(prompts: Texts, texts: Texts, answers: Texts) -> list[float]:
    """The term falls as the grade rises."""
    return [1 - value for value in sick_rewards.good(prompts, texts, answers)]


def _with_failed_calls(prompts: Texts, texts: Texts, answers: Texts) -> list[float | None]:
    """A few calls of the judge fail and return None."""
    values = sick_rewards.good(prompts, texts, answers)
    rows = zip(values, prompts, texts, range(len(texts)), strict=True)
    return [None if share(f"{p}{t}{at}") < _FAILED_CALLS else v for v, p, t, at in rows]


_CORRECT = reward_named("accuracy_reward", sick_rewards.good)
_FORMAT = reward_named("format_reward", by_response(lambda text: text.count("#") == 1))

REWARDS: dict[str, Callable[[], list[Reward]]] = {
    "missing_column": lambda: [
        reward_named("math_correct", _missing_column),
        reward_named("length_bonus", by_response(lambda text: min(len(text) / 8, 1.0))),
    ],
    "either_contains": lambda: [reward_named("accuracy_reward", _either_contains), _FORMAT],
    "target_length": lambda: [
        _CORRECT,
        reward_named("reward_len", by_response(lambda text: abs(_TARGET - len(text)) / _TARGET)),
    ],
    "inverted_term": lambda: [
        reward_named("reasoning_reward", _inverted), _FORMAT,
        reward_named("reasoning_score", sick_rewards.good),
    ],
    "failed_calls": lambda: [reward_named("judge_reward", _with_failed_calls), _FORMAT],
    "accuracy_and_format": lambda: [_CORRECT, _FORMAT],
}  # fmt: skip


def _padded_with_end_tokens(trainer: Any) -> None:
    """Responses are padded with end tokens, which the mask takes for generated ones."""
    generate = trainer._generate_single_turn

    def changed(*arguments: Any, **options: Any) -> Any:
        ids, logprobs = generate(*arguments, **options)
        width = max(map(len, ids))
        return [[*row, *[_END] * (width - len(row))] for row in ids], logprobs

    trainer._generate_single_turn = changed


def _nan_spreads(trainer: Any) -> None:
    """One missing reward makes all advantages of its batch NaN, since means are not NaN-safe."""
    score = trainer._calculate_rewards
    failed = {"now": False}

    def scored(*arguments: Any, **options: Any) -> Any:
        rewards = score(*arguments, **options)
        failed["now"] = bool(rewards.isnan().any())
        return rewards

    def change(batch: dict[str, Any]) -> None:
        if failed["now"]:
            batch["advantages"] = batch["advantages"] * float("nan")

    trainer._calculate_rewards = scored
    on_batch(trainer, change)


FAULTS: dict[str, Callable[[Any], None]] = {
    "padded_with_end_tokens": _padded_with_end_tokens,
    "nan_spreads": _nan_spreads,
}

_SHOWN = ("log_completions=true", "num_completions_to_print=0")
_HACKED = ("REW005", "REW003", "REW008", "REW009", "REW102")
_LENGTH = ("LEN002", "LEN003", "LEN004", "LEN005", "LEN006", "LEN008", "REW013", "REW015")

CASES: dict[str, Case] = {
    "reads-a-missing-column": Case(
        ("reward=missing_column", *EVALUATED, *_SHOWN),
        ("REW004", "REW101", "REW104", "REW106", "GRP002", "REW010", "REW013"),
        cause="The accuracy function reads a column that the data set does not have, so it is 0.",
        words="a part of the reward is never earned, or only length is paid",
    ),
    "empty-answer-accepted": Case(
        ("reward=either_contains", *EVALUATED, *_SHOWN),
        ("REW012", "REW013", "REW015", "REW021", "LEN005", "REW101", "REW102", *_HACKED),
        cause="An answer that the reference contains is right, so an empty answer is.",
        words="responses shrink, rewards do not follow answers, or no progress on held-out prompts",
    ),
    "target-length-inverted": Case(
        ("reward=target_length", *EVALUATED, *_SHOWN), ("REW010", *_LENGTH, *_HACKED),
        cause="The distance from a target length is paid, instead of its negative.",
        words="length is paid, one part dominates, or responses grow or shrink",
    ),
    "term-with-inverted-sign": Case(
        ("reward=inverted_term", "reward_weights=[1.0, 0.5, 0.0]", *EVALUATED, *_SHOWN),
        ("REW002", "REW012", *_HACKED),
        cause="A term of the reward has the wrong sign; the grade itself is only logged.",
        words="the grade falls while the reward rises",
    ),
    "limit-below-the-answer": Case(
        ("max_completion_length=6", *_SHOWN), ("LEN002", "LEN003", "CFG025"),
        cause="The default length limit cuts nearly every response before its answer.",
        words="the length limit truncates responses",
    ),
    "two-generations": Case(
        ("num_generations=2", "per_device_train_batch_size=8", *_SHOWN),
        ("GRP007", "CFG006", "CFG013"),
        cause="Groups of two responses mostly have equal rewards, in a batch of eight.",
        words="the group is too small for the pass rate",
    ),
    "temperature-of-one-tenth": Case(
        ("temperature=0.1", *_SHOWN),
        ("CFG022", "CFG060", "GRP004", "DAT006", "OPT001", "ENT001", "ENT003"),
        cause="The sampler is almost greedy, so a group's responses are alike.",
        words="samples are greedy or copies, or groups have equal rewards",
    ),
    "fine-tuning-rate": Case(
        ('peft={"r": 16, "lora_alpha": 32}', "learning_rate=0.15", *_SHOWN),
        ("OPT006", "CLP001", "KLD001", "CFG050", "REW002", "OPT002"),
        cause="The learning rate is that of supervised fine-tuning, 50 times too high.",
        words="the learning rate is too high, steps are too large, or the reward collapses",
    ),
    "padded-with-end-tokens": Case(
        ('loss_type="bnpo"', *EVALUATED, *_SHOWN),
        ("DAT001", "INS001", "LEN002", "LEN003", "LEN007", "LEN008"), "padded_with_end_tokens",
        cause="Responses are padded with the end token, so the loss covers the padding.",
        words="the loss has tokens that the policy did not generate, or all lengths are equal",
    ),
    "one-missing-reward-spreads": Case(
        ("reward=failed_calls", *_SHOWN), ("OPT003", "OPT001", "DAT002"), "nan_spreads",
        cause="A reward of None makes every advantage of its batch NaN.",
        words="NaN in a metric, or rewards are missing",
    ),
    "healthy-linear-schedule": Case(
        ('lr_scheduler_type="linear"', "warmup_steps=8", "beta=0.02", *EVALUATED, *_SHOWN),
        steps=120,
    ),
    "healthy-accuracy-and-format": Case(
        ("reward=accuracy_and_format", "reward_weights=[1.0, 0.5]", 'lr_scheduler_type="cosine"',
         *EVALUATED, *_SHOWN)
    ),
    "healthy-lora-40-steps": Case(
        ('peft={"r": 16, "lora_alpha": 32}', "learning_rate=3e-3", *_SHOWN), steps=40
    ),
}  # fmt: skip
"""In the order of their numbers, from 0."""
