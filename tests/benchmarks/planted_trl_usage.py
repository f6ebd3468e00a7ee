"""A sixth set of planted causes: how users call TRL, and which settings they leave on.

All runs are TRL trainings that log their completions. The kinds are those of issue threads about
TRL, unsloth and ms-swift: a reward function that reads its arguments wrongly (TRL #4939), one value
for a batch (TRL #6533), generation arguments that override the config (TRL #3029, transformers
#42762), an adapter without effect (unsloth #2009), a gradient of zero (ms-swift #5890, #5571).

Each case has its cause in one sentence and the words by which a first line would name it; the codes
follow from these words and from the titles of the rules. All of it was written down before any of
these runs was trained. Runs with an even number are half A, the others half B. A cause that leaves
the hidden accuracy of the final policy as it is does not count (`planted_truth`).
"""

from __future__ import annotations

import difflib
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from planted_reports import Case
from planted_trl import LENGTH, Reward, Rewards
from planted_trl_reports import EVALUATED, Grade, Texts, by_response, reward_named

from grpodoctor.trials import rewards as sick_rewards

STEPS = 80


def _first_answer(prompts: Texts, texts: Texts, answers: Texts) -> list[float]:
    """Every response is compared with `answer[0]`."""
    return sick_rewards.good(prompts, texts, answers[:1] * len(texts))


def _first_character(_: Texts, texts: Texts, answers: Texts) -> list[float]:
    """`completion[0]` is a message in a chat data set, and a character in this one."""
    return [text[:1] == answer for text, answer in zip(texts, answers, strict=True)]


def _batch_mean(prompts: Texts, texts: Texts, answers: Texts) -> list[float]:
    """The function returns one value, which is broadcast to all responses."""
    values = sick_rewards.good(prompts, texts, answers)
    return [sum(values) / len(values)] * len(values)


def _groups(prompts: Texts, texts: Texts) -> Iterator[Texts]:
    rows = itertools.groupby(zip(prompts, texts, strict=True), key=lambda row: row[0])
    return ([text for _, text in group] for _, group in rows)


def _agreement(prompts: Texts, texts: Texts, _: Texts) -> list[float]:
    """Similarity with the other responses of the group, instead of agreement of the answers."""
    return [
        sum(difflib.SequenceMatcher(None, text, other).ratio() for other in group) / len(group)
        for group in _groups(prompts, texts)
        for text in group
    ]


def _per_length(prompts: Texts, texts: Texts, answers: Texts) -> list[float]:
    """The reward is divided by the squared length, for efficiency."""
    values = sick_rewards.good(prompts, texts, answers)
    return [20 * v / max(2, len(text)) ** 2 for v, text in zip(values, texts, strict=True)]


def _finished(_: Texts, texts: Texts, __: Texts) -> list[float]:
    return [float(len(text) < LENGTH) for text in texts]


def _judge(points: float) -> Grade:
    """The right reward on a scale of 10 points, with noise."""

    def grade(prompts: Texts, texts: Texts, answers: Texts) -> list[float]:
        values = sick_rewards.good(prompts, texts, answers)
        return [10 * value + random.gauss(0, points) for value in values]

    return grade


def _growing_penalty() -> Reward:
    """A penalty on length whose weight grows with the step."""

    def length_penalty(completions: Texts, trainer_state: Any, **_: Any) -> Rewards:
        weight = 4 * trainer_state.global_step / STEPS
        return [-weight * len(text) / LENGTH for text in completions]

    return length_penalty


_POLICY: dict[str, Any] = {}
"""The trainer whose policy scores its own responses."""


@torch.no_grad()
def _certainty(prompts: Texts, texts: Texts, _: Texts) -> list[float]:
    """Mean log-probability that the policy gives to its own response."""
    trainer = _POLICY["trainer"]
    rows = [trainer._tokenizer(p + t)["input_ids"] for p, t in zip(prompts, texts, strict=True)]
    width = max(map(len, rows))
    ids_BT = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    logits_BTV = trainer.model(input_ids=ids_BT, attention_mask=(ids_BT != 0).long()).logits
    logprobs_BT = logits_BTV[:, :-1].log_softmax(-1).gather(2, ids_BT[:, 1:, None]).squeeze(2)
    starts = [len(prompt) - 1 for prompt in prompts]
    return [
        float(logprobs_BT[row, start : start + len(text)].mean()) if text else 0.0
        for row, (start, text) in enumerate(zip(starts, texts, strict=True))
    ]


_CORRECT = reward_named("accuracy_reward", sick_rewards.good)
_EXACT = reward_named("exact_match", sick_rewards.good)
_FORMAT = reward_named("format_reward", by_response(lambda text: text.count("#") == 1))

REWARDS: dict[str, Callable[[], list[Reward]]] = {
    "first_answer": lambda: [reward_named("accuracy_reward", _first_answer)],
    "first_character": lambda: [reward_named("accuracy_reward", _first_character)],
    "batch_mean": lambda: [reward_named("accuracy_reward", _batch_mean)],
    "agreement": lambda: [reward_named("consensus_reward", _agreement), _EXACT],
    "certainty": lambda: [reward_named("certainty_reward", _certainty)],
    "per_length": lambda: [reward_named("efficient_accuracy", _per_length)],
    "tiny_brevity": lambda: [
        _CORRECT, reward_named("brevity_reward", by_response(lambda text: -len(text) / 1000))
    ],
    "growing_penalty": lambda: [_CORRECT, _growing_penalty()],
    "finished_part": lambda: [_CORRECT, reward_named("finished_reward", _finished)],
    "two_judges": lambda: [
        reward_named("judge_a", _judge(3.0)), reward_named("judge_b", _judge(4.0))
    ],
    "format_part": lambda: [_CORRECT, _FORMAT],
}  # fmt: skip


def _own_policy(trainer: Any) -> None:
    _POLICY["trainer"] = trainer


def _special_marker(trainer: Any) -> None:
    """The answer's marker is a special token, which decoding leaves out."""
    trainer._tokenizer.add_special_tokens({"additional_special_tokens": ["#"]})


def _no_repeats(trainer: Any) -> None:
    """A sampler of the user's own replaces the one that repeats each prompt."""

    def sampler(dataset: Any = None) -> Any:
        generator = torch.Generator().manual_seed(trainer.args.seed)
        return torch.utils.data.RandomSampler(trainer.train_dataset, generator=generator)

    trainer._get_train_sampler = sampler


FAULTS: dict[str, Callable[[Any], None]] = {
    "own_policy": _own_policy,
    "special_marker": _special_marker,
    "no_repeats": _no_repeats,
}

_SHOWN = ("log_completions=true", "num_completions_to_print=0")
_MONITORED = ("reward_weights=[1.0, 0.0]",)
_FLAT = ("REW001", "REW020")
_HACKED = ("REW005", "REW003", "REW008", "REW009", "REW102")
_SHORT = ("LEN005", "REW013", "REW015")
_LONG = ("LEN002", "LEN004", "LEN006", "LEN008")
_OFF = ("MIS001", "MIS003")

CASES: dict[str, Case] = {
    "answer-of-the-first-row": Case(
        ("reward=first_answer", *EVALUATED, *_SHOWN),
        ("REW021", "REW018", "REW101", "DAT113", "GRP002", "REW011", *_FLAT),
        cause="The reward function compares every response with `answer[0]`.",
        words="rewards do not follow responses or prompts, answers belong to other rows, no rise",
    ),
    "string-indexed-as-messages": Case(
        ("reward=first_character", *EVALUATED, *_SHOWN),
        ("REW021", "REW101", "REW106", "GRP002", "REW010", "REW012", *_SHORT, *_HACKED),
        cause="The reward function reads `completion[0]`, which is the first character.",
        words="correct answers earn nothing, or short responses are paid",
    ),
    "greedy-by-generation-kwargs": Case(
        ('generation_kwargs={"do_sample": false, "use_cache": true}', *_SHOWN),
        ("CFG022", "GRP004", "DAT006", "OPT001"),
        cause="`generation_kwargs` contains `do_sample=False`, so a group is eight copies.",
        words="samples are greedy or copies, or groups have equal rewards",
    ),
    "minimum-of-18-tokens": Case(
        ('generation_kwargs={"min_new_tokens": 18, "use_cache": true}', *EVALUATED, *_SHOWN),
        ("CFG024", "CFG023", "LEN002", "LEN003", "LEN007", "GRP002", *_OFF, *_FLAT),
        cause="The sampler may not end a response before its eighteenth token.",
        words="responses cannot end, the sampler bans a token, groups are all-incorrect, no rise",
    ),
    "adapter-scaled-by-zero": Case(
        ('peft={"r": 8, "lora_alpha": 0}', *_SHOWN),
        ("OPT001", "OPT005", "CFG060", "CFG051", *_FLAT),
        cause="The adapter's alpha is 0, so it has no effect and no gradient.",
        words="the gradient is zero, or updates do not reach the policy",
    ),
    "two-sided-clip-below-one": Case(
        ("delta=0.9", *EVALUATED, *_SHOWN),
        ("CFG011", "CFG060", "CLP001", "ENT002", "REW002", "REW014", *_FLAT),
        cause="`delta` is below 1, so responses with a positive advantage have no gradient.",
        words="a clip bound is too low, entropy explodes, or the reward falls or does not rise",
    ),
    "entropy-target-too-high": Case(
        ("use_adaptive_entropy=true", "entropy_target=3.0", "entropy_coef=0.1",
         "entropy_coef_delta=0.02", *EVALUATED, *_SHOWN),
        ("ENT002", "CFG056", "CFG060", "CFG005"),
        cause="The adaptive entropy bonus has a target that only random text reaches.",
        words="entropy explodes, or the entropy coefficient is too large",
    ),
    "tiny-part-normalized": Case(
        ("reward=tiny_brevity", 'multi_objective_aggregation="normalize_then_sum"',
         "reward_weights=[1.0, 2.0]", *EVALUATED, *_SHOWN),
        ("GRP009", "REW010", *_SHORT, *_HACKED),
        cause="Parts are normalized before they are added, so a tiny penalty on length dominates.",
        words="tiny differences are normalized, one part dominates, or short responses are paid",
    ),
    "one-value-for-the-batch": Case(
        ("reward=batch_mean", *EVALUATED, *_SHOWN),
        ("GRP004", "OPT001", "REW004", "REW021"),
        cause="The reward function returns one value, which all responses of a batch get.",
        words="groups have equal rewards, or rewards do not follow the responses",
    ),
    "agreement-of-texts": Case(
        ("reward=agreement", *_MONITORED, *EVALUATED, *_SHOWN),
        ("ENT001", "ENT003", "DAT006", "REW012", "REW013", *_HACKED, *_LONG),
        cause="The reward is the similarity with the other responses of the group.",
        words="responses become alike or entropy collapses, or accuracy falls as the reward rises",
    ),
    "certainty-as-reward": Case(
        ("reward=certainty", *EVALUATED, *_SHOWN),
        ("ENT001", "ENT003", "REW012", "REW013", "LEN005", *_HACKED, *_LONG),
        "own_policy",
        cause="The reward is the probability that the policy gives to its own response.",
        words="entropy or diversity collapses, or responses repeat",
    ),
    "optimizer-is-sgd": Case(
        ('optim="sgd"', *_SHOWN), ("OPT005", "CFG051", "OPT001", *_FLAT),
        cause="The optimizer is SGD with Adam's learning rate, so the weights hardly move.",
        words="updates are too small, or the policy does not improve",
    ),
    "marker-lost-in-decoding": Case(
        ("reward=finished_part", *EVALUATED, *_SHOWN),
        ("REW004", "GRP002", "REW101", "REW104", "REW106", "DAT102", "DAT132", *_FLAT),
        "special_marker",
        cause="The marker of the answer is a special token, which decoding leaves out.",
        words="a part is never earned, correct answers earn nothing, or decoding loses tokens",
    ),
    "temperature-2-by-generation-kwargs": Case(
        ('generation_kwargs={"temperature": 2.0, "use_cache": true}', *_SHOWN),
        ("CFG020", "CFG060", "ENT002", "ENT006", "GRP002", *_OFF, *_FLAT),
        cause="`generation_kwargs` overrides the temperature, which the loss does not know.",
        words="sampler and loss have different temperatures, samples are random, or no rise",
    ),
    "rate-reduced-on-plateau": Case(
        ('lr_scheduler_type="reduce_lr_on_plateau"',
         'lr_scheduler_kwargs={"patience": 0, "factor": 0.1}', *EVALUATED, "eval_steps=5", *_SHOWN),
        ("OPT007", "OPT005", "CFG051", *_FLAT),
        cause="The scheduler lowers the learning rate because the loss, about zero, never falls.",
        words="the learning rate fell to zero, or updates are too small",
    ),
    "length-penalty-grows": Case(
        ("reward=growing_penalty", *EVALUATED, *_SHOWN),
        ("REW010", "REW016", *_SHORT, *_HACKED),
        cause="The weight of a penalty on length grows with the step.",
        words="responses collapse, one part dominates, or the reward's scale changes",
    ),
    "one-prompt-per-step": Case(
        ("per_device_train_batch_size=8", "learning_rate=2e-3", *_SHOWN),
        ("CFG014", "REW011", "GRP007", "OPT002", "OPT006", "REW002", "CFG050", "ENT001", "ENT003"),
        cause="The batch is one group, so each step follows one prompt, with a large rate.",
        words="a batch has one prompt, the reward is noisy, steps are too large, or a collapse",
    ),
    "embedding-noise-left-on": Case(
        ("neftune_noise_alpha=100", *EVALUATED, *_SHOWN),
        ("MIS002", "ENT006", "REW011", "GRP002", "CFG060", *_OFF, *_FLAT),
        cause="NEFTune's noise of a fine-tuning config is added to the embeddings.",
        words="sampler and learner disagree, samples are random, or nothing is learned",
    ),
    "reward-over-squared-length": Case(
        ("reward=per_length", *EVALUATED, *_SHOWN),
        ("REW010", "REW012", *_SHORT, *_HACKED),
        cause="The reward is divided by the squared length, so guessing pays more than reasoning.",
        words="short responses are paid, or held-out success falls",
    ),
    "groups-of-different-prompts": Case(
        (*EVALUATED, *_SHOWN),
        ("REW018", "REW021", "GRP005", "GRP007", "GRP008", "GRP010", "REW011", "CFG016", *_FLAT),
        "no_repeats",
        cause="A sampler of the user's own does not repeat prompts, so groups mix prompts.",
        words="groups are broken, or the baseline is not that of the prompt",
    ),
    "healthy-lora": Case(
        ('peft={"r": 8, "lora_alpha": 16}', "learning_rate=3e-3", *EVALUATED, *_SHOWN)
    ),
    "healthy-bnpo-scaled-by-batch": Case(
        ('loss_type="bnpo"', 'scale_rewards="batch"', "weight_decay=0.1", *_SHOWN)
    ),
    "healthy-cispo-two-updates": Case(
        ('loss_type="cispo"', "epsilon_high=5.0", "num_iterations=2", "learning_rate=2e-4",
         'lr_scheduler_type="cosine"', *EVALUATED, *_SHOWN),
        steps=120,
    ),
    "healthy-sapo-four-steps": Case(
        ('loss_type="sapo"', "per_device_train_batch_size=16", "steps_per_generation=4",
         "learning_rate=1e-4", *_SHOWN),
        steps=160,
    ),
    "healthy-noisy-judges": Case(
        ("reward=two_judges", "reward_weights=[1.0, 0.5]", *EVALUATED, *_SHOWN)
    ),
    "healthy-easy-task": Case(("task.difficulty=2", *EVALUATED, *_SHOWN), steps=60),
    "healthy-twelve-steps": Case((*EVALUATED, "eval_steps=4", *_SHOWN), steps=12),
    "healthy-parts-normalized": Case(
        ("reward=format_part", 'multi_objective_aggregation="normalize_then_sum"',
         "reward_weights=[1.0, 0.3]", *EVALUATED, *_SHOWN)
    ),
}  # fmt: skip
"""In the order of their numbers, from 0."""
