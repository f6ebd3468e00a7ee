"""The data types of a probe's result, shared by comparison, attribution and reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator

from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.vocabulary.values import Reading, reading_from_json, reading_to_json, scalar

StoredReading = Annotated[
    Reading, PlainValidator(reading_from_json), PlainSerializer(reading_to_json)
]
"""A reading that pydantic stores in the form of steps.jsonl."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % bootstrap interval, resampled by prompt."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class WorstResponse:
    """One of the responses with the largest |Δp| of a token."""

    prompt: int
    sample: int
    prob_diff_max: float
    logprob_diff_mean: float
    at: int
    """Position of the worst token in the response."""
    ids: tuple[int, ...]
    sampler_logprobs: tuple[float, ...]
    learner_logprobs: tuple[float, ...]
    token_texts: tuple[str, ...] = ()
    """Texts of the tokens, if a tokenizer is available; hostile."""
    prompt_text: str = ""
    """The end of the prompt; hostile."""


@dataclass(frozen=True, slots=True)
class Bin:
    """The tokens in one range of positions or probabilities."""

    low: float
    high: float
    tokens: int
    prob_diff_mean: float
    logprob_diff_mean: float
    prob_diff_max: float


@dataclass(frozen=True, slots=True)
class PromptGap:
    """The responses to one prompt."""

    prompt: int
    responses: int
    prob_diff_mean: float
    logprob_diff_mean: float
    prob_diff_max: float


@dataclass(frozen=True, slots=True)
class LayerFlips:
    """The routing of one layer in the two engines."""

    layer: int
    overlap: float
    """Mean share of the sampler's experts that the learner uses too."""
    flipped_rate: float
    """Share of tokens with any different expert."""
    margin_flipped: float | None
    """Median router margin of flipped tokens; None if there are none or margins are unknown."""
    margin_kept: float | None


@dataclass(frozen=True, slots=True)
class ExpertComparison:
    """Routing in two engines, or in two checkpoints, on the same tokens."""

    tokens: int
    """Tokens with known routing on both sides."""
    coverage: float
    """Share of tokens with known routing on both sides."""
    any_flip_rate: float
    churn: float
    """Mean over tokens and layers of |before minus after| / K (GSPO, arXiv 2507.18071)."""
    layers: tuple[LayerFlips, ...]
    logprob_diff_flipped: float | None
    """Mean |Δlogp| of tokens with a flip in any layer; None if there is none."""
    logprob_diff_kept: float | None
    flips_to_gap: float | None
    """Spearman correlation of a token's flipped layers with its |Δlogp|."""
    by_margin: tuple[tuple[float, float, float, int], ...] = ()
    """Flips against the router's margin: low, high, flip rate, (token, layer) pairs."""
    agreement: float | None = None
    """Share of (token, layer) pairs with the same experts; replay should raise it to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The learner with the sampler's experts (routing replay), on a part of the responses."""

    responses: int
    tokens: int
    experts: ExpertComparison
    """The sampler's experts against those that the learner used: `coverage` is the share of tokens
    with known experts; `agreement` is 1 if the learner used the sampler's experts."""
    kl_k3_before: float
    """With the learner's own routing, in nats per token; NaN if no token is finite."""
    kl_k3_after: float
    prob_diff_before: float
    """Mean |Δp|."""
    prob_diff_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two engines on the same tokens; means over responses as defined by Yao et al. 2025."""

    prompts: int
    responses: int
    tokens: int
    readings: Mapping[str, StoredReading]
    """Canonical `mismatch/*` with buckets, and `experts/*` if both sides report routing."""
    intervals: Mapping[str, Interval]
    by_position: tuple[Bin, ...]
    by_probability: tuple[Bin, ...]
    worst_prompts: tuple[PromptGap, ...]
    worst: tuple[WorstResponse, ...]
    scatter: tuple[tuple[float, float], ...]
    """(sampler's, learner's) log-probability of a bounded random selection of tokens."""
    effects: Mapping[str, float]
    """Expected effect on training: the share of tokens or responses that the usual corrections
    affect, by the name of the correction, such as `tis_token/2`."""
    experts: ExpertComparison | None = None
    entropy_z: float | None = None
    """z of mean(log p + entropy) over tokens: far from 0 if the tokens were not drawn from the
    reported distribution, which |Δp| does not show."""
    quantiles: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Quantiles of per-response figures, such as `mismatch/prob_diff_max`: by metric, then by the
    share of responses below it, `0.5`, `0.9` and `0.99`."""
    unmeasured: tuple[tuple[int, int, int], ...] = ()
    """Prompt, sample and position of the first tokens without finite values on both sides."""
    equal_tokens: int | None = None
    """Tokens with bitwise equal log-probabilities; None in results of earlier versions."""

    def value(self, metric: str) -> float:
        """A reading as a number; NaN if it is absent or not applicable."""
        reading = self.readings.get(metric)
        number = None if reading is None else scalar(reading)
        return math.nan if number is None else number


ControlName = Literal["self_scoring", "repeat", "stale_weights", "same_weights"]


@dataclass(frozen=True, slots=True)
class Control:
    """A measurement with a known result."""

    name: ControlName
    title: str
    passed: bool | None
    """None if it could not be measured; `summary` gives the reason."""
    summary: str
    """One sentence with the numbers."""
    figures: Mapping[str, float] = field(default_factory=dict)


Confidence = Literal["proven", "likely", "possible"]
"""`proven`: removing the cause removed the gap. `likely`: the data have its signature and no other
cause fits as well. `possible`: a known difference whose effect was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCause:
    """One cause of a gap."""

    cause: str
    """The cause's id, such as `temperature`."""
    title: str
    confidence: Confidence
    explained: float | None
    """Share of the gap that disappeared without the cause, from 0 to 1; None without experiment."""
    summary: str
    """One sentence with the numbers."""
    details: tuple[str, ...] = ()
    """The affected tensors, modules, positions or prompts."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Fitted or measured numbers: the temperature, the gap before and after."""
    remedies: tuple[str, ...] = ()
    """Remedies, best first, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One sampler against one learner at one response length."""

    sampler: str
    """Label of the sampler."""
    learner: str
    max_tokens: int
    status: Literal["done", "failed", "not_run"]
    reason: str = ""
    """The reason if the status is not `done`."""
    comparison: Comparison | None = None
    """The comparison; that of the first round alone if the status is `not_run`."""
    controls: tuple[Control, ...] = ()
    causes: tuple[NamedCause, ...] = ()
    """Largest share of the gap first; empty if there is nothing to explain."""
    verdict: str = ""
    """One sentence: whether the engines agree, and the cause if they do not."""
    remedies: tuple[str, ...] = ()
    gap: float | None = None
    """k3 of the tokens that attribution used, or of all tokens without attribution, in nats per
    token; None if no token is finite, and in some results of earlier versions."""
    noise: float | None = None
    """k3 that rounding causes in this pair; None if it is not known."""
    noise_is_usual: bool = False
    """Whether `noise` is the usual value of the precision instead of a measurement in this pair."""
    churn: ExpertComparison | None = None
    """Routing of an older checkpoint against the learner's on the same tokens, if one was given:
    the effect of the optimizer steps in between."""
    replayed: Replayed | None = None
    """The gap under routing replay; None without experts on both sides, or if the learner does not
    support replay."""
    untried: tuple[str, ...] = ()
    """Active sampling settings of the run, with their values, that the sampler did not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The result of a probe."""

    created: str
    """ISO 8601, UTC."""
    settings: Mapping[str, Any]
    """Sampling, prompts and seed, to repeat the probe."""
    engines: Mapping[str, EngineFacts]
    """Facts of each engine, by label."""
    cells: tuple[Cell, ...]
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every cell was measured."""
        return all(cell.status == "done" for cell in self.cells)
