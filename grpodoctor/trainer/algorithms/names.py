"""Names of the algorithm variants, read from the file system.

Checking a name imports neither torch nor the variant.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

from grpodoctor.support.discovery import module_paths
from grpodoctor.support.suggestions import check_name

Family = Literal["advantages", "corrections", "kl", "losses", "replays", "reweightings"]

_SINGULAR: dict[Family, str] = {
    "advantages": "advantage",
    "corrections": "correction",
    "kl": "KL estimator",
    "losses": "loss",
    "replays": "routing replay",
    "reweightings": "reweighting",
}
_SHARED = ("base", "settings")


@lru_cache
def variant_modules(family: Family) -> Mapping[str, str]:
    """Dotted paths of a family's modules by variant name, sorted."""
    package = f"grpodoctor.trainer.algorithms.{family}"
    paths = module_paths(package, Path(__file__).parent / family)
    return {name: path for name, path in sorted(paths.items()) if name not in _SHARED}


def names(family: Family) -> tuple[str, ...]:
    """The variants of a family, sorted."""
    return tuple(variant_modules(family))


def check_variant(family: Family, name: str) -> None:
    """Check that a family has a variant of that name.

    Raises:
        ConfigError: if not; the message suggests the nearest names.
    """
    check_name(name, names(family), _SINGULAR[family])
