"""Detects which framework wrote a log from the keys in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.registry import GENERIC, generic_framework, logging_frameworks


@dataclass(frozen=True, slots=True)
class Guess:
    """A framework that may have written a log."""

    framework: Framework
    signature: tuple[str, ...]
    """Logged keys that no other framework has."""
    mapped: int
    """Logged keys that its table has."""
    used: int
    """The mapped keys that have a metric or a caveat. A table that lists `train/<path>` only to
    ignore it would otherwise match half of every log."""
    total: int
    """Logged keys. A key that two loggers wrote with different prefixes counts once."""

    @property
    def why(self) -> str:
        """The evidence for the guess, in one line."""
        shown = ", ".join(self.signature[:3])
        coverage = f"{self.mapped} of {self.total} keys recognized"
        if len(self.signature) == 1 and " + " in self.signature[0]:
            return f"{coverage}, including {self.signature[0].replace(' + ', ', ')}"
        return f"{coverage}; no other framework logs {shown}" if shown else coverage


def guess_frameworks(keys: Collection[str]) -> list[Guess]:
    """The frameworks that may have written a log with these keys, the likeliest first.

    A key of a framework's signature outweighs any number of shared keys. A key of the generic table
    is no signature. Without a signature the generic table wins, unless a framework uses twice as
    many of the keys. Frameworks that use none of the keys are left out.
    """
    guesses = [_guess(framework, keys) for framework in logging_frameworks()]
    outranked = {name for guess in guesses if guess.signature for name in guess.framework.builds_on}
    possible = (
        guess
        for guess in guesses
        if (guess.signature or guess.used) and guess.framework.name not in outranked
    )
    return sorted(possible, key=_likelihood, reverse=True)


def _likelihood(guess: Guess) -> tuple[int, float]:
    weight = 2 if guess.framework.name == GENERIC else 1
    return len(guess.signature), weight * guess.used


def _guess(framework: Framework, keys: Collection[str]) -> Guess:
    bare = {framework.bare_key(key): key for key in keys}
    is_generic = framework.name == GENERIC
    own = {key for key in bare if is_generic or not generic_framework().knows(key)}
    combined = [part for part in framework.signatures_in(bare) if " + " in part]
    single = sorted(bare[part] for part in framework.signatures_in(own) if " + " not in part)
    mapped = sum(framework.knows(name) for name in bare)
    used = sum(
        any(meaning.metric or meaning.caveat for meaning, _ in framework.meanings_of(name))
        for name in bare
    )
    return Guess(framework, (*single, *combined), mapped, used, len(bare))
