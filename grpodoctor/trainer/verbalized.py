"""Verbalized sampling: a model is asked for several responses with their probabilities at once.

Formula
    One prompt asks for k responses, each with a probability; one reply lists them; one of the list
    is drawn by these probabilities, divided by their sum. It makes data, not a training step.

Denominator
    The probabilities need not sum to 1: they are divided by what they sum to. What is listed twice
    has the sum of both; an entry without a text or a finite, positive probability is left out and
    counted.

Settings
    Arguments alone, no section of the configuration: k, temperature, length of the reply.

Effect on metrics
    More variety than as many independent responses: 1.6 to 2.1 times in the paper's creative tasks.
    The stated probability is a part of the text, not the model's own: `logprob` of each row is that
    of the response's tokens, given the prompt really used and the reply before them.

Other implementations
    The authors' package; no trainer has it.

Do not combine with
    The group of a GRPO step. Its responses would not come from the prompt they are trained on: a
    log-probability under the bare prompt is that of another policy, so that every ratio is wrong
    from the start. The k responses share one reply, each written with those before it in sight:
    they are not independent, and a group's mean is no baseline for them. The paper does not propose
    it.

Source
    arXiv 2510.01171.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import orjson
import torch

from grpodoctor.errors import DataError
from grpodoctor.trainer.engines.sampler import sample
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.model.tokenizer import Tokenizer

_LONGEST = 100_000
"""Characters of a reply that are looked at."""


class Candidate(NamedTuple):
    """One response of a list."""

    text: str
    probability: float
    """As the reply states it, divided by the sum over the list."""
    stated: float
    """As the reply states it."""
    start: int
    """Where the text begins in the reply, in characters."""
    end: int


class _Entry(NamedTuple):
    """A probability and where its text is."""

    stated: float
    start: int
    end: int


class Parsed(NamedTuple):
    """What a reply lists."""

    candidates: list[Candidate]
    malformed: int
    """Entries without a text or a usable probability."""


@dataclass(frozen=True, slots=True)
class Row:
    """One response, with all that is needed to use it honestly."""

    question: str
    prompt: str
    """Really used; log-probabilities are under it."""
    reply: str
    """The whole list that the response is a part of."""
    text: str
    probability: float
    stated: float
    logprob: float | None = None
    """Of the tokens of `text`, given the prompt and the reply before them, at `temperature`."""
    reply_logprob: float | None = None
    """Of the whole reply, its end token among it."""
    temperature: float | None = None


def verbalized_prompt(question: str, count: int) -> str:
    """The prompt that asks for a list.

    Raises:
        DataError: if fewer than two responses are asked for.
    """
    if count < 2:
        raise DataError(
            f"a list of {count} is none", where="verbalized sampling", remedy="ask for two or more"
        )
    return (
        f"{question} Give {count} different responses to this, with how probable each one is. "
        "Write each as <response><text>the response</text><probability>a number from 0 to 1"
        "</probability></response> and nothing else."
    )


def parse(reply: str) -> Parsed:
    """The list in a reply; anything may stand in it.

    Args:
        reply: of a model; what is beyond a hundred thousand characters is not looked at.
    """
    entries: dict[str, _Entry] = {}
    malformed, place, reply = 0, 0, reply[:_LONGEST]
    while (begin := reply.find("<response>", place)) >= 0:
        place = _end_of_entry(reply, begin + len("<response>"))
        entry = _entry(reply, begin, place)
        if entry is None:
            malformed += 1
            continue
        text = reply[entry.start : entry.end]
        first = entries.get(text)
        entries[text] = first._replace(stated=first.stated + entry.stated) if first else entry
    total = math.fsum(each.stated for each in entries.values())
    candidates = [Candidate(text, each.stated / total, *each) for text, each in entries.items()]
    return Parsed(candidates, malformed)


def _end_of_entry(reply: str, begin: int) -> int:
    """Where an entry ends: at its closing tag, or at the next entry if that is missing."""
    marks = (reply.find("</response>", begin), reply.find("<response>", begin), len(reply))
    return min(mark for mark in marks if mark >= 0)


def _entry(reply: str, begin: int, end: int) -> _Entry | None:
    """What stands between two places of a reply; None without a text or a usable probability."""
    text, chance = _within(reply, "text", begin, end), _within(reply, "probability", begin, end)
    if text is None or chance is None:
        return None
    stated = _probability(reply[slice(*chance)])
    start, stop = text
    written = reply[start:stop]
    start += len(written) - len(written.lstrip())
    stop = start + len(written.strip())
    return None if stated is None or start >= stop else _Entry(stated, start, stop)


def _within(reply: str, tag: str, begin: int, end: int) -> tuple[int, int] | None:
    start = reply.find(f"<{tag}>", begin, end)
    stop = reply.find(f"</{tag}>", start, end)
    return None if start < 0 or stop < 0 else (start + len(tag) + 2, stop)


def _probability(text: str) -> float | None:
    """A positive number, or a percentage; None for anything else."""
    bare = text.strip()
    try:
        number = float(bare.removesuffix("%")) / (100 if bare.endswith("%") else 1)
    except ValueError:
        return None
    return number if 0 < number <= 1e100 else None


def choose(candidates: Sequence[Candidate], rng: random.Random) -> Candidate:
    """Draw one of a list by the probabilities it states.

    Raises:
        DataError: if the list is empty.
    """
    if not candidates:
        raise DataError(
            "a reply lists no response with a probability",
            where="verbalized sampling",
            remedy="allow longer replies, or use a model that follows instructions",
        )
    return rng.choices(candidates, [each.probability for each in candidates])[0]


def rows_of(question: str, prompt: str, reply: str) -> list[Row]:
    """The rows of a reply that somebody else sampled: without log-probabilities."""
    return [
        Row(question, prompt, reply, each.text, each.probability, each.stated)
        for each in parse(reply).candidates
    ]


def sample_rows(
    policy: Policy,
    questions: Sequence[str],
    count: int,
    *,
    max_length: int,
    temperature: float,
    generator: torch.Generator,
) -> list[Row]:
    """Ask a policy, one reply a question; a question whose reply lists nothing has no rows.

    Args:
        policy: samples, and thereby tells the log-probabilities of its own tokens.
        questions: what is to be answered.
        count: responses per question.
        max_length: of a reply, in tokens.
        temperature: above 0.
        generator: the only source of randomness.

    Raises:
        DataError: if a prompt cannot be encoded, or does not fit the model.
    """
    prompts = [verbalized_prompt(question, count) for question in questions]
    samples = sample(
        policy.model,
        [policy.tokenizer.encode(prompt) for prompt in prompts],
        max_length=max_length,
        temperature=temperature,
        tokenizer=policy.tokenizer,
        generator=generator,
    )
    rows: list[Row] = []
    for place, ids in enumerate(samples.response_ids()):
        logprobs = samples.logprobs_BT[place, : len(ids)].tolist()
        reply = policy.tokenizer.decode(ids)
        ends = _ends(policy.tokenizer, ids)
        for each in parse(reply).candidates:
            scored = _logprob(logprobs, ends, each)
            asked = (questions[place], prompts[place], reply)
            stated = (each.text, each.probability, each.stated)
            rows.append(Row(*asked, *stated, scored, math.fsum(logprobs), temperature))
    return rows


def _ends(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Where each token's text ends in the reply, in characters."""
    return [len(tokenizer.decode(ids[: stop + 1])) for stop in range(len(ids))]


def _logprob(logprobs: Sequence[float], ends: Sequence[int], candidate: Candidate) -> float:
    """Of all tokens that hold a character of the candidate's text."""
    starts = [0, *ends[:-1]]
    within = [
        logprob
        for logprob, start, end in zip(logprobs, starts, ends, strict=True)
        if start < candidate.end and end > candidate.start
    ]
    return math.fsum(within)


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write rows as JSON lines.

    Raises:
        DataError: if the file cannot be written.
    """
    lines = b"".join(orjson.dumps(asdict(row)) + b"\n" for row in rows)
    try:
        path.write_bytes(lines)
    except OSError as error:
        raise DataError(f"cannot be written: {error.strerror}", where=str(path)) from error
