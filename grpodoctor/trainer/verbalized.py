"""Verbalized sampling: one reply lists several responses with their probabilities.

Formula
    One prompt asks for k responses, each with a probability. The model's reply lists them. One of
    them is drawn with these probabilities, divided by their sum. This produces data; it is not a
    training step.

Denominator
    The stated probabilities need not sum to 1: they are divided by their sum. A response listed
    twice has the sum of both. An entry without text or without a finite, positive probability is
    dropped and counted.

Settings
    Options of `grpodoctor verbalize`: number of responses, temperature, reply length. There is no
    configuration section.

Effect on metrics
    More variety than the same number of independent responses: 1.6 to 2.1 times in the paper's
    creative tasks. The stated probability is part of the text, not the model's own: each response's
    `logprob` is that of its tokens, given the actual prompt and the preceding reply.

Other implementations
    The authors' package. No trainer has it.

Do not combine with
    The group of a GRPO step. The responses do not come from the prompt that they would be trained
    on: a log-probability under the plain prompt belongs to another policy, so every importance
    ratio is wrong from the start. The k responses share one reply, and each is written after the
    previous ones: they are not independent, so a group mean is not a baseline for them. The paper
    does not propose it.

Source
    arXiv 2510.01171.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from grpodoctor.errors import DataError
from grpodoctor.trainer.engines.sampler import sample
from grpodoctor.trainer.model.policy import Policy
from grpodoctor.trainer.model.tokenizer import Tokenizer

_MAX_CHARACTERS = 100_000
"""Characters of a reply that are parsed."""


class Candidate(NamedTuple):
    """One response in a reply."""

    text: str
    probability: float
    """The stated probability divided by the sum over the reply."""
    stated: float
    """The probability that the reply states."""
    start: int
    """Position of the text in the reply, in characters."""
    end: int


class _Entry(NamedTuple):
    """A probability and the position of its text."""

    stated: float
    start: int
    end: int


class ParsedReply(NamedTuple):
    """The responses in a reply."""

    candidates: list[Candidate]
    malformed: int
    """Entries without text or without a usable probability."""


@dataclass(frozen=True, slots=True)
class VerbalizedResponse:
    """One response with the context of its log-probability."""

    question: str
    prompt: str
    """The actual prompt; log-probabilities are conditional on it."""
    reply: str
    """The whole reply that lists the response."""
    text: str
    probability: float
    """The stated probability divided by the sum over the reply."""
    stated: float
    """The probability that the reply states."""
    logprob: float | None = None
    """Log-probability of `text`, given the prompt and the preceding reply, at `temperature`."""
    reply_logprob: float | None = None
    """Log-probability of the whole reply, including its end token."""
    temperature: float | None = None


def verbalized_prompt(question: str, count: int) -> str:
    """The prompt that asks for a list of responses.

    Raises:
        DataError: if fewer than two responses are requested.
    """
    if count < 2:
        raise DataError(
            f"cannot ask for a list of {count}",
            where="verbalized sampling",
            remedy="ask for two or more responses",
        )
    return (
        f"{question} Give {count} different responses to this, with how probable each one is. "
        "Write each as <response><text>the response</text><probability>a number from 0 to 1"
        "</probability></response> and nothing else."
    )


def parse(reply: str) -> ParsedReply:
    """The responses in a reply, which may contain anything."""
    entries: dict[str, _Entry] = {}
    malformed, position, reply = 0, 0, reply[:_MAX_CHARACTERS]
    while (begin := reply.find("<response>", position)) >= 0:
        position = _end_of_entry(reply, begin + len("<response>"))
        entry = _entry(reply, begin, position)
        if entry is None:
            malformed += 1
            continue
        text = reply[entry.start : entry.end]
        first = entries.get(text)
        entries[text] = first._replace(stated=first.stated + entry.stated) if first else entry
    total = math.fsum(entry.stated for entry in entries.values())
    candidates = [Candidate(text, entry.stated / total, *entry) for text, entry in entries.items()]
    return ParsedReply(candidates, malformed)


def _end_of_entry(reply: str, begin: int) -> int:
    """The end of an entry: its closing tag, or the next entry if the closing tag is missing."""
    marks = (reply.find("</response>", begin), reply.find("<response>", begin), len(reply))
    return min(mark for mark in marks if mark >= 0)


def _entry(reply: str, begin: int, end: int) -> _Entry | None:
    """The entry between two positions; None without text or a usable probability."""
    text = _between_tags(reply, "text", begin, end)
    probability = _between_tags(reply, "probability", begin, end)
    if text is None or probability is None:
        return None
    stated = _parse_probability(reply[slice(*probability)])
    start, stop = text
    raw = reply[start:stop]
    start += len(raw) - len(raw.lstrip())
    stop = start + len(raw.strip())
    return None if stated is None or start >= stop else _Entry(stated, start, stop)


def _between_tags(reply: str, tag: str, begin: int, end: int) -> tuple[int, int] | None:
    start = reply.find(f"<{tag}>", begin, end)
    stop = reply.find(f"</{tag}>", start, end)
    return None if start < 0 or stop < 0 else (start + len(tag) + 2, stop)


def _parse_probability(text: str) -> float | None:
    """A positive number or a percentage; None for anything else."""
    bare = text.strip()
    try:
        number = float(bare.removesuffix("%")) / (100 if bare.endswith("%") else 1)
    except ValueError:
        return None
    return number if 0 < number <= 1e100 else None


def draw(candidates: Sequence[Candidate | VerbalizedResponse], rng: random.Random) -> int:
    """Index of a response drawn with the stated probabilities.

    Raises:
        DataError: if there is no response.
    """
    if not candidates:
        raise DataError(
            "the reply lists no response with a probability",
            where="verbalized sampling",
            remedy="allow longer replies, or use a model that follows instructions",
        )
    weights = [candidate.probability for candidate in candidates]
    return rng.choices(range(len(candidates)), weights)[0]


def responses_in(question: str, prompt: str, reply: str) -> list[VerbalizedResponse]:
    """The responses in a reply, without log-probabilities."""
    return [
        VerbalizedResponse(
            question, prompt, reply, candidate.text, candidate.probability, candidate.stated
        )
        for candidate in parse(reply).candidates
    ]


def sample_responses(
    policy: Policy,
    questions: Sequence[str],
    count: int,
    *,
    max_length: int,
    temperature: float,
    generator: torch.Generator,
) -> list[list[VerbalizedResponse]]:
    """Sample one reply per question and parse it.

    Args:
        policy: samples the replies.
        questions: the user's prompts.
        count: responses to ask for per question.
        max_length: of a reply, in tokens.
        temperature: above 0.
        generator: the only source of randomness.

    Returns:
        For each question the responses in its reply; empty if it lists none.

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
    replies = []
    for index, ids in enumerate(samples.response_ids()):
        logprobs = samples.logprobs_BT[index, : len(ids)].tolist()
        ends = _token_ends(policy.tokenizer, ids)
        reply = policy.tokenizer.decode(ids)
        responses = responses_in(questions[index], prompts[index], reply)
        replies.append(
            [
                replace(
                    response,
                    logprob=_logprob(logprobs, ends, candidate),
                    reply_logprob=math.fsum(logprobs),
                    temperature=temperature,
                )
                for response, candidate in zip(responses, parse(reply).candidates, strict=True)
            ]
        )
    return replies


def _token_ends(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Where each token's text ends in the reply, in characters."""
    return [len(tokenizer.decode(ids[: stop + 1])) for stop in range(len(ids))]


def _logprob(logprobs: Sequence[float], ends: Sequence[int], candidate: Candidate) -> float:
    """The sum over all tokens that contain a character of the candidate's text."""
    starts = [0, *ends[:-1]]
    within = [
        logprob
        for logprob, start, end in zip(logprobs, starts, ends, strict=True)
        if start < candidate.end and end > candidate.start
    ]
    return math.fsum(within)
