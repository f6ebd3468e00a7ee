"""Where the right generic edit is in the ranking by gradients, and how far its estimate is off.

`python tests/benchmarks/bench_edit_ranking.py [FAMILY …] [--edits N]` plants N edits of each tiny
model in turn, at random, and ranks all edits against the gap that one causes, with several bounds
of the gap as a multiple of the estimate and several numbers of edits of one place. It prints, for
each family, the setting that lists most edits of the other families among the first 48 (then 128),
and what it lists of its own. The gap has no noise: what is measured is the error of first order.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "probes")]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np  # noqa: E402  # after the path to it
from contract import InapplicableError, Processing  # noqa: E402

from grpodoctor.probe.attribution.search import edit_estimates  # noqa: E402
from grpodoctor.probe.attribution.search.edit_estimates import (  # noqa: E402
    EditEstimates,
    RankedEdit,
)
from grpodoctor.probe.engines.first_order import EstimatedEdit, Estimates  # noqa: E402
from tests.probe.plants.families import checkpoint  # noqa: E402
from tests.probes.test_what_if_layers import loaded, responses, scores  # noqa: E402

FAMILIES = ("llama", "gemma2", "qwen3", "glm", "starcoder2", "qwen2_moe")
TOKENS = 128
FIRST, ALL = 48, 128
SETTINGS = (
    ((0.2, 5.0), 4), ((0.05, 2.0), 4), ((0.02, 2.0), 4), ((0.0, 1e9), 4), ((0.05, 2.0), 2),
    ((0.05, 2.0), 12), ((0.02, 2.0), 12),
)  # fmt: skip
"""Bounds of the share, and edits of one place before those of others."""
VISIBLE = 0.01
"""Median |Δlogp| from which an edit is a fault."""


@dataclass(frozen=True)
class Planted:
    """One edit, as it was ranked against its own gap."""

    family: str
    name: str
    explained: float
    share: float
    """The gap as a multiple of the estimated effect."""
    ranks: tuple[int, ...]
    """Its number among the passes of the ranking, for each setting; a large one if it is not."""
    is_structural: bool
    """Whether it is tried whatever its estimate."""


def planted(family: str, root: Path, count: int, generator: random.Random) -> list[Planted]:
    """Plant edits of a family's model."""
    engine = loaded(checkpoint(root / family, family))
    rows = responses(engine, 12)
    plain_N = scores(engine, rows)
    listed, arrays = engine.first_order(rows, Processing(), TOKENS)
    known = len(arrays["effects_EN"])
    edits = [
        EstimatedEdit(one["name"], one["attribute"], str(one["value"]), one["kind"] == "number")
        for one in listed
    ]
    read = Estimates(tuple(edits), arrays["token_N"], arrays["logprob_N"], arrays["effects_EN"])
    found: list[Planted] = []
    for number in generator.sample(range(known), known):
        edit = edits[number]
        if edit.is_number and not edit.value:
            continue
        value = float(edit.value) if edit.is_number else edit.value
        try:
            with engine.altered([(edit.name, [edit.site, value])]):
                edited_N = scores(engine, rows)
        except InapplicableError:
            continue
        missing_N = (edited_N - plain_N)[read.token_N]
        if not np.median(np.abs(missing_N)) > VISIBLE:
            continue
        found.append(_ranked(family, read, number, missing_N))
        if len(found) == count:
            break
    return found


def _ranked(family: str, read: Estimates, number: int, missing_N: np.ndarray) -> Planted:
    estimates, edit = EditEstimates(read, missing_N), read.edits[number]
    effect_N = np.clip(read.effects_EN[number], -3, 3)
    missing_N = np.clip(missing_N, -3, 3)
    cross, size = float(effect_N @ missing_N), float(effect_N @ effect_N)
    explained = cross**2 / (size * float(missing_N @ missing_N))
    ranks = []
    for shares, places in SETTINGS:
        with (
            mock.patch.object(edit_estimates, "_SHARES", shares),
            mock.patch.object(edit_estimates, "_PER_PLACE", places),
        ):
            ranks.append(_rank(estimates.ranked()[:ALL], edit))
    is_structural = _rank(estimates.structural(), edit) < NOT_LISTED
    return Planted(family, edit.name, explained, cross / size, tuple(ranks), is_structural)


NOT_LISTED = 10**6


def _rank(ranked: Sequence[RankedEdit], edit: EstimatedEdit) -> int:
    same = (
        at
        for at, one in enumerate(ranked)
        if (one.family.name, one.family.attribute) == (edit.name, edit.site)
        and edit.value in map(str, one.family.values)
    )
    return next(same, NOT_LISTED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure some families and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--edits", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    generator = random.Random(options.seed)
    all_found: list[Planted] = []
    with tempfile.TemporaryDirectory() as scratch:
        for family in options.families:
            all_found += planted(family, Path(scratch), options.edits, generator)
            print(_line(family, [one for one in all_found if one.family == family]), flush=True)
    print_left_out(all_found)
    return 0


def _line(family: str, own: Sequence[Planted]) -> str:
    low, middle, high = np.quantile([one.share for one in own], (0.05, 0.5, 0.95))
    explained = np.quantile([one.explained for one in own], (0.05, 0.5))
    return (
        f"{family}: {len(own)} edits, {sum(one.is_structural for one in own)} structural; "
        f"gap / estimate {low:.2f} to {high:.2f}, median {middle:.2f}; explained {explained[1]:.2f}"
        f", 5 % below {explained[0]:.2f}; by setting "
        + ", ".join(f"{a}/{b}" for a, b in map(partial(_listed, own), range(len(SETTINGS))))
    )


def _listed(own: Sequence[Planted], setting: int) -> tuple[int, int]:
    """Edits among the first passes, and among all, of those that depend on their estimate."""
    ranks = [one.ranks[setting] for one in own if not one.is_structural]
    return sum(rank < FIRST for rank in ranks), sum(rank < ALL for rank in ranks)


def print_left_out(found: Sequence[Planted]) -> None:
    """The best setting of the other families, and what it lists of the one left out."""
    print(f"\n| family left out | best setting of the others | first {FIRST}, {ALL} | of |")
    print("|---|---|---|---|")
    for family in dict.fromkeys(one.family for one in found):
        others = [one for one in found if one.family != family]
        own = [one for one in found if one.family == family]
        best = max(range(len(SETTINGS)), key=partial(_listed, others))
        (low, high), places = SETTINGS[best]
        first, every = _listed(own, best)
        ranked = sum(not one.is_structural for one in own)
        print(f"| {family} | {low:g} to {high:g}, {places} a place | {first}, {every} | {ranked} |")


if __name__ == "__main__":
    raise SystemExit(main())
