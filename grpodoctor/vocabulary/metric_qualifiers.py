"""Qualifiers of metric names. A qualifier narrows the population of a metric.

`/worst_sequence` (the maximum of the per-sequence values, with the sequence's id),
`/position/<from>-<to>`, `/probability/<from>-<to>`, `/engine/<label>`, `/layer/<index>`,
`/set/<name>` (one held-out set; the name without it is the mean of all sets), `/recomputed`
(computed from the dumped responses; the log has the metric too), `/probe`, `/inferred` (a lower
bound that other metrics of the step imply; see `runs/inferred_groups.py`).
"""

from __future__ import annotations

import re

_QUALIFIER = re.compile(
    r"/(worst_sequence|position/[0-9]+-[0-9]*|probability/[0-9.e-]+-[0-9.e-]+"
    r"|engine/[^/]+|layer/[0-9]+|set/.+|recomputed|probe|inferred)$"
)
HELDOUT = ("accuracy/heldout", "reward/heldout")
"""Metrics of held-out prompts; with several sets, each has a reading with the qualifier `set`."""
RECOMPUTED = "recomputed"
"""Qualifier of readings computed from the dumped responses."""
PROBED = "probe"
"""Qualifier of a probe's measurement of the run's engines, alongside the run's own reading."""
INFERRED = "inferred"
"""Qualifier of a lower bound that the chart infers from other metrics of the same step."""


def without_qualifier(name: str) -> str:
    """A metric name without its last qualifier; the name itself if it has none."""
    return _QUALIFIER.sub("", name)
