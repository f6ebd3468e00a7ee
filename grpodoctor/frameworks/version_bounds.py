"""Which versions of a framework may have written a log, by the keys that it has and lacks."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.key_meaning import KeyMeaning

_Version = tuple[int, ...]
_UNKNOWN: _Version = ()


class VersionBounds(NamedTuple):
    """The versions from `low` on and before `high`; an empty one is unknown."""

    low: _Version = _UNKNOWN
    high: _Version = _UNKNOWN

    def may_log(self, row: KeyMeaning) -> bool:
        """Whether some of these versions may log a key as a row says."""
        too_new = bool(row.until) and self.low != _UNKNOWN and self.low >= _parts(row.until)
        too_old = bool(row.since) and self.high != _UNKNOWN and self.high <= _parts(row.since)
        return not too_new and not too_old

    def surely_log(self, row: KeyMeaning) -> bool:
        """Whether all of these versions log a key as a row says."""
        since = not row.since or (self.low != _UNKNOWN and self.low >= _parts(row.since))
        until = not row.until or (self.high != _UNKNOWN and self.high <= _parts(row.until))
        return since and until

    def note(self, version: str) -> str:
        """The version and how it is known; empty if it is unknown.

        Args:
            version: the version in the run's settings; empty if they do not state it.
        """
        if version:
            return f"{version}, from the run's settings"
        low, high = (".".join(map(str, bound)) for bound in self)
        if low and high:
            return f"{low} or later and before {high}, inferred from its keys"
        if low or high:
            bound = f"{low} or later" if low else f"before {high}"
            return f"{bound}, inferred from its keys"
        return ""


def version_bounds(framework: Framework, version: str, keys: Collection[str]) -> VersionBounds:
    """Bound the version: it has every logged key, and lacks each key it would always log.

    Args:
        framework: the framework.
        version: the version in the run's settings; empty if they do not state it.
        keys: the keys seen so far, without the logger's prefix.
    """
    if version:
        return VersionBounds(_parts(version), _next(_parts(version)))
    lows, highs = [_UNKNOWN], list[_Version]()
    for key in keys:
        rows = [meaning for meaning, _ in framework.meanings_of(key)]
        if rows and all(row.since for row in rows):
            lows.append(min(_parts(row.since) for row in rows))
        if rows and all(row.until for row in rows):
            highs.append(max(_parts(row.until) for row in rows))
    for row in framework.always_logged:
        if not set(row.keys).intersection(keys):
            highs.append(_parts(row.since))
    low = max(lows)
    # A script may log its own key under an old name, but no old version logs a new key.
    return VersionBounds(low, min((high for high in highs if high > low), default=_UNKNOWN))


def _parts(version: str) -> _Version:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def _next(version: _Version) -> _Version:
    """The smallest version above this one, to three places."""
    padded = (*version, 0, 0, 0)[:3]
    return (*padded[:2], padded[2] + 1)
