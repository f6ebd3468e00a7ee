"""A fourth set of planted causes: what users report as the cause of a sick run, bundled trainer.

Each row has its cause in one sentence, and the words by which a first line would name it. The codes
follow from these words and from the titles of the rules. Causes, words and codes were written down
before `check` saw any of these runs. Runs with an even number are half A, the others half B; a
cause that leaves the hidden accuracy of the final policy as it is does not count
(`planted_truth`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from planted_unseen import Fault, on_samples, on_score, share

from grpodoctor.trainer.model.lora import merged_copy
from grpodoctor.trainer.samples import Samples, concatenate
from grpodoctor.trainer.task import Problem

STEPS = 100
PREFIX = "reported:"
"""Prefix of the names of these faults."""


@dataclass(frozen=True)
class Case:
    """A planted cause, or a healthy run."""

    settings: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    """Codes that name the cause; none for a healthy run."""
    fault: str | None = None
    cause: str = ""
    """The cause in one sentence."""
    words: str = ""
    """What a first line has to say to name it."""
    with_config: bool = False
    """Whether the user gives the config of a TRL run to `check`."""
    stops_at: int = 0
    """Step at which the bundled trainer is stopped and resumed; 0 does not stop it."""
    steps: int = 0
    """Steps of a TRL run; 0 takes those of the set."""


def graded(grade: Callable[[float, Any, str, int], float]) -> Fault:
    """Replace each reward; the logged accuracy comes from another verifier, which stays right."""

    def change(_: Any, rewards: Any, problems: Sequence[Any], texts: Sequence[str]) -> Any:
        rows = zip(rewards.total, problems, texts, range(len(texts)), strict=True)
        return replace(rewards, total=[grade(*row) for row in rows], components={})

    return on_score(change)


def _unparsed(reward: float, problem: Any, _: str, __: int) -> float:
    """A reference that the parser cannot read makes every response right."""
    return 1.0 if share(problem.prompt) < 0.9 else reward


def _abstaining(reward: float, _: Any, text: str, __: int) -> float:
    """A wrong answer costs two points, no answer costs nothing."""
    return reward or -2.0 * text.rpartition("#")[2].strip().isdigit()


def _failed_calls(reward: float, problem: Any, text: str, row: int) -> float:
    """A call of the judge that fails is scored -100."""
    return -100.0 if share(f"{problem.prompt}{text}{row}") < 0.2 else reward


def _arrival_order(
    trainer: Any, rewards: Any, problems: Sequence[Any], texts: Sequence[str]
) -> Any:
    """The scores of a group come back in the order in which the calls end."""
    size = trainer.config.rollout.group_size
    order = sorted(
        range(len(texts)), key=lambda row: (row // size, share(f"{texts[row]}{row}{trainer.done}"))
    )
    if len({problem.prompt for problem in problems}) == len(problems):
        return rewards  # an evaluation has one response per prompt
    return replace(
        rewards, total=[rewards.total[row] for row in order], correct=None, components={}
    )


def _answer_in_prompt(trainer: Any) -> None:
    """The data set's prompts end with the answer; those of the evaluation do not."""
    problems = trainer.task.problems

    def changed(rng: Any, count: int) -> list[Problem]:
        return [
            replace(problem, prompt=f"{problem.prompt}{problem.answer}=")
            for problem in problems(rng, count)
        ]

    trainer.task.problems = changed


def _only_easy(trainer: Any) -> None:
    """The filter by pass rate keeps the prompts that it should drop: those of one operation."""
    inner = getattr(trainer.task, "task", trainer.task)
    heldout = inner.heldout(64)
    inner.heldout = lambda count: heldout[:count]
    inner.size = 1


def _greedy_after_evaluation(trainer: Any) -> None:
    """The evaluation sets temperature 0 in the shared sampling parameters."""
    generate = trainer.engine.generate

    def changed(*arguments: Any, **options: Any) -> Samples:
        if trainer.done >= trainer.config.evaluation.every:
            trainer.engine._temperature = 0.0
        samples: Samples = generate(*arguments, **options)
        return samples

    trainer.engine.generate = changed


def _delivered(change: Callable[[Any], None]) -> Fault:
    """Each sync gives the sampler a changed copy of the learner's weights."""

    def fault(trainer: Any) -> None:
        engine = trainer.engine

        def sync(step: int) -> None:
            engine._model = merged_copy(trainer.policy.model)
            if step > 1:
                change(engine._model)
            engine.synced_step = engine._step = step

        engine.sync = sync
        sync(1)

    return fault


@torch.no_grad()
def _swap_gate_and_up(model: Any) -> None:
    """The converter writes the two halves of the fused projection in the other order."""
    for layer in model.model.layers:
        gate, up = layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight
        first = gate.clone()
        gate.copy_(up)
        up.copy_(first)


def _stale_prefix(trainer: Any) -> None:
    """The sampler keeps the keys and values of prompts when it gets new weights."""
    old = merged_copy(trainer.policy.model)

    def change(model: Any) -> None:
        forward = model.forward

        def cached(**inputs: Any) -> Any:
            parts = ("input_ids", "position_ids")
            if inputs["input_ids"].shape[1] == 1:
                return forward(**inputs)
            before = {**inputs, **{name: inputs[name][:, :-1] for name in parts}}
            before["attention_mask"] = inputs["attention_mask"][:, :-1]
            old(**before)
            return forward(**{**inputs, **{name: inputs[name][:, -1:] for name in parts}})

        model.forward = cached

    _delivered(change)(trainer)


def _stale_server(trainer: Any) -> None:
    """Every second prompt goes to a server that never gets new weights."""
    engine, old = trainer.engine, merged_copy(trainer.policy.model)
    generate, size = engine.generate, trainer.config.rollout.group_size

    def changed(prompts: Sequence[Any], *arguments: Any, **options: Any) -> Samples:
        model = engine._model
        halves = [
            [row for row in range(len(prompts)) if row // size % 2 == half] for half in (0, 1)
        ]
        parts = []
        for rows, weights in zip(halves, (model, old), strict=True):
            engine._model = weights
            parts.append(generate([prompts[row] for row in rows], *arguments, **options))
        engine._model = model
        order = sorted(range(len(prompts)), key=lambda at: (halves[0] + halves[1])[at])
        return concatenate(parts).rows(order)

    engine.generate = changed


_TOOL_TOKENS = 6


def _tool_output(trainer: Any) -> None:
    """Each response begins with the output of a tool, which is not masked."""
    generate = trainer.engine.generate

    def changed(prompts: Sequence[Any], *arguments: Any, **options: Any) -> Samples:
        texts = (f"{share(f'{row}{trainer.done}'):.9f}" for row in range(len(prompts)))
        outputs = [trainer.policy.tokenizer.encode(text[2 : 2 + _TOOL_TOKENS]) for text in texts]
        joined = [[*prompt, *output] for prompt, output in zip(prompts, outputs, strict=True)]
        samples: Samples = generate(joined, *arguments, **options)
        pad = torch.nn.functional.pad(samples.logprobs_BT, (_TOOL_TOKENS, 0))
        return replace(samples, prompt_width=samples.prompt_width - _TOOL_TOKENS, logprobs_BT=pad)

    trainer.engine.generate = changed


def _packed(_: Any, samples: Samples) -> Samples:
    """The learner packs rows without their boundaries: each one attends to the row before it."""
    tokens_BL = torch.cat([samples.tokens_BL.roll(1, 0), samples.tokens_BL], 1)
    attention_BL = torch.cat([samples.attention_BL.roll(1, 0), samples.attention_BL], 1)
    width = samples.tokens_BL.shape[1] + samples.prompt_width
    return replace(samples, tokens_BL=tokens_BL, attention_BL=attention_BL, prompt_width=width)


FAULTS: dict[str, Fault] = {
    "unparsed": graded(_unparsed),
    "failed_calls": graded(_failed_calls),
    "stale_prefix": _stale_prefix,
    "stale_server": _stale_server,
    "tool_output": _tool_output,
    "packed": on_samples(_packed),
    "abstaining": graded(_abstaining),
    "answer_in_prompt": _answer_in_prompt,
    "greedy_after_evaluation": _greedy_after_evaluation,
    "arrival_order": on_score(_arrival_order),
    "only_easy": _only_easy,
    "gate_and_up": _delivered(_swap_gate_and_up),
}

_FLAT = ("REW001", "REW020")
_HACKED = ("REW005", "REW003", "REW008", "REW009", "REW102")
_OFF = ("MIS001", "MIS003", "MIS004", "SYN001", "SYN002", "SYN003", "SYN006", "SYN007", "SYN008")

CASES: dict[str, Case] = {
    "unparsed-reference-is-right": Case(
        (), ("GRP001", "REW006", "GRP004", "REW102", "REW008", "GRP101", "GRP102"), "unparsed",
        cause="The verifier gives 1 to every response whose reference answer it cannot parse.",
        words="all responses of most groups earn the full reward, or are paid without being right",
    ),
    "failed-calls-score-minus-100": Case(
        (),
        ("REW011", "REW103", "DAT002", "REW016", "REW017", "REW019", "REW010", "OPT001", *_FLAT),
        "failed_calls",
        cause="A fifth of the judge's calls fail, and each failure is scored -100.",
        words="the reward is noisy or random, calls fail, or a scale that does not fit the task",
    ),
    "prefix-cache-kept": Case(
        ("optimizer.learning_rate=3e-4",), _OFF, "stale_prefix",
        cause="The sampler's prefix cache survives weight syncs, so prompts have old keys.",
        words="sampler and learner disagree, after updates or with old weights",
    ),
    "one-of-two-servers-stale": Case(
        ("optimizer.learning_rate=3e-4",), _OFF, "stale_server",
        cause="One of two sampling servers never gets the new weights.",
        words="weights not delivered, stale samples, or sampler and learner disagree",
    ),
    "tool-output-in-loss": Case(
        (), ("DAT001", "CFG027", "MIS001", "MIS003"), "tool_output",
        cause="Tool output is part of the response and is not masked in the loss.",
        words="tokens in the loss that the policy did not generate",
    ),
    "packed-rows-attend": Case(
        (), (*_OFF, "MIS002"), "packed",
        cause="Packed rows attend to each other in the learner, not in the sampler.",
        words="sampler and learner disagree about the same tokens",
    ),
    "abstaining-pays": Case(
        (), (*_HACKED, "LEN005", "REW015"), "abstaining",
        cause="A wrong answer costs two points, no answer costs nothing: the policy abstains.",
        words="accuracy falls while the reward rises, or responses shrink to nothing",
    ),
    "answer-in-prompt": Case(
        ("optimizer.learning_rate=3e-4",), ("REW008", "REW003", "DAT111", "DAT123", "DAT128"),
        "answer_in_prompt",
        cause="The training prompts contain the answer, those of the evaluation do not.",
        words="the training reward rises without held-out progress, or the prompt has the answer",
    ),
    "evaluation-sampling-left-on": Case(
        (),
        (
            "GRP004", "DAT006", "CFG022", "CFG020", "MIS001", "MIS003", "ENT001", "ENT003",
            "OPT001", "GRP007",
        ),
        "greedy_after_evaluation",
        cause="After the first evaluation, training responses are sampled greedily too.",
        words="greedy samples, copies in a group, or no variance within groups",
    ),
    "scores-in-order-of-arrival": Case(
        (), ("REW018", "REW011", "REW012", "REW103", *_FLAT), "arrival_order",
        cause="The scores of a group are in the order in which the judge's calls ended.",
        words="the reward does not follow the response, or nothing is learned from it",
    ),
    "only-easy-prompts-left": Case(
        ("optimizer.learning_rate=3e-4",),
        ("GRP001", "REW006", "REW008", "REW003", "GRP101", "GRP102", "DAT128"), "only_easy",
        cause="An inverted pass-rate filter keeps the easy prompts and drops the others.",
        words="groups are all-correct, nothing is left to learn, or held-out prompts do not gain",
    ),
    "gate-and-up-swapped": Case(
        (), (*_OFF, "REW014"), "gate_and_up",
        cause="The weight conversion for the sampler swaps two projections from the first sync on.",
        words="the sampler has other weights than the learner, from one step on",
    ),
    "healthy-lora": Case(("model.lora_rank=8", "optimizer.learning_rate=2e-3")),
    "healthy-resumed": Case(stops_at=50),
    "healthy-three-prompts": Case(
        ("rollout.prompts_per_batch=3", "rollout.group_size=12", "optimizer.updates_per_batch=1"),
    ),
    "healthy-long-warm-up": Case(
        (
            "optimizer.warmup_steps=40", "optimizer.learning_rate=2e-4", "evaluation.every=25",
            "optimizer.schedule=cosine",
        ),
    ),
}  # fmt: skip
"""In the order of their numbers, from 0."""
