"""What the best what-if edit leaves of the gap of a planted fault, without a search.

`python tests/benchmarks/bench_edit_reach.py seventh-draw-a [WORD …]` takes the plants with one
fault of the sampler's forward pass whose names or groups contain a word. Both engines score the
same random tokens, and the learner scores them with each edit of its list, one by one. So it shows
whether the list contains the kind of a fault, at a fraction of the time of a search, but not
whether a search finds and proves it: numbers are not refined. `--generic` adds edits of any module,
and `--only NAME` tries the edits of one name alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
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

from tests.probe.plants import planted_engine  # noqa: E402
from tests.probe.plants.catalogue import Plant, plants, unseen  # noqa: E402
from tests.probe.plants.families import checkpoint, prompts  # noqa: E402

_ROWS, _TOKENS, _CLIP, _SHOWN = 10, 34, 5.0, 3
_NO_EDITS = ("tensors", "site_scales")
"""Entries without values to try."""


def _scores(engine: Any, rows: Sequence[Response]) -> np.ndarray:
    return np.concatenate([each.logprobs for each in engine.score(rows, Processing(), ())])


def _k3(learner: np.ndarray, sampler: np.ndarray) -> float:
    ratio = np.clip(learner - sampler, -_CLIP, _CLIP)
    return float(np.mean(np.exp(ratio) - ratio - 1))


def _rows() -> list[Response]:
    heads, tails = prompts(_ROWS, seed=1), prompts(_ROWS * 6, seed=2)
    drawn = [token for each in tails for token in each["ids"]]
    return [
        Response(head["ids"], drawn[at * _TOKENS : (at + 1) * _TOKENS], [], at, 0)
        for at, head in enumerate(heads)
    ]


def reach(
    plant: Plant, folder: Path, *, generic: bool, only: str = ""
) -> tuple[int, list[tuple[float, str]]]:
    """How many edits were tried, and the best with the share of the gap that each leaves."""
    rows = _rows()
    faulty = planted_engine.load(str(folder), {"faults": plant.faults, "threads": 1})
    target = _scores(faulty, rows)
    faulty.close()
    engine = engine_transformers.load(str(folder), {"threads": 1})
    before = _k3(_scores(engine, rows), target)
    left = [
        (_k3(edited, target) / before, f"{name} {value}")
        for name, value, edited in _edited(engine, rows, generic=generic, only=only)
    ]
    return len(left), sorted(left)[:_SHOWN]


def _edited(
    engine: Any, rows: Sequence[Response], *, generic: bool, only: str
) -> Iterator[tuple[str, Any, np.ndarray]]:
    for entry in engine.what_ifs():
        name = entry["name"]
        if name in _NO_EDITS or (name.startswith("site_") and not generic):
            continue
        if only not in ("", name):
            continue
        for value in entry["values"]:
            try:
                with engine.altered([(name, value)]):
                    yield name, value, _scores(engine, rows)
            except InapplicableError:
                continue


def main() -> None:
    """Print a line for each plant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("words", nargs="+")
    parser.add_argument("--generic", action="store_true")
    parser.add_argument("--only", default="", metavar="NAME")
    options = parser.parse_args()
    for plant in (*plants(), *unseen()):
        is_wanted = any(word in plant.name or word == plant.group for word in options.words)
        if not is_wanted or plant.options or plant.side != "sampler" or len(plant.causes) != 1:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder = checkpoint(Path(scratch) / plant.family, plant.family)
            count, best = reach(plant, folder, generic=options.generic, only=options.only)
        shown = "; ".join(f"{share:.1%} {edit}" for share, edit in best)
        print(f"{plant.name}: of {count} edits the best leave {shown}", flush=True)


if __name__ == "__main__":
    main()
