"""The sampler forbids tokens that depend on the text, and renormalizes the others."""

from __future__ import annotations

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.causes.sampling.truncation import one_sided
from grpodoctor.probe.attribution.columns.drawn_again import agrees_without
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.tokens import Floats, Tokens
from grpodoctor.probe.attribution.variant import Variant

_OPTION = "structured_outputs"
"""The option of vLLM that contains a grammar."""
_ONE_SIDED = 0.99
"""Smallest share of differing tokens with a higher probability in the sampler."""
_SHORT = 0.98
"""Rounding: the kept mass is less than this multiple of what a truncation keeps."""
_FEWEST, _LEAST_SHARE = 20, 0.05
"""Tokens that no truncation explains, in number and as a share of the differing tokens."""
_TELLS = 1e-3


class TokenMask(Cause):
    """Detected by the sampler's own scores, to which grammars and lists of words do not apply.

    A top-k, top-p or min-p keeps every token that is likelier than the sampled one. A mask does
    not, so the mass that it keeps is smaller than that of these tokens together.

    Only *likely*: anything that forbids likelier tokens while an engine generates gives the same
    evidence. Those that follow from the text and the learner's values (XTC, typical sampling,
    repeated n-grams, DRY) are computed, and have causes of their own. A grammar is not. Where
    vLLM's options contain one, it is proven if responses drawn without it agree.
    """

    id = "structured-output"
    title = "The sampler forbids likelier tokens (grammar, schema, allowed or bad words)"
    remedies = (
        "Turn off structured output, allowed and bad words while training: the learner cannot "
        "apply them, because they depend on the text.",
        "If they must stay, train on the log-probabilities that the learner recomputes. The ratio "
        "to the sampler's then has the mask in it, which truncated importance sampling bounds.",
    )
    least = 0.5

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """Values are only raised, and by more than any truncation raises them."""
        setup = variant.setup
        if setup.rescored is not None or setup.shift or setup.swapped:
            return None
        below, beyond = one_sided(variant.tokens), _beyond_truncation(variant.tokens)
        if below < _ONE_SIDED or beyond < _LEAST_SHARE:
            return None
        return Hypothesis(0.35, {"below": below, "beyond": beyond})  # after the what-if edits

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Let the sampler score its own tokens."""
        below, beyond = (float(hypothesis.facts[key]) for key in ("below", "beyond"))
        is_on = _OPTION in experiments.case.sampler.options
        is_shown = is_on and agrees_without(experiments, variant, _OPTION, off=None)
        return ExperimentResult(
            summary=(
                f"{below:.0%} of the differing tokens have a higher probability in the sampler, "
                f"and for {beyond:.0%} of them likelier tokens were forbidden, which top-k, top-p "
                "and min-p never do; when the sampler scores the same tokens, the gap disappears"
                + (f", as it does in responses drawn without {_OPTION}" if is_shown else "")
            ),
            confidence="proven" if is_shown else "likely",
            details=_which(variant.tokens),
            after=experiments.vary(variant, rescored=experiments.case.sampler),
            figures={"below": below, "beyond": beyond},
        )


def _which(tokens: Tokens) -> tuple[str, ...]:
    """What kind of tokens is forbidden, and where: a grammar has no such rule, other causes do."""
    at_N = tokens.finite_N & (tokens.difference_N < -_TELLS)
    share = at_N.sum() / tokens.finite_N.sum()
    places = f"likelier tokens are forbidden at {share:.0%} of the places"
    if tokens.likeliest_logprob_NM is None:
        return (places,)
    missing_N1 = -np.expm1(tokens.difference_N[at_N])[:, None]
    mass_NM = np.exp(tokens.likeliest_logprob_NM[at_N].astype(np.float64)).cumsum(axis=1)
    is_top_N = (np.abs(mass_NM - missing_N1) < (1 - _SHORT) * missing_N1).any(axis=1)
    return (
        f"{places}; at {is_top_N.mean():.0%} of these exactly the likeliest tokens are missing",
    )


def _beyond_truncation(tokens: Tokens) -> float:
    """Share of differing tokens whose kept mass lacks likelier tokens; 0 if there are few."""
    if tokens.mass_above_N is None:
        return 0.0
    at = tokens.finite_N & (np.abs(tokens.difference_N) > _TELLS)
    kept_N: Floats = np.exp(tokens.difference_N[at])
    least_N = tokens.mass_above_N[at] + np.exp(tokens.learner_N[at])
    is_beyond_N = kept_N < _SHORT * least_N
    return float(is_beyond_N.mean()) if is_beyond_N.sum() >= _FEWEST else 0.0
