"""The policy gradient of the small policy, and the optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tests.benchmarks.planted_mechanisms.world import (
    Floats,
    Ints,
    Weights,
    log_softmax,
)

_BETA1, _BETA2, _EPSILON = 0.9, 0.99, 1e-10


@dataclass
class Positions:
    """Decisions that are trained on; all arrays have one entry per decision."""

    prompt: Ints
    classes: Ints
    state: Ints
    last: Ints
    token: Ints
    advantage: Floats
    old: Floats
    """Log-probability before the update."""
    reference: Floats
    """Log-probability under the reference."""

    def of(self, chosen: Ints) -> Positions:
        """Some of the decisions."""
        return Positions(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def logprobs(self, weights: Weights) -> Floats:
        """Log-probabilities of all tokens, (decisions, tokens)."""
        return log_softmax(weights.logits(self.prompt, self.classes, self.state, self.last))


@dataclass
class Loss:
    """Coefficients of the loss."""

    low: float = 0.2
    high: float = 0.2
    kl: float = 0.0
    """Weight of the KL to the reference, per decision."""
    entropy: float = 0.0
    """Weight of the entropy, per decision."""


@dataclass
class Optimizer:
    """Adam."""

    rate: float
    most_norm: float = 1.0
    steps: int = 0
    first: list[Floats] = field(default_factory=list)
    second: list[Floats] = field(default_factory=list)
    rounding: float = 0.0
    """Relative spacing of the weights' number format; updates below half of it are lost."""

    def forget(self) -> None:
        """Lose the moments."""
        self.steps, self.first, self.second = 0, [], []

    def update(self, weights: Weights, gradient: Weights) -> float:
        """Change the weights in place; the norm of the gradient before it is clipped."""
        norm = float(np.sqrt(sum(float((part**2).sum()) for part in gradient.parts())))
        if not np.isfinite(norm):
            return norm
        scale = min(1.0, self.most_norm / norm) if norm > 0 else 1.0
        parts = gradient.parts()
        if not self.first:
            self.first = [np.zeros_like(part) for part in parts]
            self.second = [np.zeros_like(part) for part in parts]
        self.steps += 1
        for value, part, first, second in zip(
            weights.parts(), parts, self.first, self.second, strict=True
        ):
            np.copyto(first, _BETA1 * first + (1 - _BETA1) * scale * part)
            np.copyto(second, _BETA2 * second + (1 - _BETA2) * (scale * part) ** 2)
            correction = np.sqrt(1 - _BETA2**self.steps) / (1 - _BETA1**self.steps)
            change = self.rate * correction * first / (np.sqrt(second) + _EPSILON)
            if self.rounding:
                change[np.abs(change) < 0.5 * self.rounding * np.abs(value)] = 0.0
            np.subtract(value, change, out=value)
        return norm


@dataclass
class Moved:
    """What one optimizer step measured before it changed the weights."""

    loss: float
    low: float
    """Share of decisions whose gradient the lower clip removes."""
    high: float
    old_kl: float
    norm: float


def descend(
    weights: Weights, at: Positions, loss: Loss, optimizer: Optimizer, chunk: float, *, broken: bool
) -> Moved:
    """One optimizer step on a mini-batch.

    Args:
        weights: changed in place.
        at: the decisions of the mini-batch.
        loss: coefficients.
        optimizer: Adam and its state.
        chunk: tokens of a decision; all but one are certain and have no gradient.
        broken: whether the gradient is not finite.
    """
    logprobs = at.logprobs(weights)
    rows = np.arange(len(at.token))
    chosen = logprobs[rows, at.token]
    ratio = np.exp(np.clip(chosen - at.old, -20, 20))
    low = (at.advantage < 0) & (ratio < 1 - loss.low)
    high = (at.advantage > 0) & (ratio > 1 + loss.high)
    pull = at.advantage * ratio * ~(low | high)
    if loss.kl:
        gap = np.clip(at.reference - chosen, -20, 8)
        pull = pull - loss.kl * (1 - np.exp(gap))
    probs = np.exp(logprobs)
    slope = pull[:, None] * probs
    slope[rows, at.token] -= pull
    if loss.entropy:
        entropy = -(probs * logprobs).sum(axis=1, keepdims=True)
        slope += loss.entropy * probs * (logprobs + entropy)
    slope /= max(len(rows), 1) * chunk
    clipped = np.clip(ratio, 1 - loss.low, 1 + loss.high)
    surrogate = np.minimum(ratio * at.advantage, clipped * at.advantage)
    gradient = _scatter(weights, at, slope)
    if broken:
        gradient.skill[0, 0, 0] = np.nan
    return Moved(
        loss=float("nan") if broken else -float(surrogate.mean()),
        low=float(low.mean()) / chunk,
        high=float(high.mean()) / chunk,
        old_kl=float((at.old - chosen).mean()) / chunk,
        norm=optimizer.update(weights, gradient),
    )


def _scatter(weights: Weights, at: Positions, slope: Floats) -> Weights:
    """The gradient of each table from the gradient of the logits of each decision."""
    skill_row = at.state * weights.skill.shape[1] + at.last
    knowledge_row = at.classes * weights.knowledge.shape[1] + at.state
    hidden = weights.hidden(at.classes, at.state, at.last)
    inputs = (slope @ weights.head.T) * (1 - hidden**2)
    trunk = sum(
        (
            _sums(row, inputs, weights.trunk)
            for row in weights.trunk_rows(at.classes, at.state, at.last)
        ),
        np.zeros_like(weights.trunk),
    )
    return Weights(
        _sums(skill_row, slope, weights.skill),
        _sums(knowledge_row, slope, weights.knowledge),
        _sums(at.prompt, slope, weights.memory),
        trunk,
        hidden.T @ slope,
    )


def _sums(row: Ints, values: Floats, table: Floats) -> Floats:
    """Sums of the values of each row of a table."""
    width = values.shape[1]
    flat = (row[:, None] * width + np.arange(width)).ravel()
    total: Floats = np.bincount(flat, weights=values.ravel(), minlength=table.size)
    return total.reshape(table.shape)
