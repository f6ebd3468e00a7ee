"""A setup of the two engines, and the tokens measured under it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from grpodoctor.probe.attribution.edits import Edits
from grpodoctor.probe.attribution.tokens import Floats, Integers, Tokens
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.inputs.engine_spec import EngineSpec


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """A change of a column of log-probabilities."""

    change: Callable[[Integers, Floats], Floats]
    """From the responses' lengths, shape (B,), and the column, shape (N,)."""
    needs_all: bool = False
    """Whether it depends on all responses of the part."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The origin of the two columns of log-probabilities; an experiment changes it."""

    learner: EngineSpec
    processing: Processing
    """Applies to the learner, and to a sampler that scores."""
    own_prompts: bool = False
    """Whether the learner tokenizes the prompts itself."""
    behind: Path | None = None
    """A folder with the same responses after other prompts, which the learner scores."""
    rescored: EngineSpec | None = None
    """The engine whose scores replace the log-probabilities that the sampler reported."""
    shift: int = 0
    """Number of tokens by which the sampler's column is shifted against the learner's."""
    without_ends: bool = False
    """Whether end tokens are excluded."""
    replay: bool = False
    """Whether the learner replays the sampler's experts."""
    edits: Edits = ()
    """What-if edits of the learner's computation."""
    transform: str = ""
    """Change of the reported values, such as `log2`; see `causes/reporting/units.py`."""
    learner_map: ColumnMap | None = field(default=None, compare=False)
    """What `transform` does to the learner's column: each new scoring needs it again."""
    swapped: bool = False
    """Whether the learner's values are in the sampler's column: a reference engine, which agrees
    with the sampler, then scores in place of the learner, to find out why the learner differs."""

    @property
    def sides(self) -> tuple[str, str]:
        """The names of the two columns in sentences."""
        return ("learner", "sampler") if self.swapped else ("sampler", "learner")

    @property
    def needs_all(self) -> bool:
        """Whether the learner's values of one response depend on those of others."""
        return self.learner_map is not None and self.learner_map.needs_all

    def learner_column(self, lengths_B: Integers, learner_N: Floats) -> Floats:
        """The learner's log-probabilities, made comparable with the sampler's column."""
        made = self.learner_map
        return learner_N if made is None else made.change(lengths_B, learner_N)


@dataclass(frozen=True, slots=True)
class Variant:
    """A setup and its tokens."""

    setup: Setup
    tokens: Tokens

    @property
    def gap(self) -> float:
        """k3 in nats per token."""
        return self.tokens.gap
