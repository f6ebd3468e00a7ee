"""What a probe will cost, before it starts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.inputs.plan import ProbePlan
from grpodoctor.probe.speeds import Speed, Speeds
from grpodoctor.support.numbers import count_of

_ATTRIBUTION_LOADS = 6
"""Engines that the search for the causes of a pair loads: the median of the planted pairs with two
causes. A pair that agrees needs two."""
_ATTRIBUTION_PASSES = 30
"""Times that the search scores its part of the responses, with the same pairs."""
_ATTRIBUTION_TOKENS = 64_000
_EDIT_PASSES, _EDIT_TOKENS = 1750, 512
"""Passes of edits, and tokens of each, if nothing explains the gap: those of a Llama whose weights
have noise. A pair with one known cause takes a third of them."""
_PASS_SECONDS = 0.035
"""What such a pass takes in a tiny model on an idle core, with its job and with the comparison of
places: in a small model more than its tokens do."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The work of a probe; what an earlier probe into the same folder did is not repeated."""

    loads: int
    """Engines that are loaded for the measurement and its controls."""
    sampled: int
    """Largest number of tokens to sample."""
    scored: int
    """Largest number of tokens to score, without attribution."""
    budget: float | None
    seconds: float | None
    """Time of the measurement; None if an engine's speed is not known."""
    loading_seconds: float
    """Time of loading every engine once, as far as it is known."""
    per_pair: float | None
    """Time of the search for the causes of a pair that differs; None if not known or not wanted."""
    is_measured: bool
    """Whether all engines ran in earlier probes; otherwise the time is a rough estimate."""
    attribution: bool

    @property
    def line(self) -> str:
        """The forecast as a line."""
        parts = [
            count_of(self.loads, "engine load"),
            f"at most {self.sampled:,} tokens to sample and {self.scored:,} to score",
        ]
        if self.attribution:
            more = "more" if self.per_pair is None else f"up to {in_words(self.per_pair)} more"
            parts.append(f"{more} for each pair that differs, to find its cause")
        limit = "no time limit (--budget)" if self.budget is None else f"limit {self.budget:g} s"
        return f"forecast: {self._time}{', '.join(parts)}; {limit}"

    @property
    def _time(self) -> str:
        if self.seconds is None:
            return ""
        source = "as in earlier probes" if self.is_measured else "from the sizes of the models"
        return f"about {in_words(self.seconds)} ({source}): "


def forecast_of(plan: ProbePlan, prompts: int, speeds: Speeds) -> Forecast:
    """The forecast of a plan.

    Args:
        plan: the plan.
        prompts: number of prompts.
        speeds: the speeds of its engines.
    """
    responses = prompts * plan.sampling.samples
    drawing = [spec for spec in plan.samplers if not spec.is_record]
    per_sampler = responses * sum(plan.sampling.max_tokens)
    # A sampler samples and scores its own tokens, as a control, in one load; a learner scores in
    # one load, and with wrong weights, as a control, in another.
    controls = int(plan.controls)
    passes = 1 + controls
    scoring = [spec for spec in plan.learners if not spec.is_record]
    corrected = _Corrected((*plan.samplers, *plan.learners), speeds)
    samplers = [corrected.of(spec) for spec in plan.samplers]
    learners = [corrected.of(spec) for spec in plan.learners]
    known = [speed for speed in (*samplers, *learners) if speed is not None]
    per_learner = len(plan.samplers) * per_sampler
    seconds = [
        *(_seconds(each, sampled=per_sampler, scored=per_sampler * controls) for each in samplers),
        *(_seconds(each, loads=passes, scored=passes * per_learner) for each in learners),
    ]
    return Forecast(
        loads=len(plan.samplers) + len(plan.learners) + len(scoring) * controls,
        sampled=per_sampler * len(drawing),
        scored=per_sampler * (len(drawing) * controls + len(plan.samplers) * len(scoring)),
        budget=plan.budget,
        seconds=_total(seconds),
        loading_seconds=sum(speed.load_seconds for speed in known),
        per_pair=search_seconds(plan.learners, per_sampler, speeds) if plan.attribution else None,
        is_measured=len(known) == len(seconds) and all(speed.is_measured for speed in known),
        attribution=plan.attribution,
    )


class _Corrected:
    """Speeds, with estimates corrected by what measured engines of the plan took.

    An estimate knows nothing of other programs on the machine; the load of one engine shows them.
    """

    def __init__(self, engines: Iterable[EngineSpec], speeds: Speeds) -> None:
        self._speeds = speeds
        ratios = [
            measured.load_seconds / estimate.load_seconds
            for spec in engines
            if (measured := speeds.of(spec)) is not None
            and measured.is_measured
            and (estimate := speeds.estimated(spec)) is not None
        ]
        self._factor = max(1.0, *ratios) if ratios else 1.0

    def of(self, engine: EngineSpec) -> Speed | None:
        """The speed of an engine; None if it is not known."""
        speed = self._speeds.of(engine)
        return speed if speed is None or speed.is_measured else speed.slower(self._factor)


def _seconds(speed: Speed | None, *, loads: int = 1, **tokens: float) -> float | None:
    return None if speed is None else speed.seconds(loads=loads, **tokens)


def _total(seconds: Iterable[float | None]) -> float | None:
    known = list(seconds)
    return None if None in known else sum(each for each in known if each is not None)


def search_seconds(learners: Iterable[EngineSpec], tokens: int, speeds: Speeds) -> float | None:
    """Time of the search for the causes of a pair, with its slowest learner."""
    scored = min(tokens, _ATTRIBUTION_TOKENS) * _ATTRIBUTION_PASSES
    each = [_search_seconds(speeds.of(spec), scored) for spec in learners]
    known = [seconds for seconds in each if seconds is not None]
    return max(known) if known and len(known) == len(each) else None


def _search_seconds(speed: Speed | None, scored: int) -> float | None:
    if speed is None:
        return None
    edits = _EDIT_PASSES * max(
        _EDIT_TOKENS / speed.scored_per_second, _PASS_SECONDS * _programs_per_core()
    )
    return speed.seconds(loads=_ATTRIBUTION_LOADS, scored=scored) + edits


def _programs_per_core() -> float:
    """By how much other programs slow a process down; at least 1."""
    with suppress(OSError, AttributeError):  # some systems do not tell
        return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    return 1.0


def in_words(seconds: float) -> str:
    """A duration with two digits at most."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
