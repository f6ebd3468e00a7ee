"""The responses of a run as the dashboard lists them, and the figures of their tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from grpodoctor.monitor.sample_responses import RecordedResponses, ResponseSource
from grpodoctor.runs.rollout_dumps.dumped_responses import DumpedResponses
from grpodoctor.runs.rollout_queries.dumped_parts import DumpedParts
from grpodoctor.runs.rollout_queries.figures import Rollout
from grpodoctor.runs.rollout_queries.index import RolloutIndex
from grpodoctor.runs.rollout_queries.recorded_parts import RecordedParts
from grpodoctor.vocabulary.knobs import Setting

_MOST_COMPARED_WORDS = 4000
"""Words of a response that are compared; the time grows with their square."""


def index_of(source: ResponseSource | None) -> RolloutIndex | None:
    """An index of a run's responses; None if the run has no responses."""
    if isinstance(source, RecordedResponses):
        return RolloutIndex(RecordedParts(source.directory))
    if isinstance(source, DumpedResponses):
        return RolloutIndex(DumpedParts(source))
    return None


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """The tokens of a response. A column is left out if nothing of it is known."""

    ids: tuple[int | None, ...]
    columns: Mapping[str, tuple[float | None, ...]]
    """Per token: `entropy`, `advantage`, `ratio`, `clipped`, `mismatch`, `learner`, `sampler`.
    None marks single values that are unknown or not finite."""


def token_figures(rollout: Rollout, knobs: Mapping[str, Setting]) -> TokenFigures:
    """The figures of a response's tokens.

    `ratio` is the learner's probability over the sampler's, before the update. `mismatch` is the
    absolute difference of the two probabilities. `clipped` is 1 where that ratio is outside the
    clip range, so that the token would be clipped if the sampler's log-probabilities were the old
    ones.

    Args:
        rollout: a response in full.
        knobs: the run's settings, for the clip range.
    """
    learner, sampler = (_finite(rollout.get(f"{side}_logprobs")) for side in ("learner", "sampler"))
    entropy, ids = _finite(rollout.get("entropies")), tuple(rollout.get("token_ids") or ())
    count = max(map(len, (learner, sampler, entropy, ids)))
    pairs = list(zip(learner, sampler, strict=False))
    ratios = tuple(None if None in pair else _exp(pair[0] - pair[1]) for pair in pairs)  # type: ignore[operator]
    advantage = rollout.get("advantage")
    columns: dict[str, tuple[float | None, ...]] = {
        "entropy": entropy,
        "advantage": (advantage,) * count if advantage is not None else (),
        "ratio": ratios,
        "clipped": _outside(ratios, rollout, knobs),
        "mismatch": tuple(
            None if None in pair else abs(math.exp(pair[0]) - math.exp(pair[1]))  # type: ignore[arg-type]
            for pair in pairs
        ),
        "learner": learner,
        "sampler": sampler,
    }
    known = {
        name: (*column, *(None,) * (count - len(column)))
        for name, column in columns.items()
        if any(value is not None for value in column)
    }
    return TokenFigures((*ids, *(None,) * (count - len(ids))), known)


def _finite(values: Sequence[float] | None) -> tuple[float | None, ...]:
    return tuple(
        value if value is not None and math.isfinite(value) else None for value in values or ()
    )


def _exp(difference: float) -> float:
    return math.exp(min(difference, 700.0))


def _outside(
    ratios: Sequence[float | None], rollout: Rollout, knobs: Mapping[str, Setting]
) -> tuple[float | None, ...]:
    """1 where the ratio is outside the clip range on the side that the advantage clips."""
    low, high, advantage = knobs.get("clip_low"), knobs.get("clip_high"), rollout.get("advantage")
    if not (isinstance(low, int | float) and isinstance(high, int | float)) or advantage is None:
        return ()
    if advantage >= 0:
        return tuple(None if each is None else float(each > 1 + high) for each in ratios)
    return tuple(None if each is None else float(each < 1 - low) for each in ratios)


def token_pairs(rollouts: Iterable[Rollout]) -> list[tuple[float, float]]:
    """The sampler's and the learner's log-probability of each token that has finite ones."""
    return [
        (sampler, learner)
        for rollout in rollouts
        for sampler, learner in zip(
            _finite(rollout.get("sampler_logprobs")),
            _finite(rollout.get("learner_logprobs")),
            strict=False,
        )
        if sampler is not None and learner is not None
    ]


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a response."""

    text: str
    is_different: bool


def marked_differences(text: str, other: str) -> list[Passage]:
    """A response in passages; those that differ from another response are marked, word by word.

    Args:
        text: the response.
        other: the response that it is compared with.
    """
    words, others = _words(text), _words(other)
    compared = words[:_MOST_COMPARED_WORDS]
    matcher = SequenceMatcher(None, others[:_MOST_COMPARED_WORDS], compared, autojunk=False)
    passages = [
        Passage("".join(compared[first:last]), kind != "equal")
        for kind, _, _, first, last in matcher.get_opcodes()
        if last > first
    ]
    rest = "".join(words[_MOST_COMPARED_WORDS:])
    return [*passages, Passage(rest, is_different=False)] if rest else passages


def _words(text: str) -> list[str]:
    """The words of a text, each with the white space after it."""
    words: list[str] = []
    for letter in text:
        if words and (letter.isspace() or not words[-1][-1].isspace()):
            words[-1] += letter
        else:
            words.append(letter)
    return words
