"""Several held-out sets: their mean at each step."""

from __future__ import annotations

from collections.abc import MutableMapping

from grpodoctor.vocabulary.metric_qualifiers import HELDOUT
from grpodoctor.vocabulary.values import Mean, Reading, scalar

_PREFIXES = tuple(f"{metric}/set/" for metric in HELDOUT)


class HeldOutSets:
    """Adds the mean over all held-out sets to the steps at which all of them were evaluated.

    A mean over the sets that happen to be evaluated would jump whenever another set is among them.
    """

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {prefix: set() for prefix in _PREFIXES}

    def add_means(self, values: MutableMapping[str, Reading]) -> None:
        """Add the means to the readings of a step, in place."""
        sets = [name for name in values if "/set/" in name]
        if not sets:
            return
        for prefix, names in self._names.items():
            evaluated = [name for name in sets if name.startswith(prefix)]
            names.update(evaluated)
            if evaluated and len(evaluated) == len(names):
                numbers = [scalar(values[name]) for name in evaluated]
                known = [number for number in numbers if number is not None]
                values[prefix.removesuffix("/set/")] = Mean.of(known)
