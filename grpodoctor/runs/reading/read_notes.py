"""What `check` and `watch` say of how a log was read: each decision with its reason, in a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpodoctor.errors import name_some
from grpodoctor.frameworks.detection import Guess
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.translation import Translator
from grpodoctor.runs.reading.repeated_values import RepeatedValues
from grpodoctor.runs.reading.step_assembly import StepAssembly
from grpodoctor.vocabulary.knobs import Setting

FEWEST_READINGS = 20
"""Readings of the reward for a verdict: a start of ten, and a present of ten."""

_FEWEST_ROWS = 10
"""Rows of nothing but zero that are no accident."""

_NEVER_ZERO = re.compile(
    r"(?:.*/)?(?:approx_kl|kl|kl_loss|kl_divergence|mean_kl|entropy|mean_entropy|policy_entropy|"
    r"entropy_loss)(?:/mean)?"
)
"""Keys of quantities that are exactly zero where nobody computes them. That between the old and the
new policy is not among them: with one update per batch it is zero by construction."""


def guess_notes(found: Sequence[Guess], formats: Sequence[str]) -> list[str]:
    """Which framework a log was taken for, and which others it could be of.

    Args:
        found: likeliest first.
        formats: of the files that it was found in.
    """
    best = found[0]
    notes = [f"read as {best.framework.title}{_from(formats)}: {best.why}"]
    notes += [
        f"it could be {each.framework.title}: {each.why}; say so with --format"
        for each in found[1:3]
        if each.signature and 2 * len(each.signature) >= len(best.signature)
    ]
    return notes


def named_framework_note(framework: Framework, formats: Sequence[str]) -> str:
    """That the user said what the log is."""
    return f"read as {framework.title}{_from(formats)}: --format says so"


def _from(formats: Sequence[str]) -> str:
    return f" from {' and '.join(sorted(set(formats)))}" if formats else ""


def settings_notes(translator: Translator, knobs: Mapping[str, Setting]) -> list[str]:
    """Which version and which settings the rows are read by, as far as they bear on anything."""
    notes = [f"version {translator.version_note}"] if translator.version_note else []
    framework = translator.framework
    if knobs and framework.knobs.reads_any_of(translator.given):
        known = ", ".join(f"{name} {knobs[name]}" for name in sorted(knobs))
        notes.append(f"settings that rules ask for: {known}")
    elif framework.knobs.mappings:
        notes.append(
            "no settings of the run were found: rules take defaults for them or stay silent; "
            "--run-config FILE gives them"
        )
    return notes


def rewind_note(assembly: StepAssembly) -> str:
    """That a log goes back: a job was resumed or started anew."""
    parts = []
    if assembly.rewind_count:
        to = ", ".join(map(str, assembly.rewinds[-3:]))
        parts.append(f"goes back {_times(assembly.rewind_count)}, to step {to}")
    if assembly.rewritten:
        parts.append(f"writes a step again {_times(assembly.rewritten)}")
    if not parts:
        return ""
    return f"the log {' and '.join(parts)}: a job that was restarted; the last writing counts"


def conflict_note(assembly: StepAssembly) -> str:
    """That two logs give one number differently."""
    if not assembly.conflict_count:
        return ""
    shown = [
        f"{each.metric} at step {each.step} ({each.kept:.4g} in {Path(each.logs[0]).name}, "
        f"{each.other:.4g} in {Path(each.logs[1]).name})"
        for each in assembly.conflicts[:2]
    ]
    return (
        f"two logs differ {_times(assembly.conflict_count)}: {'; '.join(shown)}; the first was "
        "kept; if they are of different runs, give one of them"
    )


def repeated_values_note(logs: Sequence[RepeatedValues]) -> str:
    """That a log repeats its values until the next measurement."""
    for each in logs:
        longest = max(each.periods.values())
        names = name_some(sorted(each.periods))
        return (
            f"the log repeats its values, up to {longest} rows each: a repetition counts as no "
            f"measurement ({names})"
        )
    return ""


def borrowed_keys_note(translator: Translator | None) -> str:
    """That keys were read by their plain names."""
    borrowed: Mapping[str, str] = translator.unused.generic if translator else {}
    if not borrowed or translator is None:
        return ""
    pairs = name_some([f"{key} as {metric}" for key, metric in sorted(borrowed.items())])
    return f"no keys of {translator.framework.title}, read by their plain names: {pairs}"


class ZeroColumns:
    """Finds quantities that are zero in every row, because nobody computes them."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}
        self._alive: set[str] = set()

    def take(self, values: Mapping[str, float]) -> None:
        """See a row, under the log's own keys."""
        for key, value in values.items():
            if key in self._alive:
                continue
            if value or not _NEVER_ZERO.fullmatch(key):
                self._alive.add(key)
            else:
                self._count[key] = self._count.get(key, 0) + 1

    def told(self) -> str:
        """What is zero throughout."""
        dead = sorted(
            key
            for key, count in self._count.items()
            if count >= _FEWEST_ROWS and key not in self._alive
        )
        if not dead:
            return ""
        why = "not computed, or nothing ever moved"
        return f"exactly zero in every row ({why}): {name_some(dead)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def short_run_note(readings: int, steps: int) -> str:
    """That there is too little to judge by: most rules compare with the run's own start."""
    if readings >= FEWEST_READINGS:
        return ""
    if not readings and steps >= FEWEST_READINGS:
        return (
            f"no reward was read in {steps} steps: a log of supervised training, or of names that "
            "--map must give; no finding is no health"
        )
    read = f"the reward was read at {readings} of {steps} steps"
    return (
        f"{read}: too short for a verdict, which takes {FEWEST_READINGS}; no finding is no health"
    )
