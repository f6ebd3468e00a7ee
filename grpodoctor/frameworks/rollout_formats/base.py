"""What every dump format gives: batches of responses, a column for each thing that is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpodoctor.frameworks.rollout_formats.source import Source
from grpodoctor.measure.ragged import Ragged
from grpodoctor.support.damage import Damage

Column = NDArray[np.float64]

MOST_DAMAGE = 100
"""Damaged lines of a shard that are kept one by one; all are counted."""


class Sequences(NamedTuple):
    """Token ids of responses with all that stands around them."""

    tokens: Ragged
    """Prompt, response, and perhaps padding."""
    mask: Ragged
    """Above 0 where a token was generated and is trained on."""


@dataclass(slots=True, kw_only=True)
class Responses:
    """Some responses of a dump. What is None does not stand in it.

    In a column of doubles NaN means "not known" and an infinity "not finite".
    """

    steps_B: NDArray[np.int64]
    names: Sequence[str]
    """An id of each response, the same however the dump is cut."""
    groups: list[str] | None = None
    """What responses of one prompt and step share."""
    ranks_B: NDArray[np.int64] | None = None
    """Who sampled, where each rank measured its own responses."""
    prompts: list[str] | None = None
    texts: list[str] | None = None
    tokens: Ragged | None = None
    """Generated tokens alone."""
    rewards_B: Column | None = None
    components: dict[str, Column] = field(default_factory=dict)
    correct_B: Column | None = None
    truncated_B: Column | None = None
    advantages_B: Column | None = None
    lengths_B: Column | None = None
    """In tokens, where these themselves are not there."""
    staleness_B: Column | None = None
    learner: Ragged | None = None
    """Log-probabilities of the generated tokens under the learner, in nats."""
    sampler: Ragged | None = None
    entropies: Ragged | None = None
    sequences: Callable[[], Sequences] | None = None
    """The tokens that `learner` and `sampler` speak of, in their sequences, for whoever wants to
    have them scored again; also where `tokens` are left to another dump of the same responses."""

    def __len__(self) -> int:
        return int(self.steps_B.size)


@dataclass(slots=True)
class Notes:
    """What a shard could not use."""

    damage: list[Damage] = field(default_factory=list)
    damaged: int = 0

    def damaged_at(self, file: str, line: int, why: str) -> None:
        """Count something that is no response."""
        self.damaged += 1
        if len(self.damage) < MOST_DAMAGE:
            self.damage.append(Damage(file, line, " ".join(why.split())[:200]))


class Piece(NamedTuple):
    """A part of one file: bytes of a text, row groups of a Parquet file, or all of it."""

    path: str
    start: int
    stop: int
    step: int | None
    """The step that all its responses belong to, where the file's name tells."""
    origin: str = ""
    """Where the file really lies, if not at its path: packed, or in a store."""
    length: int = -1
    """Bytes there, where a store has said so."""

    @property
    def source(self) -> Source:
        """The file."""
        return Source(Path(self.path), self.origin, self.length)


class DumpFormat(NamedTuple):
    """A framework's dump format: its module in this folder defines one as `FORMAT`."""

    name: str
    framework: str
    rank: int
    """Formats are asked in this order, the most particular first."""
    claims: Callable[[Path, bytes], bool]
    """Whether a file is of this format, by its path and its first bytes."""
    step_of: Callable[[Path], int | None]
    """Which step a file belongs to, by its name."""
    cut: Callable[[Path | Source, int], list[tuple[int, int]]]
    """Where a file can be cut into pieces of about so many bytes."""
    read: Callable[[Piece, Notes], Iterator[Responses]]
    """The responses of a piece, batch by batch, in bounded memory.

    Raises:
        RunError: if the file cannot be used.
        OSError: if it cannot be read.
    """
    passed_over: Callable[[Path], str] = lambda path: ""  # noqa: ARG005 - most read all
    """Why a file is not read, by its place: nobody was trained on what it holds, or it stands
    elsewhere as well. Empty for a file that is."""


HELDOUT = "of held-out prompts"
"""Why validation dumps are passed over: the readings of a step are of what it was trained on."""

_NUMBER = re.compile(r"\d{1,12}")


def last_number(path: Path) -> int | None:
    """The last number in a file's name: `12.jsonl`, `completions_00012.parquet`."""
    found = _NUMBER.findall(path.stem)
    return int(found[-1]) if found else None


def folder_number(path: Path, prefix: str) -> int | None:
    """The number after a prefix in the name of the nearest folder that has it: `step_12`."""
    for part in reversed(path.parts[:-1]):
        tail = part.removeprefix(prefix)
        if tail != part and tail.isdigit() and len(tail) <= 12:
            return int(tail)
    return None
