"""Difficulty filtering: prompts that are nearly always or nearly never solved are not drawn.

Formula
    A prompt's pass rate is the share of correct responses among those that training drew for it,
    what is older counting half as much with each visit. Every `every` steps the prompts with a rate
    below `low` or above `high` are put outside; they are skipped until the next estimate, but for
    a chance of `explore` each time. A prompt never seen is inside. With `retire_at` a prompt whose
    rate reaches it is never drawn again (no-positive-resampling).

Denominator
    The batch, of its usual size: a prompt that is skipped is replaced by the next of the stream. If
    a batch cannot be filled from 20 times its prompts, what was skipped fills it, those that are
    retired last.

Settings
    difficulty.every, 0 and thus off by default; difficulty.low 0.2, high 0.8, explore 0.1;
    difficulty.retire_at, 0 and thus off by default, 0.9 in ScaleRL. The band from 20 to 80 % is a
    convention: no paper measured it, nor how often to estimate anew.

Effect on metrics
    groups/zero_variance_rate falls; accuracy/train goes to the middle of the band, so that held-out
    accuracy is the one to watch. prompts/skipped_rate and prompts/outside_rate say how much is
    left out. A policy that forgets is found out through `explore` alone.

Other implementations
    open-instruct's no_resampling_pass_rate retires; most others filter a data set once, by the
    model that training begins with.

Do not combine with
    A reward that does not say which responses are correct.

Source
    None for the band; for retiring ScaleRL, arXiv 2510.13786.
"""

from __future__ import annotations

from pydantic import Field

from grpodoctor.trainer.section import Section


class DifficultyConfig(Section):
    """Which prompts are not worth drawing, judged by how often they were answered correctly."""

    every: int = Field(0, ge=0)
    """Steps between two estimates of what lies outside `low` and `high`; 0 filters nothing."""
    low: float = Field(0.2, ge=0, le=1)
    """Prompts with a lower pass rate are too hard."""
    high: float = Field(0.8, ge=0, le=1)
    """Prompts with a higher pass rate are too easy."""
    explore: float = Field(0.1, ge=0, le=1)
    """Chance that a prompt outside is drawn all the same, so that its rate can recover."""
    retire_at: float = Field(0.0, ge=0, le=1)
    """Pass rate from which a prompt is never drawn again (ScaleRL: 0.9); 0 retires none."""

    @property
    def filters(self) -> bool:
        """Whether any prompt is ever left out."""
        return self.every > 0 or self.retire_at > 0


_KEPT = 0.5
"""What a visit leaves of the counts of those before it."""


def counted(passed: float, tried: float, correct: int, responses: int) -> tuple[float, float]:
    """A prompt's counts after a visit: what was known counts half, and the visit in full."""
    return passed * _KEPT + correct, tried * _KEPT + responses


def is_outside(rate: float, settings: DifficultyConfig) -> bool:
    """Whether a pass rate lies outside the band; its borders are inside."""
    return not settings.low <= rate <= settings.high
