"""Reads what an engine estimated about the generic edits of its model."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import EngineError
from grpodoctor.support.files.regular_files import read_regular

ARRAYS, EDITS = "effects.npz", "edits.json"
_NAMES = ("token_N", "logprob_N", "entropy_N", "effects_EN")
_MOST_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class EstimatedEdit:
    """A generic edit of one value, or of any number."""

    name: str
    site: str
    value: str
    """Empty for any number."""
    is_number: bool


@dataclass(frozen=True, slots=True)
class Estimates:
    """The effects of edits on log-probabilities, to first order."""

    edits: tuple[EstimatedEdit, ...]
    """The first E have an estimate."""
    token_N: NDArray[Any]
    logprob_N: NDArray[Any]
    effects_EN: NDArray[Any]
    """Of a number, the effect of adding 1; NaN where it was not measured."""


def read_estimates(folder: Path) -> Estimates:
    """The estimates; see `FirstOrderEngine` in `probes/contract/engine.py`.

    Raises:
        EngineError: if files are missing, damaged, or of different sizes.
    """
    try:
        with np.load(folder / ARRAYS, allow_pickle=False) as stored:
            arrays = [stored[name] for name in _NAMES]
        listed = json.loads(read_regular(folder / EDITS, _MOST_BYTES))
        edits = tuple(
            EstimatedEdit(
                str(one["name"]), str(one["attribute"]), str(one["value"]), one["kind"] == "number"
            )
            for one in listed
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError, zipfile.BadZipFile) as error:
        raise EngineError(f"it returned no estimates: {error}", where=str(folder)) from error
    token_N, logprob_N, entropy_N, effects_EN = arrays
    kinds = [each.dtype.kind for each in arrays]
    if kinds[0] not in "iu" or not set(kinds) <= set("iuf"):
        raise EngineError("its estimates are no numbers of tokens", where=str(folder))
    same = token_N.shape == logprob_N.shape == entropy_N.shape == effects_EN.shape[1:]
    if not same or token_N.ndim != 1 or len(effects_EN) > len(edits):
        raise EngineError("its estimates are of other tokens", where=str(folder))
    return Estimates(edits, token_N, logprob_N, effects_EN)
