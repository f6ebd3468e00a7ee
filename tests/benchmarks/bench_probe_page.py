"""The size of a probe's report page: `make bench`, `python tests/benchmarks/bench_probe_page.py`.

Grids of 1 to 2,000 pairs with real comparisons of long responses, causes, controls and experts.
Exits with 1 if a page is larger than its limit.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.results.results import Cell, Comparison, ProbeResult
from grpodoctor.report import html
from grpodoctor.report.probe.view import view_of
from tests.probe.pairs import random_responses, write
from tests.report.probed import CAUSE, CONTROLS, REPLAYED, comparison, result

LIMIT = 1_500_000
"""Bytes."""
SIZES = ((1, 1), (5, 5), (10, 10), (20, 12), (40, 50), (1, 2000))
"""Numbers of samplers and of learners."""
PROMPTS, SAMPLES, LONGEST = 64, 4, 1024
_LAYERS = 48
_KINDS = 10
"""Different comparisons; several pairs share each of them."""


def measured(folder: Path, seed: int) -> Comparison:
    """The comparison of long responses, with the routing of a model with many layers."""
    responses = random_responses(
        PROMPTS * SAMPLES, seed, samples=SAMPLES, gap=0.02 * (1 + seed), longest=LONGEST
    )
    found = compare(*write(folder / str(seed), responses))
    texts = tuple(
        replace(each, token_texts=tuple(f" token{at % 97}" for at in range(len(each.ids))))
        for each in found.worst
    )
    experts = comparison().experts
    assert experts is not None
    layers = tuple(replace(experts.layers[0], layer=layer) for layer in range(_LAYERS))
    return replace(found, worst=texts, experts=replace(experts, layers=layers))


def grid(samplers: int, learners: int, comparisons: list[Comparison]) -> ProbeResult:
    """A result with a pair for each two engines."""
    like = result().cells[0]
    cells: list[Cell] = []
    for sampler in range(samplers):
        for learner in range(learners):
            cells.append(
                replace(
                    like,
                    sampler=f"vllm:organization/model-of-a-family?seed={sampler}&dtype=bfloat16",
                    learner=f"transformers:organization/model-of-a-family?seed={learner}",
                    comparison=comparisons[len(cells) % len(comparisons)],
                    controls=CONTROLS,
                    causes=(CAUSE, replace(CAUSE, cause="temperature"), CAUSE),
                    replayed=REPLAYED,
                )
            )
    return replace(result(), cells=tuple(cells))


def main() -> int:
    """Print the sizes; 1 if one is above the limit."""
    with tempfile.TemporaryDirectory() as folder:
        comparisons = [measured(Path(folder), seed) for seed in range(_KINDS)]
    table = Table("pairs", "page, bytes", "seconds")
    largest = 0
    for samplers, learners in SIZES:
        began = time.perf_counter()
        size = len(html.render(view_of(grid(samplers, learners, comparisons))).encode())
        largest = max(largest, size)
        seconds = time.perf_counter() - began
        table.add_row(str(samplers * learners), f"{size:,}", f"{seconds:.1f}")
    console = Console(width=80)
    console.print(table)
    console.print(f"largest page {largest:,} bytes, limit {LIMIT:,}")
    return int(largest > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
