"""What-if edits with the same effect and different names, by family.

`python tests/benchmarks/bench_equal_edits.py llama granite …` scores the same random tokens with
each value that a family's list of edits begins with, and with four temperatures, and prints pairs
of different causes under which no log-probability differs by more than 2e-4. No experiment tells
such a pair apart, so one must be the rival of the other, or the title must say what both do. Pairs
of two generic edits are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "probes")]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import engine_transformers  # noqa: E402  # after the path to it
import numpy as np  # noqa: E402
from contract import InapplicableError, Processing, Response  # noqa: E402

from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of  # noqa: E402
from grpodoctor.probe.attribution.search.edit_search import GENERIC  # noqa: E402
from grpodoctor.probe.attribution.wording.edit_words import described  # noqa: E402
from tests.probe.plants.families import checkpoint, prompts  # noqa: E402

_ROWS, _TOKENS = 10, 34
_SAME, _EFFECT, _LEAST = 2e-4, 1e-3, -30.0
"""|Δlogp| of float32 rounding, and of an edit with an effect; bound of excluded tokens."""
_TEMPERATURES = (0.5, 0.7, 1.4, 2.0)
_NO_EDITS = ("tensors", "site_scales")


@dataclass(frozen=True)
class Effect:
    """A change, and the log-probabilities under it."""

    cause: str
    words: str
    is_generic: bool
    logprobs_N: np.ndarray


def _rows() -> list[Response]:
    heads, tails = prompts(_ROWS, seed=1), prompts(_ROWS * 6, seed=2)
    drawn = [token for each in tails for token in each["ids"]]
    return [
        Response(head["ids"], drawn[at * _TOKENS : (at + 1) * _TOKENS], [], at, 0)
        for at, head in enumerate(heads)
    ]


def _scores(engine: Any, rows: Sequence[Response], temperature: float = 1.0) -> np.ndarray:
    scored = engine.score(rows, Processing(temperature), ())
    columns = np.concatenate([each.logprobs for each in scored])
    return np.nan_to_num(np.maximum(columns, _LEAST), nan=_LEAST)


def effects(engine: Any) -> Iterator[Effect]:
    """The effects of all changes that have one."""
    rows = _rows()
    plain_N = _scores(engine, rows)
    for temperature in _TEMPERATURES:
        scored_N = _scores(engine, rows, temperature)
        yield Effect("temperature", f"temperature {temperature}", False, scored_N)
    for entry in engine.what_ifs():
        for value in () if entry["name"] in _NO_EDITS else entry["values"]:
            try:
                with engine.altered([(entry["name"], value)]):
                    edited_N = _scores(engine, rows)
            except InapplicableError:
                continue
            edit = entry["name"], json.dumps(value)
            if np.abs(edited_N - plain_N).max() > _EFFECT:
                yield Effect(cause_of(edit).id, described(edit), edit[0] in GENERIC, edited_N)


def equal_pairs(found: Sequence[Effect]) -> Iterator[tuple[Effect, Effect]]:
    """Pairs of different causes with the same effect, once each."""
    columns_EN = np.array([each.logprobs_N for each in found])
    seen: set[frozenset[str]] = set()
    for at, one in enumerate(found):
        apart_E = np.abs(columns_EN[at + 1 :] - columns_EN[at]).max(axis=1, initial=0.0)
        for other in (found[at + 1 + int(place)] for place in np.flatnonzero(apart_E < _SAME)):
            names = frozenset((one.cause, other.cause))
            if len(names) == 1 or names in seen or (one.is_generic and other.is_generic):
                continue
            seen.add(names)
            yield one, other


def main() -> None:
    """Print the pairs of each family."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("families", nargs="+")
    for family in parser.parse_args().families:
        with tempfile.TemporaryDirectory() as scratch:
            folder = checkpoint(Path(scratch) / family, family)
            found = list(effects(engine_transformers.load(str(folder), {"threads": 1})))
        pairs = list(equal_pairs(found))
        print(f"{family}: {len(found)} edits with an effect, {len(pairs)} equal pairs", flush=True)
        for one, other in pairs:
            print(f"  {one.cause} ({one.words}) = {other.cause} ({other.words})", flush=True)


if __name__ == "__main__":
    main()
