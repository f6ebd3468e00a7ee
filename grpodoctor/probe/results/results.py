"""What a probe has found: the nouns that comparison, attribution and reports share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator

from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.vocabulary.values import Reading, reading_from_json, reading_to_json

StoredReading = Annotated[
    Reading, PlainValidator(reading_from_json), PlainSerializer(reading_to_json)
]
"""A reading that pydantic writes and reads as steps.jsonl does."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with the bootstrap interval of 95 % around it, resampled by prompt."""

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
    pieces: tuple[str, ...] = ()
    """The tokens' texts, where a tokenizer gives them; hostile."""
    prompt_text: str = ""
    """The end of the prompt; hostile."""


@dataclass(frozen=True, slots=True)
class Bin:
    """The tokens of one stretch of positions or probabilities."""

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
    """How one layer routes in the two engines."""

    layer: int
    overlap: float
    """Mean share of the sampler's experts that are the learner's too."""
    flipped_rate: float
    """Share of tokens with any other expert."""
    margin_flipped: float | None
    """Median router margin of tokens that were routed otherwise; None if none was, or not told."""
    margin_kept: float | None


@dataclass(frozen=True, slots=True)
class ExpertComparison:
    """Routing in two engines, or in two checkpoints, on the same tokens."""

    tokens: int
    """With routing known on both sides."""
    coverage: float
    """Share of the tokens with routing on both sides."""
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
    """Share of (token, layer) pairs with just the same experts: what a replay should bring to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The learner forced to the sampler's experts (routing replay), on a part of the responses."""

    responses: int
    tokens: int
    experts: ExpertComparison
    """The sampler's against those that were at work: `coverage` is the share of the tokens whose
    experts the sampler told, `agreement` is 1 if the learner has obeyed."""
    kl_k3_before: float
    """With the learner's own routing, in nats a token; NaN if no token is finite."""
    kl_k3_after: float
    prob_diff_before: float
    """Mean |Δp|."""
    prob_diff_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two engines on the same tokens; means over responses, as Yao et al. 2025 define them."""

    prompts: int
    responses: int
    tokens: int
    readings: Mapping[str, StoredReading]
    """Canonical `mismatch/*`, with the buckets, and `experts/*` where both sides gave routing."""
    intervals: Mapping[str, Interval]
    by_position: tuple[Bin, ...]
    by_probability: tuple[Bin, ...]
    worst_prompts: tuple[PromptGap, ...]
    worst: tuple[WorstResponse, ...]
    scatter: tuple[tuple[float, float], ...]
    """(sampler's, learner's) log-probability of a bounded random choice of tokens."""
    effects: Mapping[str, float]
    """Expected effect on training: share of tokens or responses that the usual caps act on, by the
    name of the correction, such as `tis_token/2`."""
    experts: ExpertComparison | None = None
    entropy_z: float | None = None
    """z of mean(log p + entropy) over tokens: far from 0 if the tokens were not drawn from the
    distribution whose log-probabilities the sampler gives, which |Δp| does not show."""
    quantiles: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Of the responses' own figures, such as `mismatch/prob_diff_max`: by metric, then by the share
    of responses below it, `0.5`, `0.9` and `0.99`."""
    unmeasured: tuple[tuple[int, int, int], ...] = ()
    """Prompt, sample and position of the first tokens that are not finite on both sides."""


ControlName = Literal["self_scoring", "repeat", "stale_weights", "same_weights"]


@dataclass(frozen=True, slots=True)
class Control:
    """A measurement whose outcome is known beforehand."""

    name: ControlName
    title: str
    passed: bool | None
    """None where it could not be made; `told` says why."""
    told: str
    """One sentence with the numbers in it."""
    figures: Mapping[str, float] = field(default_factory=dict)


Confidence = Literal["proven", "likely", "possible"]
"""`proven`: taking the cause away took the gap away; `likely`: the data bear its signature and
nothing else does as well; `possible`: a known difference whose effect was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCause:
    """One reason why the engines differ."""

    cause: str
    """Its id, such as `temperature`."""
    title: str
    confidence: Confidence
    explained: float | None
    """Share of the gap that went away with it, 1 being all; None without an experiment."""
    told: str
    """One sentence with the numbers in it."""
    details: tuple[str, ...] = ()
    """The tensors, modules, positions or prompts concerned."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What was fitted or measured: the temperature, the gap before and after."""
    remedies: tuple[str, ...] = ()
    """What to do, best first, one sentence each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One sampler against one learner at one length of responses."""

    sampler: str
    """Label."""
    learner: str
    max_tokens: int
    status: Literal["done", "failed", "not_run"]
    told: str = ""
    """Why it is not done."""
    comparison: Comparison | None = None
    controls: tuple[Control, ...] = ()
    causes: tuple[NamedCause, ...] = ()
    """Most of the gap first; empty if there is nothing to explain."""
    verdict: str = ""
    """One sentence for a person: do they agree, and if not, why."""
    remedies: tuple[str, ...] = ()
    churn: ExpertComparison | None = None
    """Routing of an older checkpoint against the learner's on the same tokens, if one was given:
    what the optimizer steps between the two have changed."""
    replayed: Replayed | None = None
    """What is left of the gap under routing replay; None without experts on both sides, or where
    the learner cannot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """All that a probe has found."""

    created: str
    """ISO 8601, UTC."""
    settings: Mapping[str, Any]
    """Sampling, prompts, seed: what to repeat it with."""
    engines: Mapping[str, EngineFacts]
    """By label."""
    cells: tuple[Cell, ...]
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every cell was measured."""
        return all(cell.status == "done" for cell in self.cells)
