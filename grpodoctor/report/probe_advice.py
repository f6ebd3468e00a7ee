"""What to set for a gap, in the words of the user's framework."""

from __future__ import annotations

from dataclasses import dataclass

from grpodoctor.probe.results import Cell, Comparison
from grpodoctor.remedies.spelling import framework_of, spell
from grpodoctor.vocabulary.knobs import Setting

_CAPS = (2.0, 8.0)
"""Of truncated importance sampling: those that Yao et al. 2025 use."""
_FEW = 1e-2
"""Share of tokens beyond a cap up to which it is an exception, and not a second objective."""
_FLIPS = "router-flips"
_MENDED_AT_THE_SOURCE = frozenset(
    {"prompt-ids", "off-by-one", "eos-handling", "stale-weights", "partial-sync", "model-config"}
)
"""Causes that no weight makes up for: the two sides do not speak of the same policy or tokens."""


@dataclass(frozen=True, slots=True)
class Advised:
    """One thing to set."""

    title: str
    lines: tuple[str, ...]
    """Settings as one would type them, or what the framework has instead."""


def advised(cell: Cell, framework: str) -> tuple[Advised, ...]:
    """What to set in a framework while the cause of a gap is being mended, best first.

    Args:
        cell: a pair that was measured.
        framework: of the run that is going to use these engines.

    Raises:
        ConfigError: if there is no such framework.
    """
    named = framework_of(framework)
    causes = {cause.cause for cause in cell.causes}
    if cell.comparison is None or not causes:
        return ()
    found = []
    if _FLIPS in causes:
        found.append(_setting("replay the sampler's routing (R3)", {"routing_replay": "R3"}, named))
        found.append(_setting("or GSPO, which flips disturb least", {"loss": "gspo"}, named))
    if not causes & _MENDED_AT_THE_SOURCE:
        cap = _cap(cell.comparison)
        knobs: dict[str, Setting] = {"correction": "tis_token", "correction_cap": cap}
        title = f"correct for what is left by importance weights, capped at {cap:g} for this gap"
        found.append(_setting(title, knobs, named))
    return tuple(found)


def _cap(comparison: Comparison) -> float:
    """The smallest cap that is an exception for this gap; the largest if none is."""
    for cap in _CAPS:
        if comparison.effects.get(f"tis_token/{cap:g}", 0.0) <= _FEW:
            return cap
    return _CAPS[-1]


def _setting(title: str, knobs: dict[str, Setting], framework: str) -> Advised:
    return Advised(title, tuple(each.line for each in spell(knobs, framework, {})))
