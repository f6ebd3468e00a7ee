"""What a log without a reward shows about the reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from grpodoctor.errors import name_some
from grpodoctor.frameworks.objective import has_only_losses

NAME_ITS_KEY = "name its key with --map KEY=reward/mean, or try --suggest-map"
_KEY_LETTERS = 60
"""Letters of a key: a complete one can be passed to `--map`."""


def missing_reward(
    metrics: Collection[str], unmapped: Sequence[str], components: Sequence[str]
) -> str:
    """What a log without a reward has instead, and what to pass.

    Args:
        metrics: the metrics of the run.
        unmapped: keys of the log that map to no metric.
        components: keys of the reward's components.
    """
    if components:
        shown = name_some(list(components), letters=_KEY_LETTERS)
        key = next((each for each in components if not _is_secondary(each)), components[0])
        return (
            f"only its components are logged ({shown}); to judge by one, pass "
            f"--map {key}=reward/mean"
        )
    if has_only_losses(metrics, unmapped):
        return (
            "only the loss and the optimizer are logged, as in supervised training; if this is "
            "reinforcement learning, name the key of its reward with --map KEY=reward/mean"
        )
    return NAME_ITS_KEY


def unread_keys(unmapped: Sequence[str]) -> str:
    """The keys of a log from which no step was read, and what to do; empty without keys."""
    if not unmapped:
        return ""
    shown = name_some(list(unmapped), letters=_KEY_LETTERS)
    return f"; the log has the keys {shown}; {NAME_ITS_KEY}"


def _is_secondary(key: str) -> bool:
    """Whether a component rewards the form of a response rather than its content."""
    return any(word in key.lower() for word in ("format", "length", "json", "xml", "penalty"))
