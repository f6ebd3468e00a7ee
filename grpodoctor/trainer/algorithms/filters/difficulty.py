"""Difficulty filtering: skips prompts that are nearly always or nearly never solved.

Formula
    A prompt's pass rate is the fraction of correct responses that training sampled for it; earlier
    visits count half as much with each new visit. Every `every` steps, prompts with a rate below
    `low` or above `high` are marked and then skipped until the next estimate, except with the
    probability `explore` each time. A new prompt is not skipped. With `retire_at`, a prompt whose
    rate reaches it is never drawn again (no-positive-resampling).

Denominator
    The batch, at its usual size: the next prompt of the stream replaces a skipped one. If 20 times
    the batch's prompts do not fill it, skipped prompts fill it, retired ones last.

Settings
    difficulty.every, 0 (off) by default; difficulty.low 0.2, high 0.8, explore 0.1;
    difficulty.retire_at, 0 (off) by default, 0.9 in ScaleRL. The range from 20 to 80 % is a
    convention: no paper measured it, or how often to update the estimate.

Effect on metrics
    groups/zero_variance_rate falls. accuracy/train moves to the middle of the range, so use the
    held-out accuracy. prompts/skipped_rate and prompts/outside_rate show how much is skipped. Only
    the prompts drawn by `explore` reveal that the policy forgets.

Other implementations
    open-instruct's no_resampling_pass_rate retires prompts. Most others filter a data set once,
    with the initial model.

Do not combine with
    A reward that does not report which responses are correct.

Source
    None for the range; for retiring ScaleRL, arXiv 2510.13786.
"""

from __future__ import annotations

from pydantic import Field

from grpodoctor.trainer.config_section import ConfigSection


class DifficultyConfig(ConfigSection):
    """Prompts to skip because of their pass rate."""

    every: int = Field(0, ge=0)
    """Steps between two estimates of the prompts outside `low` and `high`; 0 is off."""
    low: float = Field(0.2, ge=0, le=1)
    """Prompts with a lower pass rate are too hard."""
    high: float = Field(0.8, ge=0, le=1)
    """Prompts with a higher pass rate are too easy."""
    explore: float = Field(0.1, ge=0, le=1)
    """Probability of drawing a prompt outside all the same, so that its rate can recover."""
    retire_at: float = Field(0.0, ge=0, le=1)
    """Pass rate at which a prompt is never drawn again (ScaleRL: 0.9); 0 retires none."""

    @property
    def filters(self) -> bool:
        """Whether any prompt can be skipped."""
        return self.every > 0 or self.retire_at > 0


_KEPT = 0.5
"""Factor on the counts of earlier visits."""


def counted(passed: float, tried: float, correct: int, responses: int) -> tuple[float, float]:
    """A prompt's counts after a visit: earlier counts are halved, the visit counts in full."""
    return passed * _KEPT + correct, tried * _KEPT + responses


def is_outside(rate: float, settings: DifficultyConfig) -> bool:
    """Whether a pass rate lies outside the range, whose limits are inside."""
    return not settings.low <= rate <= settings.high
