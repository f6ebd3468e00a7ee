"""The frameworks whose logs are understood, found by their files."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import grpodoctor.frameworks as folder
from grpodoctor.errors import ConfigError
from grpodoctor.frameworks.log_keys import Framework
from grpodoctor.support.discovery import modules_below

PLAIN = "generic"
"""The framework that is none."""


@lru_cache(maxsize=1)
def all_frameworks() -> tuple[Framework, ...]:
    """Every framework, by name."""
    found: list[Framework] = [module.FRAMEWORK for module in modules_below(folder, "metrics")]
    return tuple(sorted(found, key=lambda each: each.name))


def framework_named(name: str, option: str = "--format") -> Framework:
    """The framework of that name, or of a program that writes its logs.

    Args:
        name: as the user wrote it.
        option: where.

    Raises:
        ConfigError: if nobody knows it; the message names the nearest.
    """
    wanted = name.strip().lower().replace("_", "-")
    for each in all_frameworks():
        if wanted in (each.name, *each.family):
            return each
    known = [other for each in all_frameworks() for other in (each.name, *each.family)]
    near = difflib.get_close_matches(wanted, known, n=2, cutoff=0.5)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"use one of {', '.join(known)}"
    kind = option.lstrip("-")
    raise ConfigError(f"there is no {kind} {name[:60]!r}", where=option, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Guess:
    """A framework that may have written a log."""

    framework: Framework
    signature: tuple[str, ...]
    """Logged keys that no other framework has."""
    mapped: int
    """Logged keys that its table knows."""
    used: int
    """Those of them that it gives a metric or a reason: a table that lists `train/<path>` to ignore
    it knows half of what anybody logs."""
    total: int
    """Logged keys; one that two loggers wrote, each with its own prefix, counts once."""

    @property
    def why(self) -> str:
        """What speaks for it, in a line."""
        shown = ", ".join(self.signature[:3])
        of_table = f"{self.mapped} of {self.total} keys are in its table"
        if len(self.signature) == 1 and " + " in self.signature[0]:
            return f"{of_table}, {self.signature[0].replace(' + ', ', ')} together"
        return f"{of_table}; only it logs {shown}" if shown else of_table


def guesses(keys: Collection[str]) -> list[Guess]:
    """The frameworks that may have written a log of these keys, likeliest first.

    A key of a framework's signature counts more than any number of shared ones; a name that people
    use in scripts of their own is nobody's signature. Where no signature stands in the log, plain
    names are all that it is, unless a framework knows twice as many of the keys. Frameworks that
    have a use for none of the keys are left out.
    """
    found = [_guess(framework, keys) for framework in all_frameworks()]
    under = {name for each in found if each.signature for name in each.framework.builds_on}
    likely = (
        each for each in found if (each.signature or each.used) and each.framework.name not in under
    )
    return sorted(likely, key=_likelihood, reverse=True)


def _likelihood(guess: Guess) -> tuple[int, float]:
    favour = 2 if guess.framework.name == PLAIN else 1
    return len(guess.signature), favour * guess.used


def plain_names() -> Framework:
    """The table of names that people use in scripts of their own."""
    return framework_named(PLAIN)


def _guess(framework: Framework, keys: Collection[str]) -> Guess:
    bare = {framework.bare(key): key for key in keys}
    ours = set(bare) if framework.name == PLAIN else {key for key in bare if not _is_plain(key)}
    together = [each for each in framework.signatures_in(bare) if " + " in each]
    alone = sorted(bare[each] for each in framework.signatures_in(ours) if " + " not in each)
    mapped = sum(framework.knows(name) for name in bare)
    used = sum(
        any(row.metric or row.lie for row, _ in framework.meanings_of(name)) for name in bare
    )
    return Guess(framework, (*alone, *together), mapped, used, len(bare))


def _is_plain(key: str) -> bool:
    return plain_names().knows(key)
