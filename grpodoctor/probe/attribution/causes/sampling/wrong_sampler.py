"""The tokens were not drawn from the reported distribution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.tokens.eos_handling import without_dropped_ends
from grpodoctor.probe.attribution.columns.token_biases import choice_nats, token_biases
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Floats, Tokens
from grpodoctor.probe.attribution.variant import Variant
from grpodoctor.probe.contract import Processing

STANDARD_ERRORS = 4.0
"""The sum of log p + entropy over sampled tokens is a martingale, so its z is normal: a sound pair
reaches 4 with a probability of 6e-5."""
OVER_GAP = 3.0
"""Standard errors for each that the gap explains."""
_CHANCE_NATS = 9.7
"""The same probability for the likelihood of a bias of one token."""
_FEWEST = 100
_EXPLAIN = {
    *("temperature", "truncation", "raw-logprobs", "prompt-ids"),
    *("stale-weights", "earlier-weights", "partial-sync", "model-config"),
    *("adapter", "earlier-adapter"),
    *("structured-output", "speculative-decoding"),
    *("quantisation", "kv-cache"),
}
"""Causes that change the distribution that tokens are drawn from."""


_EXPLAINING = {
    *("repetition-penalty", "presence-penalty", "frequency-penalty", "min-tokens", "logit-bias"),
    *("speculative-decoding", "structured-output", "prefix-caching"),
    *("temperature", "truncation", "typical-p", "xtc", "dry-penalty", "no-repeat-ngram"),
    "sampling-penalties",
}
"""Causes of tokens that are not drawn from the reported distribution."""


@dataclass(frozen=True, slots=True)
class DrawnTest:
    """A statistic of the sampled tokens whose mean is 0 if they follow the learner."""

    name: str
    mean: float
    z: float


def drawn_test(experiments: Experiments, variant: Variant) -> DrawnTest | None:
    """The test with the largest z; None without the learner's columns, or where it cannot be made.

    Each term has mean 0 given the tokens before it, so the sum is a martingale: divided by the root
    of its sum of squares, it is standard normal, even if responses are alike.
    """
    tokens = variant.tokens
    at = tokens.drawn_N
    if at.sum() < _FEWEST or not tokens.any or not tokens_as_drawn(experiments, variant):
        return None
    return largest_test(tokens, is_fine=likeliest_differ(experiments, variant))


def largest_test(tokens: Tokens, *, is_fine: bool) -> DrawnTest | None:
    """The statistic of the sampled tokens that deviates most from 0; None without columns.

    Args:
        tokens: with the columns of the learner that they should follow.
        is_fine: whether the learner's likeliest tokens differ in probability.
    """
    at = tokens.drawn_N
    named_terms = [
        *_terms(tokens),
        *_seen_terms(tokens),
        *(_ranked_terms(tokens) if is_fine else ()),
    ]
    tests = [_tested(name, terms_N[at]) for name, terms_N in named_terms]
    return max(tests, key=lambda each: abs(each.z), default=None)


def _terms(tokens: Tokens) -> Iterator[tuple[str, Floats]]:
    if tokens.surplus_N is not None:
        yield "log p + entropy", tokens.surplus_N


def _seen_terms(tokens: Tokens) -> Iterator[tuple[str, Floats]]:
    """Tokens that their response contains already, among the likeliest tokens of each place."""
    if tokens.ids_N is None or tokens.likeliest_NM is None or tokens.likeliest_logprob_NM is None:
        return
    span = int(max(tokens.ids_N.max(initial=0), tokens.likeliest_NM.max(initial=0))) + 1
    keys, first = np.unique(tokens.rows_N * span + tokens.ids_N, return_index=True)
    wanted_NM = tokens.rows_N[:, None] * span + tokens.likeliest_NM
    place_NM = np.minimum(np.searchsorted(keys, wanted_NM), keys.size - 1)
    is_seen_NM = keys[place_NM] == wanted_NM
    is_seen_NM &= first[place_NM] < np.arange(tokens.ids_N.size)[:, None]
    expected_N = np.where(is_seen_NM, np.exp(tokens.likeliest_logprob_NM), 0.0).sum(axis=1)
    is_drawn_N = (is_seen_NM & (tokens.likeliest_NM == tokens.ids_N[:, None])).any(axis=1)
    yield "the share of repeated tokens", is_drawn_N - expected_N


def likeliest_differ(experiments: Experiments, variant: Variant) -> bool:
    """Whether the learner's tokens differ in probability.

    In 16 bits many of the likeliest tokens are equally likely, and none of them has a likelier one.
    """
    return experiments.dtypes[1] == "float32" and variant.setup.learner == experiments.case.learner


def _ranked_terms(tokens: Tokens) -> Iterator[tuple[str, Floats]]:
    rank_N, above_N, top_N = tokens.rank_N, tokens.mass_above_N, tokens.top_logprob_N
    if rank_N is None or above_N is None or top_N is None:
        return
    own_N = np.exp(tokens.learner_N)
    yield "the probability of likelier tokens", above_N + own_N / 2 - 0.5
    yield "the share of likeliest tokens", (rank_N == 0) - np.exp(top_N)


def _tested(name: str, terms_N: Floats) -> DrawnTest:
    size = float(np.sqrt(np.square(terms_N).sum()))
    return DrawnTest(name, float(terms_N.mean()), float(terms_N.sum()) / size if size else 0.0)


class WrongSampler(Cause):
    """Detected in statistics of the sampled tokens; |Δp| does not show it."""

    id = "wrong-sampler"
    title = "Tokens are not drawn from the reported distribution"
    remedies = (
        "Turn off speculative decoding and custom logits processors and probe again: tokens must "
        "occur as often as their log-probabilities predict.",
        "Check for truncation, penalties or a temperature that the engine applies to sampling but "
        "not to the reported values.",
    )
    peels = False
    when = "always"

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """A statistic deviates from its expectation by more than the gap explains."""
        return drawn_deviation(experiments, variant)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Report the direction, unless another cause explains it."""
        if experiments.named & _EXPLAINING:
            return None
        facts = dict(hypothesis.facts)
        of = facts.pop("of")
        if "nats" in facts:
            what = f"{of} ({facts['nats']:.0f} nats)"
        else:
            z, mean = float(facts["z"]), float(facts["mean"])
            what = f"{of} is {mean:+.3g} from its expectation on average, z = {z:.1f}"
        sampling = experiments.case.sampling
        cut = Processing.of(sampling) != Processing(temperature=sampling.temperature)
        asked = "; the reported values lack the requested truncation" if cut else ""
        return ExperimentResult(
            summary=f"tokens do not follow the learner's probabilities: {what}{asked}",
            confidence="likely",
            figures={name: float(value) for name, value in facts.items()},
        )


def drawn_deviation(experiments: Experiments, variant: Variant) -> Hypothesis | None:
    """A statistic of the sampled tokens that deviates by more than chance and gap explain."""
    tokens = variant.tokens
    test = drawn_test(experiments, variant)
    if test is None:
        return None
    # By Pinsker and Cauchy-Schwarz, two distributions with a KL of k3 differ in this mean by
    # about sqrt(2 k3) of its spread.
    allowed = STANDARD_ERRORS + OVER_GAP * np.sqrt(2 * gap_nats(tokens))
    if abs(test.z) > allowed:
        return Hypothesis(0.9, {"z": test.z, "mean": test.mean, "of": test.name})
    biases = token_biases(without_dropped_ends(experiments, tokens))
    least = choice_nats(experiments.case.learner_facts.vocab_size, 1) + _CHANCE_NATS
    if not biases or biases[0].nats <= least + gap_nats(tokens):
        return None
    return Hypothesis(0.9, {"nats": biases[0].nats, "of": biases[0].shown})


def gap_nats(tokens: Tokens) -> float:
    """How much likelier the tokens may be under the sampler, judging by the reported values."""
    return float(max(tokens.gap, 0.0) * tokens.drawn_N.sum())


def tokens_as_drawn(experiments: Experiments, variant: Variant) -> bool:
    """Whether all tokens that count should follow the learner's first scoring.

    Without end tokens they do not: a token that is no end token is likelier than the learner says.
    """
    case = experiments.case
    if (
        variant.setup.without_ends
        or variant.setup.edits
        or variant.setup.transform
        or variant.setup.swapped
    ):
        return False
    if experiments.named & _EXPLAIN or variant.setup.own_prompts != case.own_prompts:
        return False
    return case.processing.temperature == case.sampling.temperature
