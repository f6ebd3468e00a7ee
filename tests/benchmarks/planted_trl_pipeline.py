"""The part of the fifth set of planted causes that is trained with TRL; see `planted_pipeline`."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import torch
from planted_reports import Case
from planted_trl import Reward, before_steps, on_batch
from planted_trl_reports import EVALUATED, Texts, reward_named
from planted_unseen import share

from grpodoctor.trials import rewards as sick_rewards

STEPS = 80
_BEGINS = 30
_FIRST_TOKENS = 6
_ROUTED = 0.15
"""Share of the prompts whose kind has a verifier."""


def _repeats(_: Texts, texts: Texts, __: Texts) -> list[float]:
    """The share of repeated characters, which should have a negative sign."""
    return [1 - len(set(text)) / max(1, len(text)) for text in texts]


def _of_some_kinds(prompts: Texts, texts: Texts, answers: Texts) -> list[float | None]:
    """The accuracy of the prompts whose kind has a verifier; None for the others."""
    values = sick_rewards.good(prompts, texts, answers)
    rows = zip(values, prompts, strict=True)
    return [value if share(prompt) < _ROUTED else None for value, prompt in rows]


def _brevity(_: Texts, texts: Texts, __: Texts) -> list[float]:
    return [1 - len(text) / 24 for text in texts]


def _ranks(prompts: Texts, texts: Texts, answers: Texts) -> list[float]:
    """The judge returns the rank within the group, where 1 is the best."""
    values = sick_rewards.good(prompts, texts, answers)
    ranks: list[float] = []
    for _, rows in itertools.groupby(zip(prompts, values, strict=True), key=lambda row: row[0]):
        group = [value for _, value in rows]
        best = sum(group)
        ranks += [
            (best + 1) / 2 if value else best + (len(group) - best + 1) / 2 for value in group
        ]
    return ranks


def _long_enough(_: Texts, texts: Texts, __: Texts) -> list[float]:
    """A small bonus for the first twelve characters."""
    return [min(len(text), 12) / 60 for text in texts]


def _start_of_text(_: Texts, texts: Texts, answers: Texts) -> list[float]:
    """The judge sees the first six characters and takes the last digit of these."""
    rows = zip(texts, answers, strict=True)
    return [
        float(next((c for c in reversed(text[:6]) if c.isdigit()), "") == answer)
        for text, answer in rows
    ]


_CORRECT = reward_named("accuracy_reward", sick_rewards.good)
_EXACT = reward_named("exact_match", sick_rewards.good)

REWARDS: dict[str, Callable[[], list[Reward]]] = {
    "repetition_sign": lambda: [_CORRECT, reward_named("repetition_penalty", _repeats)],
    "some_kinds": lambda: [
        reward_named("accuracy_reward", _of_some_kinds), reward_named("brevity_reward", _brevity)
    ],
    "ranks": lambda: [reward_named("judge", _ranks)],
    "start_of_text": lambda: [reward_named("judge", _start_of_text), _EXACT],
    "long_enough": lambda: [_CORRECT, reward_named("length_reward", _long_enough)],
}  # fmt: skip


def _cached_responses(trainer: Any) -> None:
    """A response cache has the prompt as its key, and 48 prompts are trained."""
    trainer.train_dataset = trainer.train_dataset.select(list(range(48)) * 4)
    generate, kept = trainer._generate_single_turn, {}

    def changed(prompts: list[Any], *arguments: Any, **options: Any) -> Any:
        ids, logprobs = generate(prompts, *arguments, **options)
        if not trainer.model.training:
            return ids, logprobs
        seen: dict[str, int] = {}
        for row, prompt in enumerate(prompts):
            place = seen[str(prompt)] = seen.get(str(prompt), -1) + 1
            ids[row] = kept.setdefault((str(prompt), place), ids[row])
        return ids, logprobs

    trainer._generate_single_turn = changed


def _without_minus(trainer: Any) -> None:
    """A cleaning step deletes minus signs from the prompts, but answers stay."""
    for name in ("train_dataset", "eval_dataset"):
        rows = getattr(trainer, name)
        cleaned = rows.map(lambda row: {**row, "prompt": row["prompt"].replace("-", "")})
        setattr(trainer, name, cleaned)


def _without_mask(trainer: Any) -> None:
    """Generation gets no attention mask, so responses attend to the padding of the prompts."""
    generate = trainer.model.generate

    def changed(*arguments: Any, **inputs: Any) -> Any:
        if "attention_mask" in inputs:
            inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
        return generate(*arguments, **inputs)

    trainer.model.generate = changed


def _only_first_tokens(trainer: Any) -> None:
    """The learner has a shorter limit, so the loss covers six tokens of each response."""

    def change(batch: dict[str, Any]) -> None:
        mask = batch["completion_mask"].clone()
        mask[:, _FIRST_TOKENS:] = 0
        batch["completion_mask"] = mask

    on_batch(trainer, change)


def _detached_weights(trainer: Any) -> None:
    """From step 30 on the optimizer updates copies: the weights were moved to other storage."""

    def swap(trainer: Any, optimizer: Any, step: int) -> None:
        if step != _BEGINS:
            return
        for group in optimizer.param_groups:
            copies = [copy.deepcopy(weight) for weight in group["params"]]
            for weight in copies:
                weight.grad = torch.zeros_like(weight)
            group["params"] = copies

    before_steps(swap)(trainer)


FAULTS: dict[str, Callable[[Any], None]] = {
    "cached_responses": _cached_responses,
    "without_minus": _without_minus,
    "without_mask": _without_mask,
    "only_first_tokens": _only_first_tokens,
    "detached_weights": _detached_weights,
}

_SHOWN = ("log_completions=true",)
_MONITORED = ("reward_weights=[1.0, 0.0]",)
_FLAT = ("REW001", "REW020")
_HACKED = ("REW005", "REW003", "REW008", "REW009", "REW102")
_SHORT = ("LEN005", "REW013", "REW015")
_OFF = ("MIS001", "MIS003", "SYN001", "SYN002", "SYN008")

CASES: dict[str, Case] = {
    "responses-cached-by-prompt": Case(
        ("learning_rate=1e-3", *EVALUATED, *_SHOWN),
        (*_OFF, "DAT006", "REW008", *_FLAT), "cached_responses",
        cause="A response cache has the prompt as its key, so old responses come back.",
        words="samples are stale or copies, weights never arrive, or held-out prompts do not gain",
    ),
    "no-repeated-ngrams-in-sampler": Case(
        ('generation_kwargs={"no_repeat_ngram_size": 2, "use_cache": true}', *EVALUATED),
        ("CFG023", "CFG021", "MIS001", "MIS003", "GRP002", *_FLAT),
        cause="The generation config forbids repeated bigrams, which the learner does not know.",
        words="the sampler restricts tokens that the loss does not, or the run does not learn",
        with_config=True,
    ),
    "repetition-penalty-with-plus": Case(
        ("reward=repetition_sign", "reward_weights=[1.0, 3.0]", *EVALUATED),
        (*_HACKED, "REW010", "REW012", "REW013", "LEN002", "LEN004", "LEN006", "LEN008"),
        cause="The repetition penalty has a positive sign, so repetitions are paid.",
        words="one part dominates, accuracy falls, or responses repeat or grow",
    ),
    "most-kinds-have-no-verifier": Case(
        ("reward=some_kinds", *EVALUATED),
        ("REW017", "OPT001", "DAT002", "REW010", *_SHORT, *_HACKED),
        cause="Five of six prompts have a kind without a verifier, so only brevity is paid.",
        words="responses are not scored, one part dominates, or short responses are paid",
    ),
    "rank-used-as-score": Case(
        ("reward=ranks", *EVALUATED, *_SHOWN),
        ("REW004", "REW012", "REW018", "REW021", "REW011", "REW003", "REW002", *_FLAT),
        cause="The judge returns ranks, of which 1 is the best, and these are the reward.",
        words="the reward is constant, or does not follow the response",
    ),
    "generation-without-mask": Case(
        EVALUATED, ("MIS001", "MIS003", "DAT101", "DAT102", "GRP002", *_FLAT), "without_mask",
        cause="Generation gets no attention mask, so responses attend to the prompts' padding.",
        words="sampler and learner disagree, groups are all-incorrect, or nothing is learned",
    ),
    "minus-signs-cleaned-away": Case(
        (*EVALUATED, *_SHOWN),
        ("DAT117", "DAT113", "DAT115", "DAT127", "GRP002", "REW018", "REW021", *_FLAT),
        "without_minus",
        cause="A cleaning step deletes the minus signs of the prompts, and the answers stay.",
        words="prompts are damaged, answers do not belong to them, or groups are all-incorrect",
    ),
    "loss-covers-six-tokens": Case(
        EVALUATED, ("DAT005", "OPT005", "CFG028", "REW002", *_FLAT), "only_first_tokens",
        cause="The learner has a shorter limit, so the loss covers six tokens of each response.",
        words="generated tokens are missing from the loss, or the policy does not improve",
    ),
    "weights-detached-at-step-30": Case(
        EVALUATED, ("OPT005", "OPT007", "OPT001", "SYN002", *_FLAT), "detached_weights",
        cause="From step 30 on the optimizer updates copies of the weights.",
        words="updates do not reach the policy, or the run no longer learns",
    ),
    "judge-sees-six-characters": Case(
        ("reward=start_of_text", *_MONITORED, *EVALUATED),
        (*_HACKED, *_SHORT, "REW010", "REW012"),
        cause="The judge sees the first six characters, so the policy answers at once.",
        words="accuracy falls while the reward rises, or short responses are paid",
    ),
    "healthy-batch-of-eight": Case(
        ("per_device_train_batch_size=8", "num_generations=4", "learning_rate=1e-4", *EVALUATED),
    ),
    "healthy-linear-warm-up": Case(
        ('lr_scheduler_type="linear"', "warmup_steps=15", "beta=0.02", *_SHOWN), with_config=True
    ),
    "healthy-rare-success": Case(("task.difficulty=7", *EVALUATED)),
    "healthy-length-part": Case(("reward=long_enough", *EVALUATED, *_SHOWN)),
    "healthy-group-of-32": Case(("num_generations=32", *_SHOWN)),
    "healthy-two-updates-cosine": Case(
        ("num_iterations=2", 'lr_scheduler_type="cosine"', "learning_rate=2e-4", *EVALUATED),
    ),
}  # fmt: skip
"""In the order of their numbers, from 0."""
