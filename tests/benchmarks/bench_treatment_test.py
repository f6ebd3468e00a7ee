"""How often the doctor's test keeps a treatment without effect, and how often one that works.

    python tests/benchmarks/bench_treatment_test.py [--runs 200] [--jobs 2]

Each run is simulated: a doctor watches a series, a finding is raised where the series is at its
worst for twenty steps, and the doctor proposes, switches, assesses, and keeps or undoes, as it does
live.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import binomtest

from grpodoctor.remedies.base import Criterion, Remedy
from grpodoctor.rules.base import Evidence, Finding
from grpodoctor.runs.chart import Chart
from grpodoctor.runs.records import Event, StepRecord
from grpodoctor.treatment.doctor import Doctor
from grpodoctor.treatment.requests import Request
from grpodoctor.vocabulary.values import Mean

STEPS = 400
EARLIEST = 20
"""Step from which a finding may be raised."""


class Simulated(Remedy):
    """A remedy for a simulated run: one target, one guard."""

    id = "simulated"
    title = "Simulated"
    applicability = "safe"
    in_flight = True
    slots = ("step-size",)
    target = Criterion("reward/mean", "up")
    guards = (Criterion("entropy/mean", "down", 0.1),)
    paper = ""
    settings = {"clip_high": 0.3}  # noqa: RUF012 - as in every remedy


Noise = Callable[[np.random.Generator], np.ndarray]


def independent(source: np.random.Generator) -> np.ndarray:
    """Independent readings."""
    return source.normal(size=STEPS)


def autocorrelated(source: np.random.Generator, correlation: float) -> np.ndarray:
    """First-order autocorrelation, spread 1."""
    series, fresh = np.zeros(STEPS), source.normal(size=STEPS)
    series[0] = fresh[0]
    for step in range(1, STEPS):
        fresh_share = math.sqrt(1 - correlation**2)
        series[step] = correlation * series[step - 1] + fresh_share * fresh[step]
    return series


def trending(source: np.random.Generator) -> np.ndarray:
    """A rise of a tenth of the noise per step."""
    return independent(source) + 0.1 * np.arange(STEPS)


def falling(source: np.random.Generator) -> np.ndarray:
    """A fall of a tenth of the noise per step."""
    return independent(source) - 0.1 * np.arange(STEPS)


def wandering(source: np.random.Generator) -> np.ndarray:
    """A random walk."""
    return np.cumsum(source.normal(size=STEPS)) * 0.3


def learning(source: np.random.Generator) -> np.ndarray:
    """A learning curve: a logistic rise of eight spreads within the first hundred steps."""
    middle, width = source.uniform(20, 80), source.uniform(5, 20)
    return 8 / (1 + np.exp(-(np.arange(STEPS) - middle) / width)) + autocorrelated(source, 0.3)


def outlying(source: np.random.Generator) -> np.ndarray:
    """Heavy tails: Student's t with two degrees of freedom."""
    return source.standard_t(2, size=STEPS)


SERIES: dict[str, Noise] = {
    "independent": independent,
    "autocorrelation .3": partial(autocorrelated, correlation=0.3),
    "autocorrelation .6": partial(autocorrelated, correlation=0.6),
    "autocorrelation .9": partial(autocorrelated, correlation=0.9),
    "rising trend": trending,
    "falling trend": falling,
    "random walk": wandering,
    "learning curve": learning,
    "heavy tails": outlying,
}


@dataclass(frozen=True, slots=True)
class Effect:
    """What the treatment does, in spreads of the noise."""

    level: float = 0.0
    """At once, while it is on."""
    slope: float = 0.0
    """Per step under treatment, for good."""

    def __str__(self) -> str:
        if self.slope:
            return f"{self.slope:+g} per treated step"
        return f"{self.level:+g} while on" if self.level else "none"


EFFECTS = (Effect(), Effect(1.0), Effect(1.5), Effect(2.0), Effect(3.0), Effect(0.0, 0.3))


class SimulatedRun:
    """A run whose series depends on nothing but its noise and the treatment."""

    def __init__(self, noise: np.ndarray, effect: Effect, seed: int) -> None:
        self.noise, self.effect = noise, effect
        self.chart, self.waiting, self.events = Chart(), list[Request](), list[Event]()
        self.chart.knobs["clip_high"] = 0.2
        self.doctor = Doctor([Simulated()], "safe", source=random.Random(seed))
        self.guard, self.gained = np.random.default_rng(seed).normal(1, 0.05, STEPS), 0.0
        self.is_ill = False

    def outcome(self) -> tuple[str, int]:
        """The state of the treatment at the end, and the steps that it took."""
        for step in range(STEPS):
            self._take_step(step)
            if self.doctor.history:
                treatment = self.doctor.history[0]
                return treatment.state, step - (treatment.applied_step or step)
        return "never begun", 0

    def _take_step(self, step: int) -> None:
        knobs = self._obey(step)
        is_on = self.chart.knobs["clip_high"] == 0.3 if not knobs else knobs["clip_high"] == 0.3
        value = self.noise[step] + is_on * self.effect.level + self.gained
        self.gained += is_on * self.effect.slope
        self.is_ill |= step >= EARLIEST and value < min(self.noise[step - EARLIEST : step])
        readings = {"reward/mean": Mean.of([value]), "entropy/mean": Mean.of([self.guard[step]])}
        self.chart.observe(StepRecord(step, readings, knobs))
        events, self.events = self.events, []
        self.waiting += self.doctor.observe(self.chart, list(self._findings(step)), events)

    def _obey(self, step: int) -> dict[str, float]:
        due = [each for each in self.waiting if each.from_step <= step]
        self.waiting = [each for each in self.waiting if each.from_step > step]
        knobs: dict[str, float] = {}
        for request in due:
            if request.kind == "note":
                self.events.append(request.as_event())
                continue
            knobs = {"clip_high": float(request.changes["clip_high"])}
            body = {**request.body(), "before": {"clip_high": 0.2}}
            self.events.append(Event(request.applied_kind, step, body))
        return knobs

    def _findings(self, step: int) -> Iterator[Finding]:
        if self.is_ill:
            evidence = (Evidence("reward/mean", step, 0.0, 0.0),)
            yield Finding(
                "SIM001",
                "simulated",
                "critical",
                step,
                step,
                True,
                "",
                evidence,
                ("simulated",),
                (),
            )


def kept(series: str, effect: Effect, seed: int) -> tuple[bool, int] | None:
    """Whether the treatment was kept, and its steps; None if no finding was raised."""
    noise = SERIES[series](np.random.default_rng([seed, len(series)]))
    state, steps = SimulatedRun(noise, effect, seed).outcome()
    return None if state == "never begun" else (state == "kept", steps)


def _cell(series: str, effect: Effect, runs: int) -> tuple[int, int, float]:
    """Kept treatments, treatments, and median steps to the decision."""
    results: list[tuple[bool, int]] = []
    seed = 0
    while len(results) < runs and seed < 4 * runs:
        result = kept(series, effect, seed)
        results += [result] if result is not None else []
        seed += 1
    return (
        sum(was for was, _ in results),
        len(results),
        float(np.median([steps for _, steps in results])) if results else math.nan,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    cells = [(series, effect) for effect in EFFECTS for series in SERIES]
    with ProcessPoolExecutor(options.jobs) as pool:
        results = list(pool.map(_cell, *zip(*cells, strict=True), [options.runs] * len(cells)))
    print(f"Kept treatments of {options.runs} simulated runs each; steps: median to the decision")
    for (series, effect), (hits, count, steps) in zip(cells, results, strict=True):
        print(
            f"{effect!s:22} {series:20} {hits / max(1, count):6.1%} of {count}, {steps:.0f} steps"
        )
    null = [
        result for (_, effect), result in zip(cells, results, strict=True) if effect == Effect()
    ]
    hits, count = sum(one for one, _, _ in null), sum(runs for _, runs, _ in null)
    low, high = binomtest(hits, count).proportion_ci()
    print(
        f"without effect, all series: {hits / count:.1%} of {count} (95 %: {low:.1%}, {high:.1%})"
    )


if __name__ == "__main__":
    main()
