"""The interface of dump formats: they yield batches of responses as columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from grpodoctor.frameworks.rollout_formats.dump_file import DumpFile
from grpodoctor.measure.ragged import Ragged
from grpodoctor.support.arrays import np
from grpodoctor.support.files.growing_files import Damage

if TYPE_CHECKING:
    from numpy.typing import NDArray

Column: TypeAlias = "NDArray[np.float64]"

MOST_DAMAGE = 100
"""Damaged lines of a shard whose details are kept; all are counted."""


class Sequences(NamedTuple):
    """Token ids of responses with their prompts and padding."""

    tokens: Ragged
    """Prompt, response and possibly padding."""
    mask: Ragged
    """Above 0 for tokens that were generated and are trained on."""


@dataclass(slots=True, kw_only=True)
class Responses:
    """Some responses of a dump. A field is None if the dump does not contain it.

    In a column of doubles, NaN means "unknown" and an infinity means "not finite".
    """

    steps_B: NDArray[np.int64]
    names: Sequence[str]
    """An id for each response that does not depend on how the dump is split."""
    groups: list[str] | None = None
    """An id for each group: the responses to one prompt in one step."""
    ranks_B: NDArray[np.int64] | None = None
    """The rank that sampled a response, if each rank measured its own responses."""
    prompts: list[str] | None = None
    texts: list[str] | None = None
    references: list[str] | None = None
    """The reference answer of each response; empty where there is none."""
    tokens: Ragged | None = None
    """Generated tokens only."""
    rewards_B: Column | None = None
    components: dict[str, Column] = field(default_factory=dict)
    correct_B: Column | None = None
    truncated_B: Column | None = None
    advantages_B: Column | None = None
    lengths_B: Column | None = None
    """Response lengths in tokens, if `tokens` is None. A number that is no length is unknown."""
    staleness_B: Column | None = None
    learner: Ragged | None = None
    """Log-probabilities of the generated tokens under the learner, in nats."""
    sampler: Ragged | None = None
    entropies: Ragged | None = None
    sequences: Callable[[], Sequences] | None = None
    """The full sequences of the tokens in `learner` and `sampler`, for scoring them again. They may
    exist if `tokens` is None because another dump of the same responses holds the tokens."""

    def __post_init__(self) -> None:
        if self.lengths_B is not None:
            is_length = np.isfinite(self.lengths_B) & (self.lengths_B >= 0)
            self.lengths_B = np.where(is_length, self.lengths_B, np.nan)

    def __len__(self) -> int:
        return int(self.steps_B.size)


@dataclass(slots=True)
class DamageLog:
    """The damaged lines of a shard."""

    damage: list[Damage] = field(default_factory=list)
    damaged: int = 0

    def damaged_at(self, file: str, line: int, why: str) -> None:
        """Count an entry that is not a response."""
        self.damaged += 1
        if len(self.damage) < MOST_DAMAGE:
            self.damage.append(Damage(file, line, " ".join(why.split())[:200]))


class FilePart(NamedTuple):
    """A part of one file: bytes of a text file, row groups of a Parquet file, or the whole file."""

    path: str
    start: int
    stop: int
    step: int | None
    """The step of all its responses, if the file's name gives it."""
    origin: str = ""
    """The file's actual location if it is compressed or in a remote store."""
    length: int = -1
    """The file's size in bytes, if a remote store has reported it."""

    @property
    def source(self) -> DumpFile:
        """The file that this is a part of."""
        return DumpFile(Path(self.path), self.origin, self.length)


class DumpFormat(NamedTuple):
    """A framework's dump format; a `rollouts` module of its folder defines one as `FORMAT`."""

    name: str
    framework: str
    rank: int
    """Formats claim files in this order, the most specific first."""
    claims: Callable[[Path, bytes], bool]
    """Whether a file has this format, judged by its path and first bytes."""
    step_of: Callable[[Path], int | None]
    """The step of a file, from its name."""
    cut: Callable[[Path | DumpFile, int], list[tuple[int, int]]]
    """Splits a file into parts of about a given number of bytes."""
    read: Callable[[FilePart, DamageLog], Iterator[Responses]]
    """Yields the responses of a part in batches, with bounded memory.

    Raises:
        RunError: if the file is not usable.
        OSError: if it cannot be read.
    """
    skip_reason: Callable[[Path], str] = lambda path: ""  # noqa: ARG005 - most formats read every file
    """Why a file is not read, judged by its path: its responses are not trained on, or another file
    has them as well. Empty if the file is read."""
    evaluation_overwrites: bool = False
    """Whether an evaluation replaces the file of its step by one with its own responses."""


HELDOUT = "they hold responses to held-out prompts"
"""Why validation dumps are skipped: the readings of a step cover its training data."""

_NUMBER = re.compile(r"\d{1,12}")


def last_number(path: Path) -> int | None:
    """The last number in a file's name: `12.jsonl`, `completions_00012.parquet`."""
    numbers = _NUMBER.findall(path.stem)
    return int(numbers[-1]) if numbers else None


def folder_number(path: Path, prefix: str) -> int | None:
    """The number after a prefix in the name of the nearest parent folder that has it: `step_12`."""
    for part in reversed(path.parts[:-1]):
        tail = part.removeprefix(prefix)
        if tail != part and tail.isdigit() and len(tail) <= 12:
            return int(tail)
    return None
