"""Two causes of the kinds that were not named in `fresh` and `unseen_catalogue`.

One kind is a setting whose effect another edit imitates, next to a truncation or a temperature
with a small gap. The other is an edit that removes little next to a stale layer. Families, numbers
and the names that count were fixed before the first run.
"""

from __future__ import annotations

Names = tuple[str, ...]
_MULTIPLIER = ("residual-scale", "model-config")
DOUBLES: tuple[tuple[str, str, tuple[Names, ...], bool], ...] = (
    ("granitemoe", "residual_multiplier:1+hidden_top_p:0.95",
     (_MULTIPLIER, ("truncation",)), False),
    ("granite", "residual_multiplier:0.3+hidden_temperature:0.95",
     (_MULTIPLIER, ("temperature",)), False),
    ("stablelm", "norm_eps:0.2", (("norm-epsilon",), ("partial-sync",)), True),
    ("phi", "norm_eps:0.05", (("norm-epsilon",), ("partial-sync",)), True),
    ("starcoder2", "norm_eps:0.1", (("norm-epsilon",), ("partial-sync",)), True),
)  # fmt: skip
"""Family, faults, accepted names, and whether a layer is stale, too."""
