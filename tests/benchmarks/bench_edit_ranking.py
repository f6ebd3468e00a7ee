"""Where the right generic edit is in the ranking by gradients, and how far its estimate is off.

`python tests/benchmarks/bench_edit_ranking.py [FAMILY …] [--edits N]` plants N edits of each tiny
model in turn, at random, and ranks all edits against the gap that one causes. It prints, for each
family, the bounds that keep 95 % of the other families' edits, and what they keep of its own.
Attention has no noise here: what is measured is the error of the first order alone.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "probes")]
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np  # noqa: E402  # after the path to it
from contract import InapplicableError, Processing  # noqa: E402

from grpodoctor.probe.attribution.search.edit_estimates import EditEstimates  # noqa: E402
from grpodoctor.probe.engines.first_order import EstimatedEdit, Estimates  # noqa: E402
from tests.probe.plants.families import checkpoint  # noqa: E402
from tests.probes.test_what_if_layers import loaded, responses, scores  # noqa: E402

FAMILIES = ("llama", "gemma2", "qwen3", "glm", "starcoder2", "helium", "olmo2", "qwen2_moe")
TOKENS = 128
VISIBLE = 0.01
"""Median |Δlogp| from which an edit is a fault."""
KEPT = 0.95


@dataclass(frozen=True)
class Planted:
    """One edit, as it was ranked against its own gap."""

    family: str
    name: str
    explained: float
    share: float
    """The gap as a multiple of the estimated effect."""
    rank: int
    """Its number in the list of passes; -1 if it is not in the list."""


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
    in_list = [*estimates.ranked()[:48], *estimates.structural()[:96], *estimates.ranked()[48:128]]
    same = (
        at
        for at, one in enumerate(in_list)
        if (one.family.name, one.family.attribute) == (edit.name, edit.site)
        and edit.value in map(str, one.family.values)
    )
    return Planted(family, edit.name, explained, cross / size, next(same, -1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure some families and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--edits", type=int, default=60)
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
    shares = np.array([one.share for one in own])
    listed = sum(one.rank >= 0 for one in own)
    low, middle, high = np.quantile(shares, (0.025, 0.5, 0.975))
    first = sum(0 <= one.rank < 48 for one in own)
    explained = np.quantile([one.explained for one in own], (0.05, 0.5))
    return (
        f"{family}: {len(own)} edits, {listed} in the list of passes, {first} among the first 48; "
        f"gap / estimate {low:.2f} to {high:.2f}, median {middle:.2f}; explained {explained[1]:.2f}"
        f", 5 % below {explained[0]:.2f}"
    )


def print_left_out(found: Sequence[Planted]) -> None:
    """The bounds of the share from the other families, and what they keep of the one left out."""
    print("\n| family left out | bounds of the others | kept of its own |\n|---|---|---|")
    edge = (1 - KEPT) / 2
    for family in dict.fromkeys(one.family for one in found):
        others = np.array([one.share for one in found if one.family != family])
        own = np.array([one.share for one in found if one.family == family])
        if not others.size:
            continue
        low, high = np.quantile(others, (edge, 1 - edge))
        print(
            f"| {family} | {low:.2f} to {high:.2f} | {np.mean((own >= low) & (own <= high)):.0%} |"
        )


if __name__ == "__main__":
    raise SystemExit(main())
