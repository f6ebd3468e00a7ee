"""The bias of the routers' choice differs: one side moved it, and the other was not told.

Trainers move this bias to balance the load of the experts. No gradient and no checkpoint of the
optimizer contains it, so a sync can miss it.
"""

from __future__ import annotations

import json

import numpy as np

from grpodoctor.probe.attribution.base import Cause, ExperimentResult, Hypothesis
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.search.selection import agreement
from grpodoctor.probe.attribution.tokens import Floats, Tokens
from grpodoctor.probe.attribution.variant import Variant

ROUTER_BIAS = "router_bias"
_FLIPPED = 0.02
"""Smallest share of the tokens with other experts in some layer."""
_ONE_WAY = 0.5
"""Smallest share of a layer's flips by which experts gain or lose on balance. A bias moves all of
an expert's flips in one direction; other changes move them in both."""
_FEWEST = 64
_PER_EXPERT = 4
"""Flips for each expert of the layer: a few are in one direction by chance, and any bias fits."""
_ROUNDS = 48
_FIRST = 0.02
"""Largest change of a bias in the first round."""
_POLISHINGS = 16
_HELD_OUT = 0.25
"""Largest share of the flips that may remain in prompts to which nothing was fitted."""
_MOST = 0.25
"""Largest change of a bias in a round."""
_WORSE = 5
"""Rounds without fewer flips after which the fit ends."""


class RouterBias(Cause):
    """Proven by a learner whose biases were fitted to the reported experts, and which then agrees.

    The fit uses the experts of every second prompt alone. The log-probabilities, and all of the
    other prompts, decide.
    """

    id = "router-bias"
    title = "The bias of the routers' choice differs between the engines"
    remedies = (
        "Sync the correction biases of the routers (e_score_correction_bias) with the weights: "
        "they are buffers that the trainer moves to balance experts, and not parameters with "
        "gradients.",
        "Or freeze them while the policy is trained.",
    )
    is_surrogate = True
    is_symmetric = True
    least = 0.5

    def hypothesize(self, experiments: Experiments, variant: Variant) -> Hypothesis | None:
        """In the first layer with flips, experts gain tokens or lose them, but seldom both."""
        setup = variant.setup
        used = any(name == ROUTER_BIAS for name, _ in setup.edits)
        if used or setup.replay or not setup.learner.kind.can_alter:
            return None
        tokens = experiments.with_routes(variant).tokens
        if not is_one_way(tokens) or experiments.rounding.flips_in(tokens):
            return None
        return Hypothesis(0.42)

    def experiment(
        self, experiments: Experiments, variant: Variant, hypothesis: Hypothesis
    ) -> ExperimentResult | None:
        """Fit the biases until the learner chooses the sampler's experts."""
        fitted = Fit(experiments, experiments.with_routes(variant))
        after = fitted.run()
        if after is None:
            return None
        side, other = variant.setup.sides
        who = "a reference engine" if variant.setup.swapped else f"the {other}"
        before, left = fitted.tokens.flipped_N.mean(), fitted.held_out
        return ExperimentResult(
            summary=(
                f"with a bias of each router that was fitted to the {side}'s experts in every "
                f"second prompt, {left:.1%} instead of {before:.1%} of the other prompts' tokens "
                "have other experts; fitted to all, "
                f"{who} {agreement(variant, after)} the {side}: k3 falls from {variant.gap:.2g} to "
                f"{after.gap:.2g} nats per token"
            ),
            after=after,
            details=fitted.in_words(),
            figures={"flipped": left},
            is_conclusive=True,
        )


def is_one_way(tokens: Tokens) -> bool:
    """Whether the first layer with flips has experts that gain tokens, and others that lose them.

    In later layers, other hidden states flip experts, too.
    """
    one, other = tokens.sampler_experts_NLK, tokens.learner_experts_NLK
    known_N = tokens.routed_N & tokens.finite_N
    if one is None or other is None or known_N.sum() < _FEWEST:
        return False
    flips_L = tokens.flips_NL[known_N].mean(axis=0)
    layers = np.flatnonzero(flips_L >= _FLIPPED)
    if not layers.size:
        return False
    counts = _counts(one[known_N], layers[0]) - _counts(other[known_N], layers[0])
    moved = sum(
        len(set(mine) - set(others))
        for mine, others in zip(
            one[known_N][:, layers[0]].tolist(), other[known_N][:, layers[0]].tolist(), strict=True
        )
    )
    is_enough = moved >= _PER_EXPERT * (int(max(one.max(), other.max())) + 1)
    return is_enough and float(np.abs(counts).sum()) >= 2 * _ONE_WAY * moved


def _counts(experts_NLK: np.ndarray, layer: int, experts: int = 4096) -> Floats:
    """Tokens of each expert in a layer."""
    return np.bincount(experts_NLK[:, layer].ravel(), minlength=experts).astype(np.float64)


class Fit:
    """Moves each expert's bias until as many tokens choose it as on the other side.

    The tokens that choose an expert are the gradient of a convex function of the biases: the sum
    of the chosen scores. Where the numbers are equal for all experts, so are the choices of every
    token, if any biases make them equal. The steps are those of Barzilai and Borwein, by layer.
    """

    def __init__(self, experiments: Experiments, variant: Variant) -> None:
        self._experiments, self._variant = experiments, variant
        self.tokens = variant.tokens
        ids = [self.tokens.sampler_experts_NLK, self.tokens.learner_experts_NLK]
        largest = max(int(each.max()) for each in ids if each is not None)
        known = experiments.case.learner_facts.settings.get("experts")
        self._experts = max(known if isinstance(known, int) else 0, largest + 1)
        is_fitted_N = self.tokens.prompt_B[self.tokens.rows_N] % 2 == 0
        self._known_N = self.tokens.routed_N & self.tokens.finite_N & is_fitted_N
        self._best: tuple[float, Variant, Floats] | None = None
        self.held_out = 1.0
        """Share of the other prompts' tokens with other experts after the fit."""

    def run(self) -> Variant | None:
        """The variant with the biases under which fewest tokens have other experts.

        Raises:
            EngineError: if the routers have no bias.
            BudgetSpentError: if the time budget is used up.
        """
        gradient_LE = self._gradient(self.tokens)
        bias_LE, step_LE = np.zeros_like(gradient_LE), _scaled(-gradient_LE, _FIRST)
        worse = 0
        for _ in range(_ROUNDS):
            bias_LE = bias_LE + step_LE
            after = self._with(bias_LE)
            worse = 0 if self._is_better(after, bias_LE) else worse + 1
            if self._best is None or self._best[0] == 0 or worse >= _WORSE:
                break
            new_LE = self._gradient(after.tokens)
            step_LE = self._next_step(step_LE, new_LE - gradient_LE, new_LE)
            gradient_LE = new_LE
        self._polish()
        return self._with_all_prompts()

    def _with_all_prompts(self) -> Variant | None:
        """The variant after the other prompts, which confirm the fit, were added to it."""
        if self._best is None:
            return None
        self.held_out = self._flipped_elsewhere(self._best[1].tokens)
        if self.held_out > _HELD_OUT * self._flipped_elsewhere(self.tokens):
            return None
        self._known_N = self.tokens.routed_N & self.tokens.finite_N
        _, after, bias_LE = self._best
        self._best = None
        self._is_better(after, bias_LE)
        self._polish()
        return self._best[1] if self._best else None

    def _flipped_elsewhere(self, tokens: Tokens) -> float:
        """Share of the tokens with other experts in the prompts to which nothing is fitted."""
        at_N = tokens.routed_N & tokens.finite_N & ~self._known_N
        return float(tokens.flipped_N[at_N].mean()) if at_N.any() else 0.0

    def _polish(self) -> None:
        """Smaller and smaller steps from the best biases: the last flips need exact numbers."""
        size = _FIRST
        for _ in range(_POLISHINGS):
            if self._best is None or self._best[0] == 0:
                return
            _, variant, bias_LE = self._best
            bias_LE = bias_LE + _scaled(-self._gradient(variant.tokens), size)
            if not self._is_better(self._with(bias_LE), bias_LE):
                size /= 2

    def _is_better(self, after: Variant, bias_LE: Floats) -> bool:
        """Keep biases with fewer flips than all before."""
        flips = float(after.tokens.flipped_N[self._known_N].mean())
        if self._best is not None and flips >= self._best[0]:
            return False
        self._best = flips, after, bias_LE
        return True

    def in_words(self) -> tuple[str, ...]:
        """The largest differences of the biases, by layer."""
        if self._best is None:
            return ()
        spread_L = np.ptp(self._best[2], axis=1)
        return tuple(
            f"router {layer}: biases differ by up to {spread_L[layer]:.2g}"
            for layer in np.argsort(-spread_L)[:5]
        )

    @staticmethod
    def _next_step(step_LE: Floats, change_LE: Floats, gradient_LE: Floats) -> Floats:
        across_L = (step_LE * change_LE).sum(axis=1)
        rate_L = (step_LE**2).sum(axis=1) / np.maximum(across_L, 1e-12)
        new_LE = -rate_L[:, None] * gradient_LE
        size_L1 = np.abs(new_LE).max(axis=1, keepdims=True)
        return np.where(size_L1 > _MOST, _scaled(new_LE, _MOST), new_LE)

    def _with(self, bias_LE: Floats) -> Variant:
        edit = (ROUTER_BIAS, json.dumps(bias_LE.round(7).tolist()))
        setup = self._variant.setup
        return self._experiments.vary(self._variant, edits=(*setup.edits, edit))

    def _gradient(self, tokens: Tokens) -> Floats:
        """Share of the tokens that choose each expert, minus that on the other side."""
        own, wanted = tokens.learner_experts_NLK, tokens.sampler_experts_NLK
        if own is None or wanted is None:
            return np.zeros((0, self._experts))
        layers = range(own.shape[1])
        known_N = self._known_N
        differences = [
            _counts(own[known_N], layer, self._experts)
            - _counts(wanted[known_N], layer, self._experts)
            for layer in layers
        ]
        return np.asarray(np.stack(differences) / max(known_N.sum(), 1))


def _scaled(step_LE: Floats, size: float) -> Floats:
    """A step of which the largest number of each layer has this size; 0 where all are 0."""
    largest_L1 = np.abs(step_LE).max(axis=1, keepdims=True)
    return np.asarray(size * step_LE / np.maximum(largest_L1, 1e-12))
