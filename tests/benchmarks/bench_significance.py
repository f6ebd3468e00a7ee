"""How often attribution takes chance for a fall of the gap: `significant` under null hypotheses.

Two setups with equal errors leave gaps that differ by chance. The errors of a response's tokens are
autocorrelated, their size differs between responses with heavy tails, a few responses may carry
most of the gap, and the responses of a prompt share a part of their errors or are copies. Each row
is one such distribution; the columns are numbers of prompts with responses per prompt. Exits with 1
if a rate is above the stated level by more than chance.

`python tests/benchmarks/bench_significance.py [TRIALS]`
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.signal import lfilter
from scipy.stats import binom

from grpodoctor.probe.attribution.tokens import FALSE_POSITIVES, Floats, Tokens, significant

TRIALS = 4000
SHAPES = ((2, 1), (4, 1), (2, 8), (8, 1), (8, 4), (12, 1), (16, 4), (64, 1), (64, 4))
"""Numbers of prompts and of responses to each."""
LENGTH, GAP = 24, 0.02
"""Mean tokens per response, and the usual size of an error of a log-probability."""
_SURE = 1e-4
"""Probability of a rate by chance, below which it is above the level."""

Sizes = Callable[[np.random.Generator, int], Floats]


@dataclass(frozen=True)
class Null:
    """A distribution of errors that is the same before and after."""

    name: str
    sizes: Sizes
    """Size of the errors of each response."""
    autocorrelation: float = 0.0
    shared: float = 0.0
    """Share of the variance that the responses of a prompt have in common; 1 for copies."""
    flips: float = 0.0
    """Share of responses whose errors become thirty times as large, by chance in each setup."""


def equal(_: np.random.Generator, count: int) -> Floats:
    """The same size for all responses."""
    return np.ones(count)


NULLS = (
    Null("normal, independent tokens", equal),
    Null("autocorrelated tokens (.9)", equal, 0.9),
    Null("log-normal sizes (sigma 2)", lambda rng, n: np.exp(2 * rng.standard_normal(n)), 0.5),
    Null("Pareto sizes (exponent 1)", lambda rng, n: 1 + rng.pareto(1.0, n), 0.5),
    Null("2 % of responses flipped", equal, 0.5, flips=0.02),
    Null("half shared by a prompt", equal, 0.5, shared=0.5),
    Null("copied responses", equal, 0.5, shared=1.0),
    Null("all of these", lambda rng, n: 1 + rng.pareto(1.0, n), 0.9, shared=0.8, flips=0.02),
)


def tokens_of(prompts: int, samples: int, rng: np.random.Generator) -> Tokens:
    """Tokens without a gap."""
    count = prompts * samples
    lengths_B = 1 + rng.poisson(LENGTH - 1, count)
    size = int(lengths_B.sum())
    return Tokens(
        sampler_N=np.zeros(size),
        learner_N=np.zeros(size),
        lengths_B=lengths_B,
        prompt_B=np.arange(count) // samples,
        sample_B=np.arange(count) % samples,
        prompt_lengths_B=np.ones(count, np.int64),
        ended_B=np.ones(count, np.bool_),
        cached_B=np.zeros(count, np.int64),
        counted_N=np.ones(size, np.bool_),
    )


def errors(null: Null, tokens: Tokens, sizes_B: Floats, rng: np.random.Generator) -> Floats:
    """Errors of one setup."""
    longest, rows = int(tokens.lengths_B.max()), tokens.lengths_B.size
    own_BT = rng.standard_normal((rows, longest))
    common_PT = rng.standard_normal((int(tokens.prompt_B.max()) + 1, longest))
    mixed_BT = np.sqrt(null.shared) * common_PT[tokens.prompt_B] + np.sqrt(1 - null.shared) * own_BT
    rho = null.autocorrelation
    smooth_BT = lfilter([np.sqrt(1 - rho**2)], [1, -rho], mixed_BT, axis=1)
    is_flipped_B = rng.random(rows) < null.flips
    scale_B = GAP * sizes_B * np.where(is_flipped_B, 30.0, 1.0)
    return np.asarray((scale_B[:, None] * smooth_BT)[tokens.rows_N, tokens.positions_N])


def rate(null: Null, prompts: int, samples: int, trials: int) -> int:
    """In how many trials chance is taken for a fall."""
    rng = np.random.default_rng((prompts, samples, len(null.name)))
    hits = 0
    for _ in range(trials):
        tokens = tokens_of(prompts, samples, rng)
        sizes_B = null.sizes(rng, prompts if null.shared else prompts * samples)
        if null.shared:
            sizes_B = sizes_B[tokens.prompt_B]
        before, after = (
            replace(tokens, learner_N=errors(null, tokens, sizes_B, rng)) for _ in range(2)
        )
        hits += significant(before, after)
    return hits


def main() -> int:
    """Print the rates; 1 if one is above the level."""
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS
    table = Table("errors of both setups", *(f"{p} by {s}" for p, s in SHAPES))
    most, above = 0.0, 0
    for null in NULLS:
        rates = []
        for prompts, samples in SHAPES:
            hits = rate(null, prompts, samples, trials)
            most = max(most, hits / trials)
            above += binom.sf(hits - 1, trials, FALSE_POSITIVES) < _SURE
            rates.append(f"{hits / trials:.2%}")
        table.add_row(null.name, *rates)
    console = Console(width=110)
    console.print(table)
    console.print(
        f"largest rate {most:.2%} of {trials:,} trials; stated level {FALSE_POSITIVES:.2%}; "
        f"{above} of {len(NULLS) * len(SHAPES)} above it"
    )
    return int(above > 0)


if __name__ == "__main__":
    raise SystemExit(main())
