"""Covariances of log-probabilities under random changes at each place of a model.

A change at a module adds to its output a random function of the module's input, of its output and
of the positions before. To first order it moves the log-probability of a token by the gradient at
the module's output times this function. With independent Gaussian weights W of the functions, the
covariance of two tokens is the product of their features, which are the derivatives with respect to
W. So each place predicts which tokens move, and which move together, without knowing the fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hf.localisation.places import EMBEDDING, HEAD, Place, read_input, tensor_of, watched

_WIDTH = 64
"""Random projections of outputs and inputs; a smaller width is used as it is."""
_FREQUENCY = 1.5
"""Of the cosines, per root mean square of the input: a smooth function of all of it."""
_REACH = 8.0
"""Positions over which the average over earlier positions fades."""
_EVEN = math.sqrt(2 / _WIDTH)
"""Factor on the cosines, whose squares then add up to 1."""
_NORMS = "/norms"
_LARGEST = 1e4
"""Largest number among the features."""
_FEW = 40
"""Places with the full size of the sketch: of more, the features would take a gigabyte."""
_SKETCH = 4096
"""Numbers per token and place. Features are added up in this many cells with random signs, which
keeps their products on average."""


@dataclass
class _Site:
    """A module's output in the graph of a forward pass, and features of its input."""

    output_BLD: Tensor
    features_BLF: Tensor
    is_flat: bool = False
    """Whether all tokens are one row, (1, T, D); the features are then those of T rows."""


class Kernels:
    """Features of each place's kernel, for batches of responses.

    Args:
        places: of the model.
        seed: of the random functions, equal in all batches.
    """

    def __init__(self, places: Sequence[Place], seed: int = 0) -> None:
        self._places, self._seed = places, seed
        self._size = _SKETCH if len(places) <= _FEW else _SKETCH // 2
        self._parts: dict[str, list[Tensor]] = {}
        """For each place, its features of each column of tokens, (R, S)."""
        self._drawn: dict[tuple[str, int, int], Tensor] = {}

    def add(self, run: Callable[[], Tensor], rows_T: Tensor, columns: Sequence[Tensor]) -> None:
        """Add the features of a batch.

        Args:
            run: one forward pass with gradients; returns the log-probabilities of all tokens, (T,).
            rows_T: the row of each token.
            columns: indices of tokens, at most one of each row, whose gradients are taken together.
        """
        sites: dict[str, _Site] = {}
        shape: list[int] = []

        def hook(name: str) -> Callable[..., None]:
            def record(_module: Any, arguments: Any, named: Any, output: Any) -> None:
                made, read = tensor_of(output), read_input(arguments, named)
                if made is None or made.ndim < 3 or not made.requires_grad:
                    return
                if name == EMBEDDING:
                    shape[:] = made.shape[:2]
                if name == HEAD:  # it reads the tokens of all rows as one row
                    own = made.transpose(0, 1)
                    given = None if read is None else read.transpose(0, 1)
                    sites[name] = _Site(made, self._functions(name, given, own), is_flat=True)
                elif [*made.shape[:2]] == shape:
                    own = made.flatten(2)
                    sites[name] = _Site(made, self._functions(name, read, own))

            return record

        modules = {name: m for place in self._places for name, m in place.inner.items()}
        with watched(modules, hook), torch.enable_grad():
            logprobs_T = run()
        names = list(sites)
        outputs = [sites[name].output_BLD for name in names]
        for column in columns:
            total = logprobs_T[column].sum()
            found = torch.autograd.grad(total, outputs, retain_graph=True, allow_unused=True)
            gradients = dict(zip(names, found, strict=True))
            for place in self._places:
                self._add_place(place, sites, gradients, column, rows_T[column])

    def _add_place(
        self,
        place: Place,
        sites: dict[str, _Site],
        gradients: dict[str, Any],
        column: Tensor,
        rows: Tensor,
    ) -> None:
        """Add a place's features of one column: all modules, and its norms by themselves."""
        whole = torch.zeros(len(rows), self._size, device=rows.device)
        norms = torch.zeros_like(whole)
        for name in place.inner:
            if gradients.get(name) is None:
                continue
            site, gradient = sites[name], gradients[name]
            flat = gradient.transpose(0, 1) if site.is_flat else gradient
            at = column if site.is_flat else rows
            cells = self._cells(name, flat[at], site, at)
            whole += cells
            if name in place.norms:
                norms += cells
        self._parts.setdefault(place.name, []).append(whole.cpu())
        if place.norms:
            self._parts.setdefault(f"{place.name}{_NORMS}", []).append(norms.cpu())

    def _cells(self, name: str, gradient_RLD: Tensor, site: _Site, rows: Tensor) -> Tensor:
        """The derivatives with respect to the weights of the random functions, sketched."""
        scale = site.output_BLD.detach().float().pow(2).mean().sqrt()
        projected = self._projected(f"{name} gradient", gradient_RLD.float().flatten(2)) * scale
        made = torch.einsum("rla,rlf->raf", projected, site.features_BLF[rows]).flatten(1)
        places, signs = self._hashes(name, made.shape[1])
        cells = torch.zeros(len(made), self._size, device=made.device)
        return cells.index_add_(1, places.to(made.device), made * signs.to(made.device))

    def _hashes(self, name: str, count: int) -> tuple[Tensor, Tensor]:
        drawn = self._matrix(f"{name} cells", 2, count)
        uniform = torch.special.ndtr(drawn * math.sqrt(2))
        places = (uniform[0] * self._size).long().clamp_(max=self._size - 1)
        return places, torch.where(uniform[1] < 0.5, -1.0, 1.0)

    def _functions(self, name: str, given: Tensor | None, made: Tensor) -> Tensor:
        """Functions of a module's input and output at each position, shape (B, L, F)."""
        output = _unit(made.detach().float())
        fits = given is not None and given.ndim >= 3 and given.shape[:2] == made.shape[:2]
        read = _unit(given.detach().float().flatten(2)) if fits and given is not None else output
        own = self._projected(f"{name} input", read) / math.sqrt(read.shape[-1])
        angles = self._matrix(f"{name} angles", read.shape[-1], _WIDTH).to(read.device)
        offsets = self._matrix(f"{name} offsets", 1, _WIDTH)[0].to(read.device)
        turned = read @ angles * _FREQUENCY + offsets * 2 * math.pi
        out = self._projected(f"{name} output", output) / math.sqrt(output.shape[-1])
        one = torch.ones_like(own[..., :1])
        return torch.cat([own, out, torch.cos(turned) * _EVEN, _faded(own), one], dim=-1)

    def _projected(self, name: str, values: Tensor) -> Tensor:
        width = values.shape[-1]
        if width <= _WIDTH:
            return values
        matrix = self._matrix(name, width, _WIDTH).to(values.device)
        return values @ matrix * math.sqrt(width / _WIDTH)

    def _matrix(self, name: str, rows: int, columns: int) -> Tensor:
        """A random matrix whose columns have expected norm 1; the same in every batch."""
        key = name, rows, columns
        if key not in self._drawn:
            generator = torch.Generator().manual_seed(self._seed + len(self._drawn))
            drawn = torch.randn(rows, columns, generator=generator) / math.sqrt(rows)
            self._drawn[key] = drawn
        return self._drawn[key]

    def features(self) -> dict[str, Tensor]:
        """Each place's features of all tokens, in the order of the columns, shape (N, S).

        Those of a block's norms alone have the name of the block and `/norms`. All have one factor,
        so that they fit in 16 bits.
        """
        whole = {name: torch.cat(parts) for name, parts in self._parts.items()}
        largest = max((float(values.abs().max()) for values in whole.values()), default=0.0)
        factor = _LARGEST / largest if largest else 1.0
        return {name: (values * factor).half() for name, values in whole.items()}


def _unit(values: Tensor) -> Tensor:
    return values / (values.pow(2).mean().sqrt() + 1e-9)


def _faded(values_BLF: Tensor) -> Tensor:
    """An average over the earlier positions whose weights fall with the distance."""
    keep = math.exp(-1 / _REACH)
    state, states = torch.zeros_like(values_BLF[:, 0]), []
    for position in range(values_BLF.shape[1]):
        state = keep * state + (1 - keep) * values_BLF[:, position]
        states.append(state)
    return torch.stack(states, dim=1) * math.sqrt(_REACH)
