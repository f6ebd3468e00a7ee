"""Problems of several reasoning steps, and a small policy that writes responses to them.

A response is a sequence of decisions: operations, an answer, filler, reflection, a format tag, a
tool call, the end. The right operation depends on the class of the problem; after the last one the
answer is known. A wrong operation leads astray, from where only a reflection leads back, so longer
responses can be better. An early answer is a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

OPERATIONS, ANSWERS = 6, 4
FIRST_ANSWER = OPERATIONS
FILLER, REFLECT, TAG, END, TOOL, LOOP = range(OPERATIONS + ANSWERS, 16)
TOKENS = 16
STAGES = 5
FIRST_READY, ASTRAY, ANSWERED = STAGES, STAGES + ANSWERS, STAGES + ANSWERS + 1
STATES = ANSWERED + 1
CLASSES = 12
START = TOKENS
"""Last token before the first decision."""
_CLASS_ROW = STATES + TOKENS + 1
_HIDDEN = 8


@dataclass
class Problems:
    """A pool of prompts.

    All arrays have one entry per prompt, except `right`: (classes, stages).
    """

    classes: Ints
    depth: Ints
    """Operations that lead to the answer, 1 to 5."""
    answers: Ints
    labels: Ints
    """Answers that the verifier compares with; equal to `answers` if the data are sound."""
    right: Ints
    """The right operation of a class at a stage."""
    slips: Floats
    """Chance that the right operation on a prompt leads astray all the same."""

    @staticmethod
    def draw(random: np.random.Generator, count: int, deepest: int, right: Ints) -> Problems:
        """Draw prompts with one to `deepest` operations."""
        answers = random.integers(0, ANSWERS, count)
        return Problems(
            classes=random.integers(0, CLASSES, count),
            depth=random.integers(1, deepest + 1, count),
            answers=answers,
            labels=answers.copy(),
            right=right,
            slips=random.beta(0.5, 3.0, count),
        )

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.classes)


@dataclass
class Weights:
    """Tables of logits by state and last token, by class and state, by prompt; a small network."""

    skill: Floats
    """(states, last tokens, tokens): shared by all prompts."""
    knowledge: Floats
    """(classes, states, tokens)."""
    memory: Floats
    """(prompts, tokens): of one prompt alone."""
    trunk: Floats
    """(features, hidden): features are state, last token, class and a constant."""
    head: Floats
    """(hidden, tokens): shared by everything, so that excessive updates damage everything."""

    def copy(self) -> Weights:
        """The weights at this moment."""
        return self.map(np.copy)

    def parts(self) -> tuple[Floats, ...]:
        """The five tables."""
        return self.skill, self.knowledge, self.memory, self.trunk, self.head

    def map(self, change: Callable[[Floats], Floats]) -> Weights:
        """Other weights, table by table."""
        return Weights(*(change(part) for part in self.parts()))

    def logits(self, prompt: Ints, classes: Ints, state: Ints, last: Ints) -> Floats:
        """Logits of the next decision, (positions, tokens)."""
        logits: Floats = self.skill[state, last] + self.knowledge[classes, state]
        return logits + self.memory[prompt] + self.hidden(classes, state, last) @ self.head

    def hidden(self, classes: Ints, state: Ints, last: Ints) -> Floats:
        """The activations that all decisions share, (positions, hidden)."""
        rows = self.trunk_rows(classes, state, last)
        activations: Floats = np.tanh(sum(self.trunk[row] for row in rows))
        return activations

    def trunk_rows(self, classes: Ints, state: Ints, last: Ints) -> tuple[Ints, ...]:
        """The features of each decision, as rows of the trunk."""
        constant = np.full_like(state, len(self.trunk) - 1)
        return state, STATES + last, _CLASS_ROW + classes, constant

    def for_strangers(self, count: int) -> Weights:
        """The same policy in front of prompts that it was never trained on."""
        return replace(self, memory=np.zeros((count, TOKENS)))


def pretrained(random: np.random.Generator, problems: Problems, level: float) -> Weights:
    """A policy that follows the form of a solution and knows some operations.

    Args:
        random: source of randomness.
        problems: the training prompts.
        level: mean logit of the right operation over the others; 2 solves about half.
    """
    skill = np.full((STATES, TOKENS + 1, TOKENS), -4.0)
    skill[:STAGES, :, :OPERATIONS] = 0.0
    skill[:STAGES, :, FIRST_ANSWER:FILLER] = -2.5
    skill[:, :, FILLER] = -0.3
    skill[:, :, REFLECT] = -2.0
    skill[:, :, TAG] = -0.5
    skill[:, :, TOOL] = -12.0
    skill[:, :, LOOP] = -7.0
    for answer in range(ANSWERS):
        skill[FIRST_READY + answer, :, FIRST_ANSWER + answer] = 2.0
    skill[ASTRAY, :, REFLECT] = -0.5
    skill[ASTRAY, :, FIRST_ANSWER:FILLER] = -0.7
    skill[ANSWERED, :, END] = 2.5
    skill[:, TAG, TAG] = -4.0
    skill[:, LOOP, LOOP] = 3.0
    skill += random.normal(0, 0.1, skill.shape)
    knowledge = random.normal(0, 0.4, (CLASSES, STATES, TOKENS))
    for kind in range(CLASSES):
        grade = random.normal(level, 1.2)
        for stage in range(STAGES):
            knowledge[kind, stage, problems.right[kind, stage]] += grade
    trunk = random.normal(0, 0.5, (_CLASS_ROW + CLASSES + 1, _HIDDEN))
    head = random.normal(0, 0.3, (_HIDDEN, TOKENS))
    return Weights(skill, knowledge, np.zeros((problems.count, TOKENS)), trunk, head)


def log_softmax(logits: Floats) -> Floats:
    """Log-probabilities over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


@dataclass
class Responses:
    """Sampled responses. Arrays of decisions are (responses, most decisions)."""

    prompts: Ints
    state: Ints
    last: Ints
    token: Ints
    exists: Bools
    forced: Bools
    """Decisions of the environment, not of the policy."""
    logprob: Floats
    """Of the sampler."""
    decisions: Ints
    truncated: Bools
    answer: Ints
    """The last answer; -1 without one."""
    correct: Bools
    """By the truth, not by the verifier."""
    tagged: Bools
    calls: Ints
    failures: Ints
    reflections: Ints
    loops: Ints


@dataclass
class Sampling:
    """How responses are sampled."""

    most: int
    """Decisions of a response at most."""
    temperature: float = 1.0
    tool_failures: float = 0.0
    stop_at: int = -1
    """A token that ends the response by mistake."""
    shared_seed: bool = False
    """Whether the responses to a prompt are drawn with the same random numbers in halves."""


def _draw(logprobs: Floats, uniform: Floats) -> Ints:
    """Tokens by inverse transform sampling."""
    below = np.cumsum(np.exp(logprobs), axis=1) < uniform[:, None]
    return np.minimum(below.sum(axis=1), TOKENS - 1)


class _Writing:
    """The state of responses while they are written."""

    def __init__(self, problems: Problems, prompts: Ints) -> None:
        count = len(prompts)
        self.problems, self.prompts = problems, prompts
        self.classes = problems.classes[prompts]
        self.state = np.zeros(count, np.int64)
        self.back = np.zeros(count, np.int64)
        self.last = np.full(count, START)
        self.answer = np.full(count, -1)
        self.tagged = np.zeros(count, bool)
        self.calls = np.zeros(count, np.int64)
        self.failures = np.zeros(count, np.int64)

    def write(
        self, token: Ints, active: Bools, forced: Bools, failed: Bools, slipped: Bools
    ) -> None:
        """Append one decision to each active response."""
        problems, state = self.problems, self.state
        own = active & ~forced
        staged = own & (state < STAGES)
        ready = FIRST_READY + problems.answers[self.prompts]
        wanted = problems.right[self.classes, np.minimum(state, STAGES - 1)]
        operated = staged & (token < OPERATIONS)
        stepped = operated & (token == wanted) & ~slipped
        self.back = np.where(operated & ~stepped, state, self.back)
        following = np.where(state + 1 >= problems.depth[self.prompts], ready, state + 1)
        called = own & (token == TOOL)
        helped = called & ~failed & (state < STAGES)
        reflected = own & (state == ASTRAY) & (token == REFLECT)
        answered = own & (token >= FIRST_ANSWER) & (token < FILLER)
        new = np.where(stepped, following, state)
        new = np.where(operated & ~stepped, ASTRAY, new)
        new = np.where(reflected, self.back, new)
        new = np.where(helped, ready, new)
        new = np.where(answered, ANSWERED, new)
        self.answer = np.where(answered, token - FIRST_ANSWER, self.answer)
        self.tagged |= own & (token == TAG) & (state != ANSWERED)
        self.calls += called
        self.failures += called & failed
        self.state = new
        self.last = np.where(active, token, self.last)


def _chances(random: np.random.Generator, count: int, how: Sampling) -> Floats:
    """A number for each response; four neighbours share one if replicas share their seed."""
    chances = random.random(count)
    return np.repeat(chances[::4], 4)[:count] if how.shared_seed else chances


def sample(
    random: np.random.Generator,
    weights: Weights,
    problems: Problems,
    prompts: Ints,
    how: Sampling,
    disturb: Floats | None = None,
) -> Responses:
    """Sample one response for each entry of `prompts`.

    Args:
        random: source of randomness.
        weights: of the sampler.
        problems: the pool.
        prompts: ids, (responses,); responses to the same prompt are neighbours.
        how: limit, temperature, environment.
        disturb: error of the sampler's logits, (states, tokens).
    """
    count = len(prompts)
    writing = _Writing(problems, prompts)
    active = np.ones(count, bool)
    columns: list[tuple[Ints, Ints, Ints, Bools, Bools, Floats]] = []
    for _ in range(how.most):
        logits = weights.logits(prompts, writing.classes, writing.state, writing.last)
        if disturb is not None:
            logits = logits + disturb[writing.state]
        logprobs = log_softmax(logits / how.temperature)
        token = _draw(logprobs, _chances(random, count, how))
        forced = active & (writing.last == TOOL)
        token = np.where(forced, random.integers(0, OPERATIONS, count), token)
        chosen = np.where(forced, 0.0, logprobs[np.arange(count), token])
        columns.append((writing.state, writing.last, token, active, forced, chosen))
        failed = random.random(count) < how.tool_failures
        slipped = _chances(random, count, how) < problems.slips[prompts]
        writing.write(token, active, forced, failed, slipped)
        ended = (token == END) | ((token == how.stop_at) & ~forced)
        active = active & ~(ended & ~forced)
        if not active.any():
            break
    state, last, tokens, exists, forced_all, chosen_all = (
        np.stack(column, axis=1) for column in zip(*columns, strict=True)
    )
    return Responses(
        prompts=prompts,
        state=state,
        last=last,
        token=tokens,
        exists=exists,
        forced=forced_all,
        logprob=chosen_all,
        decisions=exists.sum(axis=1),
        truncated=active,
        answer=writing.answer,
        correct=(writing.answer == problems.answers[prompts]) & ~active,
        tagged=writing.tagged,
        calls=writing.calls,
        failures=writing.failures,
        reflections=((tokens == REFLECT) & exists).sum(axis=1),
        loops=((tokens == LOOP) & exists).sum(axis=1),
    )
