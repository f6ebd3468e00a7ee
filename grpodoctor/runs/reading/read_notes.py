"""Notes on how a log was read: each decision with its reason, one line each."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from grpodoctor.errors import name_some
from grpodoctor.frameworks.detection import Guess
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.objective import logged_metrics
from grpodoctor.frameworks.translation import Translator
from grpodoctor.runs.reading.rows.repeated_values import RepeatedValues
from grpodoctor.runs.reading.rows.run_columns import RUN_NUMBER
from grpodoctor.runs.reading.rows.step_assembly import MAX_LAG, StepAssembly
from grpodoctor.runs.reading.rows.step_column import StepColumn
from grpodoctor.vocabulary.knobs import Setting

MIN_READINGS = 20
"""Readings of the reward that a verdict needs: ten for the baseline and ten to compare with it."""

_PAIR_LETTERS = 90
"""Letters of a key with its metric in a note."""
_MIN_ROWS = 10
"""Rows with nothing but zero that rule out chance."""

_NEVER_ZERO = re.compile(
    r"(?:.*/)?(?:approx_kl|kl|kl_loss|kl_divergence|mean_kl|entropy|mean_entropy|policy_entropy|"
    r"entropy_loss)(?:/mean)?"
)
"""Keys of quantities that are exactly zero only if they are not computed. The KL between the old
and the new policy is not one of them: with one update per batch it is zero by construction."""


def guess_notes(candidates: Sequence[Guess], formats: Sequence[str]) -> list[str]:
    """Notes on the detected framework and on other possible ones.

    Args:
        candidates: the most likely framework first.
        formats: file formats of the logs.
    """
    best = candidates[0]
    notes = [f"detected framework {best.framework.title}{_from(formats)}: {best.why}"]
    notes += [
        f"could also be {other.framework.title} ({other.why}); choose it with --format"
        for other in candidates[1:3]
        if other.signature and 2 * len(other.signature) >= len(best.signature)
    ]
    return notes


def named_framework_note(framework: Framework, formats: Sequence[str]) -> str:
    """Note that the user named the framework."""
    return f"framework {framework.title}{_from(formats)}: set by --format"


def objective_notes(
    framework: Framework, keys: Collection[str], settings: Mapping[str, Setting]
) -> list[str]:
    """Note that a teacher's log-probabilities take the place of the reward."""
    known = {**framework.defaults, **settings}
    if "kl/teacher" not in logged_metrics(framework, keys, known):
        return []
    return [
        "the log has a divergence to a teacher: in on-policy distillation a task reward of 0 is "
        "normal"
    ]


def supervised_rows_note(count: int) -> str:
    """Note that rows of a supervised stage are left out; empty if there are none."""
    if not count:
        return ""
    rows = "1 row of" if count == 1 else f"{count:,} rows of"
    verb = "is" if count == 1 else "are"
    return f"{rows} supervised fine-tuning in the same log {verb} not used"


def _from(formats: Sequence[str]) -> str:
    return f" ({' and '.join(sorted(set(formats)))} log)" if formats else ""


def settings_notes(translator: Translator, knobs: Mapping[str, Setting]) -> list[str]:
    """Notes on the framework's version and on the settings that were found."""
    notes = [f"version {translator.version_note}"] if translator.version_note else []
    framework = translator.framework
    if knobs and framework.knobs.reads_any_of(translator.given):
        known = ", ".join(f"{name} {knobs[name]}" for name in sorted(knobs))
        notes.append(f"settings used by rules: {known}")
    elif framework.knobs.mappings:
        notes.append(
            "the run's config was not found, so rules assume defaults or are skipped; pass it with "
            "--run-config FILE"
        )
    return notes


def rewind_note(assembly: StepAssembly, chosen: int | None = None) -> str:
    """Note that a log jumps back: a job was resumed or restarted, or a second run follows.

    Args:
        assembly: the steps.
        chosen: the number of the run that the user chose.
    """
    sentences = [*_earlier_runs(assembly, chosen), *_restarts(assembly), *_late_rows(assembly)]
    return "; ".join(sentences)


_ONLY = "only "
_OUTCOMES = ("reward/mean", "accuracy/train")


def is_important(note: str) -> bool:
    """Whether a note belongs next to the verdict.

    The log has several runs, or it repeats its measurements of the outcome.
    """
    return names_earlier_runs(note) or note.startswith(_ONLY)


_ONE_AFTER_ANOTHER = "runs one after the other"


def names_earlier_runs(note: str) -> bool:
    """Whether a note reports that a log has several runs and one is examined."""
    return _ONE_AFTER_ANOTHER in note or RUN_NUMBER in note


def _earlier_runs(assembly: StepAssembly, chosen: int | None) -> list[str]:
    runs = assembly.earlier_runs
    count = len(runs) + 1
    if chosen is not None and chosen > count:
        return [f"there is no run {chosen}: the log contains {count}; pass another {RUN_NUMBER}"]
    if not runs:
        return []
    if chosen is not None:
        return [f"the log contains {count} {_ONE_AFTER_ANOTHER}; run {chosen} is examined"]
    return [
        f"the log contains {count} {_ONE_AFTER_ANOTHER}, and this report is about the last one; "
        f"choose another with --where {RUN_NUMBER}=1"
    ]


def _late_rows(assembly: StepAssembly) -> list[str]:
    if not assembly.late_rows:
        return []
    rows = "1 row is" if assembly.late_rows == 1 else f"{assembly.late_rows:,} rows are"
    return [
        f"{rows} more than {MAX_LAG} steps behind the others and not used; their steps may count "
        "something else"
    ]


def order_note(count: int) -> str:
    """Note that rows were written out of the order of their steps; empty if none was."""
    if not count:
        return ""
    rows = "1 row is" if count == 1 else f"{count:,} rows are"
    return f"{rows} out of order; they are read in the order of their steps"


def _restarts(assembly: StepAssembly) -> list[str]:
    parts = []
    if assembly.rewind_count:
        steps = ", ".join(map(str, assembly.rewinds[-3:]))
        parts.append(f"jumps back {_times(assembly.rewind_count)} (to step {steps})")
    if assembly.rewritten:
        rows = (
            "1 row that repeats"
            if assembly.rewritten == 1
            else (f"{assembly.rewritten:,} rows that repeat")
        )
        parts.append(f"has {rows} a step")
    if not parts:
        return []
    return [
        f"the log {' and '.join(parts)}: the job was restarted, and the last value of each step "
        "is used"
    ]


def conflict_note(assembly: StepAssembly) -> str:
    """Note that two logs have different values of one metric."""
    if not assembly.conflict_count:
        return ""
    shown = [
        f"{conflict.metric} at step {conflict.step} ({conflict.kept:.4g} in "
        f"{Path(conflict.logs[0]).name}, {conflict.other:.4g} in {Path(conflict.logs[1]).name})"
        for conflict in assembly.conflicts[:2]
    ]
    return (
        f"two logs disagree {_times(assembly.conflict_count)}: {'; '.join(shown)}; the first log's "
        "value is used; if the logs belong to different runs, check only one of them"
    )


def repeated_values_note(logs: Sequence[RepeatedValues]) -> str:
    """Note that a log repeats its values until the next measurement."""
    if not logs:
        return ""
    log = logs[0]
    longest, names = max(log.periods.values()), name_some(sorted(log.periods))
    if log.periods.keys().isdisjoint(_OUTCOMES):
        note = (
            f"the log repeats some values for up to {longest} rows; repeats do not count ({names})"
        )
    else:
        note = (
            f"{_ONLY}{log.new_rows:,} of the {log.rows:,} rows are new measurements: the log "
            f"repeats each value for up to {longest} rows, and repeats do not count ({names})"
        )
    stuck = sorted(log.stuck)
    if not stuck:
        return note
    return f"{note}, except where a value stops changing ({name_some(stuck)})"


def step_column_note(columns: Iterable[StepColumn]) -> str:
    """Note that the step is not read from the column that its name suggests."""
    column = next((column for column in columns if column.chosen is not None), None)
    if column is None:
        return ""
    step = f"the step is read from {column.chosen}" if column.chosen else "the rows are counted"
    if column.missing:
        return f"{step}, because some rows have no {column.missing}"
    return f"{step}, because {column.preferred} does not rise from row to row"


def borrowed_keys_note(translator: Translator | None) -> str:
    """Note that keys were read by their common names, or by those of their last parts."""
    if translator is None:
        return ""
    title, unused = translator.framework.title, translator.unused
    sentences = [
        f"{what}: {name_some(_pairs(keys), letters=_PAIR_LETTERS)}"
        for what, keys in (
            (f"keys that {title} does not log, read by their common names", unused.generic),
            ("keys with an unknown prefix, read by their last part", unused.by_last_part),
        )
        if keys
    ]
    return "; ".join(sentences)


def _pairs(metrics: Mapping[str, str]) -> list[str]:
    return [f"{key} as {metric}" for key, metric in sorted(metrics.items())]


class ZeroColumns:
    """Finds quantities that are zero in every row because they are not computed."""

    def __init__(self) -> None:
        self._zero_rows: dict[str, int] = {}
        self._not_zero: set[str] = set()

    def add(self, values: Mapping[str, float]) -> None:
        """Add a row, under the log's own keys."""
        if values.keys() <= self._not_zero:
            return
        for key, value in values.items():
            if key in self._not_zero:
                continue
            if value or not _NEVER_ZERO.fullmatch(key):
                self._not_zero.add(key)
            else:
                self._zero_rows[key] = self._zero_rows.get(key, 0) + 1

    def note(self) -> str:
        """Note the keys that are zero in every row; empty if there are none."""
        keys = sorted(
            key
            for key, rows in self._zero_rows.items()
            if rows >= _MIN_ROWS and key not in self._not_zero
        )
        if not keys:
            return ""
        return f"exactly zero in every row (not computed, or constant): {name_some(keys)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def short_run_note(readings: int, steps: int, *, has_groups: bool = False) -> str:
    """Note that the run is too short: most rules compare with the run's own start.

    Args:
        readings: of the reward, or of the accuracy.
        steps: that were read.
        has_groups: whether the log has shares of groups, which show that it is not supervised.
    """
    if readings >= MIN_READINGS:
        return ""
    if not readings and steps >= MIN_READINGS:
        why = (
            "the shares of groups are judged without it; name its key with --map KEY=reward/mean"
            if has_groups
            else "this is a log of supervised training, or its reward key needs --map "
            "KEY=reward/mean"
        )
        return f"no reward was found in {steps} steps: {why}; no findings does not mean healthy"
    return (
        f"the reward was found at {readings} of {steps} steps: the run is too short for a verdict "
        f"(at least {MIN_READINGS} are needed); no findings does not mean healthy"
    )
