"""A reader under test, its sound file, and the inputs that are made from it."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grpodoctor.errors import GrpodoctorError
from tests.fuzz.limits import SECONDS
from tests.fuzz.mutations.byte_damage import damaged

Mutation = Callable[[random.Random, bytes], bytes]

_STRUCTURE, _BYTES = 0.6, 0.85
"""Shares of the inputs: structure alone up to the first, bytes alone up to the second, then both.
"""


@dataclass(frozen=True)
class Target:
    """One reader.

    Args:
        name: shown in the table.
        file: path of the file below a fresh folder; readers see suffix and place.
        sound: a file that the reader accepts.
        read: reads the file at a path.
        mutation: damage that keeps the structure; None if there is only damage to bytes.
        companions: further files of the folder.
        refusals: the documented errors.
        weight: inputs relative to other targets; slow readers have less.
        seconds: processor time that an input may take.
    """

    name: str
    file: str
    sound: Callable[[], bytes]
    read: Callable[[Path], object]
    mutation: Mutation | None = None
    companions: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    refusals: tuple[type[Exception], ...] = (GrpodoctorError,)
    weight: float = 1.0
    seconds: int = SECONDS

    def input(self, sound: bytes, seed: int, number: int) -> bytes:
        """The input with this number; number 0 is the sound file itself."""
        if not number:
            return sound
        rng = random.Random(f"{seed}/{self.name}/{number}")
        kind = rng.random() * (1 if self.mutation else _BYTES - _STRUCTURE)
        kind += 0 if self.mutation else _STRUCTURE
        content = sound
        if self.mutation is not None and not _STRUCTURE <= kind < _BYTES:
            content = self._mutated(rng, content)
        return damaged(rng, content) if kind >= _STRUCTURE else content

    def _mutated(self, rng: random.Random, sound: bytes) -> bytes:
        """The file with a change of its structure; damaged bytes if the change does not apply."""
        try:
            return self.mutation(rng, sound) if self.mutation else sound
        except (
            ArithmeticError,
            LookupError,
            TypeError,
            ValueError,
            NotImplementedError,
            sqlite3.Error,
        ):
            return damaged(rng, sound)
