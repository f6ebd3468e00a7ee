"""Compares the places of a model by how well a change there predicts the differences of tokens.

The difference of N tokens is modelled as a Gaussian with mean zero. Its covariance is that of an
unknown change at a place (see `probes/hf/localisation/kernels.py`), plus that of a few large
generic changes there, plus noise. Each place has its own likelihood; the numbers of the model are
fitted for each. What a token's own probability predicts is projected out first, because every
difference of two distributions, and every temperature, moves unlikely tokens most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

Floats = NDArray[np.float64]

EVERYWHERE, NORMS, HEAD, EMBEDDING = "everywhere", "norms", "head", "embedding"
_CLIP = 3.0
"""Upper bound on |Δlogp| per token and on effects."""
_KERNEL = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1e3)
"""Variances of an unknown change, relative to noise."""
_LARGE = (0.0, 0.01, 0.1, 1.0, 10.0)
"""Variances of the factors on large changes, relative to noise."""
_FOLDS = 4


@dataclass(frozen=True, slots=True)
class PlaceFit:
    """A place with its likelihood."""

    name: str
    """Such as `3.self_attn`, `all self_attn`, `layer 3`, `norms`, `head`, `everywhere`."""
    evidence: float
    """Log-likelihood minus that of noise alone, in nats."""
    variances: tuple[float, float]
    """Of an unknown change, and of large changes, relative to noise."""
    held_out: float = 0.0
    """Share of the differences that the place predicts in prompts to which nothing was fitted,
    beyond what the tokens' own probabilities predict."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The differences, and what the learner measured about the same N tokens."""

    difference_N: Floats
    """Log p of the sampler minus that of the learner."""
    prompt_N: NDArray[np.int64]
    logprob_N: Floats
    entropy_N: Floats
    spread_N: Floats
    """Squared length of the gradient with respect to the logits."""
    features: Mapping[str, Floats]
    effects: Mapping[str, Floats]

    @classmethod
    def of(
        cls, arrays: Mapping[str, NDArray[Any]], difference_N: Floats, prompt_N: NDArray[np.int64]
    ) -> Measured:
        """From the arrays of an engine; the tokens without a finite value are left out."""
        kept = np.isfinite(difference_N) & np.isfinite(arrays["logprob_N"])

        def parts(kind: str) -> dict[str, Floats]:
            return {
                name.partition("/")[2]: values for name, values in arrays.items()
                if name.startswith(f"{kind}/")
            }  # fmt: skip

        return cls(
            difference_N=np.clip(difference_N[kept], -_CLIP, _CLIP),
            prompt_N=prompt_N[kept],
            logprob_N=arrays["logprob_N"][kept].astype(np.float64),
            entropy_N=arrays["entropy_N"][kept].astype(np.float64),
            spread_N=arrays["spread_N"][kept].astype(np.float64),
            features={
                name: values[kept].astype(np.float32) for name, values in parts("features").items()
            },
            effects={
                name: np.clip(np.nan_to_num(values[:, kept]), -_CLIP, _CLIP).astype(np.float64)
                for name, values in parts("effects").items()
            },
        )

    def part(self, chosen_N: NDArray[np.bool_]) -> Measured:
        """Some of the tokens."""
        return Measured(
            self.difference_N[chosen_N],
            self.prompt_N[chosen_N],
            self.logprob_N[chosen_N],
            self.entropy_N[chosen_N],
            self.spread_N[chosen_N],
            {name: values[chosen_N] for name, values in self.features.items()},
            {name: values[:, chosen_N] for name, values in self.effects.items()},
        )

    def sample(self, most: int, seed: int = 0) -> Measured:
        """A random part of the tokens, at most this number."""
        count = len(self.difference_N)
        chosen_N = np.zeros(count, np.bool_)
        chosen_N[np.random.default_rng(seed).permutation(count)[:most]] = True
        return self.part(chosen_N)

    def halves(self, seed: int = 0) -> tuple[Measured, Measured]:
        """The tokens of either half of the prompts."""
        prompts = np.random.default_rng(seed).permutation(np.unique(self.prompt_N))
        first_N = np.isin(self.prompt_N, prompts[: len(prompts) // 2])
        return self.part(first_N), self.part(~first_N)

    def own_NM(self) -> Floats:
        """Functions of each token's own distribution."""
        p_N = np.exp(np.minimum(self.logprob_N, 0))
        columns = [np.ones_like(p_N), self.logprob_N, p_N, self.entropy_N]
        columns += [np.square(self.logprob_N), p_N * self.entropy_N]
        return np.stack(columns, axis=1)


class PlaceFits:
    """The likelihoods of all places for one gap.

    Args:
        measured: the differences and the learner's responses to changes.
    """

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        scale_N = 1 / np.sqrt(measured.spread_N + 1e-3)
        self._scale_N = scale_N
        own_NM = measured.own_NM() * scale_N[:, None]
        self._basis, _ = np.linalg.qr(own_NM / np.linalg.norm(own_NM, axis=0), mode="complete")
        self._own = own_NM.shape[1]
        whitened_N = measured.difference_N * scale_N
        self._whole = whitened_N
        self._y = self._basis[:, self._own :].T @ whitened_N
        self._y /= np.sqrt(np.mean(np.square(self._y)) + 1e-300)
        self.own_share = 1 - float(
            np.square(self._basis[:, self._own :].T @ whitened_N).sum()
            / (np.square(whitened_N).sum() + 1e-300)
        )
        """Share of the differences that the tokens' own probabilities explain."""
        self._grams: dict[str, Floats] = {}

    def _gram(self, name: str) -> Floats:
        """The covariance of the tokens under an unknown change, relative to their spread."""
        if name not in self._grams:
            features_NS = self._measured.features[name]
            scaled = features_NS * self._scale_N[:, None].astype(features_NS.dtype)
            self._grams[name] = np.asarray(scaled @ scaled.T, np.float64)
        return self._grams[name]

    def _projected(self, matrix_NN: Floats) -> Floats:
        rest = self._basis[:, self._own :]
        return np.asarray(rest.T @ matrix_NN @ rest, np.float64)

    def all(self) -> list[PlaceFit]:
        """Every place, the likeliest first."""
        return sorted((self.of(name) for name, _ in self.places()), key=lambda fit: -fit.evidence)

    def of(self, name: str) -> PlaceFit:
        """One place."""
        parts = next(parts for each, parts in self.places() if each == name)
        return self._fit(name, *self._covariances(name, parts))

    def places(self) -> Iterator[tuple[str, list[str]]]:
        """The names of places, and the keys of the features that each includes."""
        features = self._measured.features
        blocks = [name for name in features if "/" not in name]
        inner = [name for name in blocks if "." in name]
        yield from ((name, [name]) for name in blocks)
        for kind in dict.fromkeys(name.partition(".")[2] for name in inner):
            of = [name for name in inner if name.partition(".")[2] == kind]
            if len(of) > 1:
                yield f"all {kind}", of
        for layer in dict.fromkeys(name.partition(".")[0] for name in inner):
            of = [name for name in inner if name.partition(".")[0] == layer]
            if len(of) > 1:
                yield f"layer {layer}", of
        yield NORMS, [name for name in features if name.endswith("/norms")]
        yield EVERYWHERE, blocks

    def _covariances(self, name: str, parts: Sequence[str]) -> tuple[Floats, Floats]:
        kernel = self._projected(self._sum(parts))
        kernel /= np.trace(kernel) / len(kernel) + 1e-300
        large = self._basis[:, self._own :].T @ self._large(name, parts)
        return kernel, large / (np.sqrt(np.mean(np.square(large), axis=0)) + 1e-300)

    def _sum(self, parts: Sequence[str]) -> Floats:
        total: Floats = np.zeros((len(self._scale_N), len(self._scale_N)))
        for part in parts:
            total += self._gram(part)
        return total

    def _large(self, name: str, parts: Sequence[str]) -> Floats:
        """The effects of large changes at a place, (N, C); of its parts if it has none itself."""
        effects = self._measured.effects
        own = name.removeprefix("all ")
        keys = [] if name == EVERYWHERE else [own] if own in effects else parts
        columns = [effects[key] for key in keys if key in effects]
        if not columns:
            return np.zeros((len(self._scale_N), 0))
        return np.asarray((np.concatenate(columns) * self._scale_N).T, np.float64)

    def _fit(self, name: str, kernel: Floats, large: Floats) -> PlaceFit:
        """The variances with the largest likelihood, on a grid."""
        roots, vectors = linalg.eigh(kernel, overwrite_a=True, check_finite=False)
        roots = np.maximum(roots, 0.0)
        turned, moved = vectors.T @ self._y, vectors.T @ large
        best = max(
            (_likelihood(1 + one * roots, turned, moved, other), one, other)
            for one in _KERNEL
            for other in (_LARGE if large.size else (0.0,))
        )
        return PlaceFit(name, best[0], (best[1], best[2]))

    def with_held_out(self, fit: PlaceFit, seed: int = 0) -> PlaceFit:
        """The fit with its share in prompts that were left out, by four parts of the prompts."""
        parts = next(parts for name, parts in self.places() if name == fit.name)
        scale_N, measured = self._scale_N, self._measured
        kernel, large = self._sum(parts), self._large(fit.name, parts)
        large /= np.sqrt(np.mean(np.square(large), axis=0)) + 1e-300
        covariance = fit.variances[0] * kernel / (np.trace(kernel) / len(kernel) + 1e-300)
        covariance += fit.variances[1] * large @ large.T
        own = measured.own_NM() * scale_N[:, None]
        own /= np.sqrt(np.mean(np.square(own), axis=0))
        wide = 100.0 * own @ own.T
        prompts = np.unique(measured.prompt_N)
        order = np.random.default_rng(seed).permutation(len(prompts))
        fold_N = (order % _FOLDS)[np.searchsorted(prompts, measured.prompt_N)]
        errors = [0.0, 0.0]
        for fold in range(_FOLDS):
            tested = fold_N == fold
            for row, matrix in enumerate((wide, wide + covariance)):
                trained = matrix[np.ix_(~tested, ~tested)] + np.eye(int((~tested).sum()))
                weights = linalg.solve(trained, self._whole[~tested], assume_a="pos")
                left = self._whole[tested] - matrix[np.ix_(tested, ~tested)] @ weights
                errors[row] += float(np.square(left).sum())
        share = 1 - errors[1] / (errors[0] + 1e-300)
        return PlaceFit(fit.name, fit.evidence, fit.variances, share)


def _likelihood(diagonal: Floats, y: Floats, large: Floats, factor: float) -> float:
    """Log-likelihood of y up to that of noise alone; the overall variance is fitted.

    The covariance is a diagonal matrix plus `factor` times the outer product of `large`.
    """
    count = len(y)
    squares = float(np.sum(np.square(y) / diagonal))
    determinant = float(np.log(diagonal).sum())
    if factor:
        scaled = large / diagonal[:, None]
        inner = np.eye(large.shape[1]) / factor + large.T @ scaled
        along = scaled.T @ y
        squares -= float(along @ np.linalg.solve(inner, along))
        determinant += float(np.linalg.slogdet(inner * factor)[1])
    return -0.5 * count * float(np.log(max(squares, 1e-12) / count)) - 0.5 * determinant
