"""A setup of the two engines, and the tokens measured under it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grpodoctor.probe.attribution.edits import Edits
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.inputs.engine_spec import EngineSpec


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
    swapped: bool = False
    """Whether the learner's values are in the sampler's column: a reference engine, which agrees
    with the sampler, then scores in place of the learner, to find out why the learner differs."""

    @property
    def sides(self) -> tuple[str, str]:
        """The names of the two columns in sentences."""
        return ("learner", "sampler") if self.swapped else ("sampler", "learner")


@dataclass(frozen=True, slots=True)
class Variant:
    """A setup and its tokens."""

    setup: Setup
    tokens: Tokens

    @property
    def gap(self) -> float:
        """k3 in nats per token."""
        return self.tokens.gap
