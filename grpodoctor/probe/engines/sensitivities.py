"""Reads what an engine measured about the places of its model."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import EngineError

FILE = "sensitivities.npz"
_TOKENS = ("token_N", "logprob_N", "entropy_N", "spread_N")


def read_sensitivities(folder: Path) -> dict[str, NDArray[Any]]:
    """The arrays by name; see `SensitiveEngine` in `probes/contract/engine.py`.

    Raises:
        EngineError: if arrays are missing, not finite, or of different tokens.
    """
    path = folder / FILE
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise EngineError(f"it returned no sensitivities: {error}", where=str(path)) from error
    missing = [name for name in _TOKENS if name not in arrays or arrays[name].ndim != 1]
    if missing:
        raise EngineError(f"its sensitivities lack {missing[0]}", where=str(path))
    count = arrays["token_N"].size
    for name, values in arrays.items():
        axis = 1 if name.startswith("effects/") else 0
        if values.ndim <= axis or values.shape[axis] != count:
            raise EngineError(f"its sensitivities {name} are of other tokens", where=str(path))
        if not np.isfinite(values).all():
            raise EngineError(f"its sensitivities {name} are not finite", where=str(path))
    return arrays
