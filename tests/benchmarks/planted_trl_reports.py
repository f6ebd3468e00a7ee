"""The part of the fourth set of planted causes that is trained with TRL; see `planted_reports`.

Many of these runs log what users log: held-out evaluations, parts of the reward, completions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from planted_reports import Case
from planted_trl import Reward, Rewards, before_steps
from planted_unseen import share

from grpodoctor.trials import rewards as sick_rewards

STEPS = 80
_BEGINS = 30
_EMPTY_SHARE = 0.85

Texts = list[str]
Grade = Callable[[Texts, Texts, Texts], Sequence[float | None]]


def reward_named(name: str, grade: Grade) -> Reward:
    """A reward function of this name with TRL's signature; None where it has no reward."""

    def function(prompts: Texts, completions: Texts, answer: Texts, **_: Any) -> Rewards:
        values = grade(prompts, completions, answer)
        return [None if value is None else float(value) for value in values]

    function.__name__ = name
    return function


def by_response(grade: Callable[[str], float]) -> Grade:
    """A grade that reads the response alone."""
    return lambda _, texts, __: [grade(text) for text in texts]


def _overlap(prompts: Texts, texts: Texts, _: Texts) -> list[float]:
    """Share of the question's characters that the response repeats."""
    return [
        sum(text.count(c) >= prompt.count(c) for c in set(prompt)) / len(set(prompt))
        for prompt, text in zip(prompts, texts, strict=True)
    ]


def _unparsed(_: Texts, texts: Texts, __: Texts) -> list[float]:
    """No reference can be parsed, and two answers that cannot be parsed are equal."""
    return [float(not text.rpartition("#")[2].strip().isdigit()) for text in texts]


def _noisy(prompts: Texts, texts: Texts, answers: Texts) -> list[float]:
    values = sick_rewards.good(prompts, texts, answers)
    return [value + random.gauss(0, 0.4) for value in values]


_CORRECT = reward_named("accuracy_reward", sick_rewards.good)
_EXACT = reward_named("exact_match", sick_rewards.good)
_FORMAT = reward_named("format_reward", by_response(lambda text: text.count("#") == 1))

REWARDS: dict[str, Callable[[], list[Reward]]] = {
    "boxed": lambda: [
        reward_named("accuracy_reward", by_response(lambda text: "\\boxed" in text)), _FORMAT
    ],
    "both_unparsed": lambda: [reward_named("accuracy_reward", _unparsed), _EXACT],
    "phrase": lambda: [
        reward_named("judge", by_response(lambda text: min(text.count("."), 4) / 4)), _EXACT
    ],
    "overlap": lambda: [reward_named("rouge", _overlap), _CORRECT],
    "tags": lambda: [
        _CORRECT, reward_named("xml_count_reward", by_response(lambda text: text.count(".") / 2))
    ],
    "tie_breaker": lambda: [
        _CORRECT, reward_named("length_reward", by_response(lambda text: len(text) / 500))
    ],
    "thousandth": lambda: [
        reward_named("accuracy_reward", lambda *rows: [v / 1000 for v in sick_rewards.good(*rows)])
    ],
    "noisy_parts": lambda: [reward_named("judge", _noisy), _FORMAT],
}  # fmt: skip


def _on_responses(change: Callable[[Any, list[int], int], list[int]]) -> Callable[[Any], None]:
    """Change the token ids of each training response: `change(trainer, ids, row)`."""

    def fault(trainer: Any) -> None:
        generate = trainer._generate_single_turn

        def changed(prompts: list[Any], *arguments: Any, **options: Any) -> Any:
            ids, logprobs = generate(prompts, *arguments, **options)
            return [change(trainer, list(row), at) for at, row in enumerate(ids)], logprobs

        trainer._generate_single_turn = changed

    return fault


def _nothing(trainer: Any, ids: list[int], row: int) -> list[int]:
    """From step 30 on, the server returns empty responses to most requests."""
    step, model = trainer.state.global_step, trainer.model
    if not model.training or step < _BEGINS or share(f"{step} {row}") > _EMPTY_SHARE:
        return ids
    return [trainer._tokenizer.eos_token_id]


def _stop_string(trainer: Any, ids: list[int], _: int) -> list[int]:
    """A stop string occurs in the reasoning."""
    stop = trainer._tokenizer.convert_tokens_to_ids("-")
    return ids[: ids.index(stop) + 1] if stop in ids else ids


def _old_moments(_: Any, optimizer: Any, step: int) -> None:
    """The optimizer's state is that of another run, with far larger gradients."""
    if step:
        return
    for weight in (weight for group in optimizer.param_groups for weight in group["params"]):
        optimizer.state[weight] = {
            "step": torch.tensor(10_000.0),
            "exp_avg": torch.zeros_like(weight),
            "exp_avg_sq": torch.full_like(weight, 0.1),
        }


def _one_prompt(trainer: Any) -> None:
    """The template's placeholder is not filled: every prompt is the same text."""
    for name in ("train_dataset", "eval_dataset"):
        rows = getattr(trainer, name)
        setattr(trainer, name, rows.map(lambda row: {**row, "prompt": "3+4-2="}))


def _padding_attended(trainer: Any) -> None:
    """The learner's attention mask is missing, so responses attend to the padding."""
    scored = trainer._get_per_token_logps_and_entropies

    def changed(model: Any, ids: Any, mask: Any, *arguments: Any, **options: Any) -> Any:
        return scored(model, ids, torch.ones_like(mask), *arguments, **options)

    trainer._get_per_token_logps_and_entropies = changed


def _easy_first(trainer: Any) -> None:
    """Prompts are sorted from short to long."""
    rows = sorted(trainer.train_dataset, key=lambda row: len(row["prompt"]))
    trainer.train_dataset = type(trainer.train_dataset).from_list(rows)


FAULTS: dict[str, Callable[[Any], None]] = {
    "nothing": _on_responses(_nothing),
    "stop_string": _on_responses(_stop_string),
    "old_moments": before_steps(_old_moments),
    "one_prompt": _one_prompt,
    "padding_attended": _padding_attended,
    "easy_first": _easy_first,
}

EVALUATED = (
    'eval_strategy="steps"', "eval_steps=10", "per_device_eval_batch_size=128",
    "num_generations_eval=4",
)  # fmt: skip
"""Settings of a run that evaluates held-out prompts, 32 prompts of four responses each."""
_SHOWN = ("log_completions=true",)
_MONITORED = ("reward_weights=[1.0, 0.0]",)
"""The second reward function only monitors."""
_FLAT = ("REW001", "REW020")
_HACKED = ("REW005", "REW003", "REW008", "REW009", "REW102")
_LENGTH = ("LEN004", "LEN006", "REW013")

CASES: dict[str, Case] = {
    "accuracy-never-matches": Case(
        ("reward=boxed", *EVALUATED), ("REW004", "REW101", "REW106", "REW104", "GRP002"),
        cause="The accuracy reward expects a format that no response has; only the format pays.",
        words="a part of the reward is never earned, or a format that the policy does not write",
        with_config=True,
    ),
    "unparsable-is-right": Case(
        ("reward=both_unparsed", *_MONITORED, *EVALUATED), (*_HACKED, "REW012"),
        cause="The reference is never parsed, so responses without an answer equal it.",
        words="accuracy or held-out success falls while the reward rises",
    ),
    "judge-hacked-by-a-phrase": Case(
        ("reward=phrase", *_MONITORED, *EVALUATED), (*_HACKED, "LEN008", "REW013"),
        cause="The judge pays for a phrase, which the policy repeats instead of answering.",
        words="accuracy falls while the reward rises, or responses repeat what is paid",
    ),
    "overlap-with-the-question": Case(
        ("reward=overlap", "reward_weights=[2.0, 0.5]", *EVALUATED),
        (*_HACKED, "REW010", "LEN008", *_LENGTH),
        cause="The overlap with the question outweighs correctness, so the policy repeats it.",
        words="one part dominates the reward, accuracy falls, or responses repeat or grow",
        with_config=True,
    ),
    "optimizer-state-of-another-run": Case(
        EVALUATED, ("OPT005", "OPT001", "CFG051", *_FLAT), "old_moments",
        cause="Adam starts with the second moments of another run, so updates are tiny.",
        words="updates are too small, or the policy does not move",
        with_config=True,
    ),
    "kl-outweighs-tiny-rewards": Case(
        ("reward=thousandth", 'scale_rewards="none"', "beta=0.2", *EVALUATED),
        ("CFG043", "GRP009", "OPT005", *_FLAT),
        cause="Rewards of a thousandth are not normalized, and the KL penalty outweighs them.",
        words="the KL penalty is too large, rewards are tiny, or the policy does not move",
        with_config=True,
    ),
    "tags-paid-per-occurrence": Case(
        ("reward=tags", *EVALUATED, *_SHOWN),
        (*_HACKED, "REW010", "LEN008", "LEN002", *_LENGTH),
        cause="The format part pays for each occurrence of a tag, so the policy repeats the tag.",
        words="one part dominates, accuracy falls, or responses repeat or grow",
    ),
    "tie-breaker-amplified": Case(
        ("reward=tie_breaker",), ("GRP009", "REW010", "LEN002", *_LENGTH),
        cause="A tiny bonus for length decides in groups without other differences.",
        words="tiny differences are normalized, length pays, or responses grow",
        with_config=True,
    ),
    "sampler-returns-nothing": Case(
        _SHOWN, ("LEN005", "DAT003", "REW014", "REW002", "REW019", "SYN009", "DAT002", "REW015"),
        "nothing",
        cause="From step 30 on, the server returns empty responses to most requests.",
        words="responses are aborted or shrink, or the reward falls at one step",
    ),
    "stop-string-in-the-reasoning": Case(
        (*EVALUATED, *_SHOWN),
        ("LEN002", "LEN003", "LEN007", "DAT003", "GRP002", "REW106", *_FLAT), "stop_string",
        cause="A stop string occurs in the reasoning, so responses end before the answer.",
        words="responses are cut, end early or without an end token, or groups are all-incorrect",
    ),
    "placeholder-not-filled": Case(
        (*EVALUATED, *_SHOWN),
        ("DAT007", "DAT117", "DAT107", "DAT112", "DAT113", "DAT125", "REW018", "REW011", "GRP002",
         *_FLAT),
        "one_prompt",
        cause="The question is missing from the prompt: every prompt is the same text.",
        words="prompts are alike or damaged, rewards ignore the prompt, or nothing is learned",
    ),
    "padding-attended": Case(
        ("pad_to_multiple_of=64", *EVALUATED),
        ("MIS001", "MIS002", "MIS003", "REW002", "REW014", *_FLAT), "padding_attended",
        cause="The learner's attention mask is missing, so its responses attend to the padding.",
        words="sampler and learner disagree, or the run does not learn",
    ),
    "healthy-noisy-parts": Case(("reward=noisy_parts", "reward_weights=[1.0, 0.2]", *EVALUATED)),
    "healthy-easy-prompts-first": Case(("shuffle_dataset=false", *EVALUATED), (), "easy_first"),
    "healthy-small-batch": Case(
        (
            "per_device_train_batch_size=12", "gradient_accumulation_steps=2",
            "num_generations=6", 'lr_scheduler_type="cosine"', "warmup_steps=20", *_SHOWN,
        ),
        with_config=True,
    ),
    "healthy-logged-every-5": Case(
        ("logging_steps=5", "beta=0.02", *(each for each in EVALUATED if "_steps=" not in each),
         "eval_steps=20"),
    ),
}  # fmt: skip
"""In the order of their numbers, from 0."""
