"""Probe results attached to a run: `RUN/probe/*.json`.

A probe compares the two engines of a run, not one of its steps. Its readings therefore apply to
every step, but only for metrics that the run does not log itself: the run's own readings come from
the tokens that it trained on. The latest probe is used.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from grpodoctor.errors import RunError
from grpodoctor.runs.records import StepRecord
from grpodoctor.support.files import atomic_files
from grpodoctor.support.files.growing_files import Damage
from grpodoctor.support.files.regular_files import read_regular
from grpodoctor.support.safe_text import clean_text
from grpodoctor.support.validation_reasons import first_reason
from grpodoctor.vocabulary.metric_qualifiers import PROBED
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import Reading

if TYPE_CHECKING:
    from grpodoctor.monitor.probe_file import AttachedProbe

FOLDER = "probe"
_FAMILIES = ("mismatch/", "experts/")
COMPARED = ("mismatch/prob_diff_mean", "experts/churn_engine")
"""Metrics for which the run and the probe of its engines are compared."""
_MOST_FILES = 1000
_MOST_BYTES = 4 << 20
_REFRESH_SECONDS = 1.0
"""Seconds between two checks for a new probe."""


def folder_of(run: Path) -> Path:
    """The folder of a run's probes: in the run directory, or next to a log file."""
    return (run if run.is_dir() else run.parent) / FOLDER


def check_run(run: Path) -> None:
    """Check that a run exists.

    Raises:
        RunError: if it does not exist.
    """
    if not run.exists():
        raise RunError("no such file or directory", where=str(run), remedy="check --attach")


def attach(run: Path, probe: AttachedProbe) -> Path:
    """Attach a probe to a run; returns the path of the file.

    Raises:
        RunError: if the run does not exist, or the file cannot be written.
    """
    check_run(run)
    stamp = "".join(character for character in probe.created if character.isalnum())[:20]
    path = folder_of(run) / f"{stamp or 'probe'}.json"
    try:
        path.parent.mkdir(exist_ok=True)
        content = orjson.dumps(_writable(probe), option=orjson.OPT_INDENT_2)
        atomic_files.write_bytes(path, content)
    except OSError as error:
        raise RunError(f"cannot attach the probe: {error.strerror}", where=str(path)) from None
    return path


def _writable(probe: AttachedProbe) -> object:
    return orjson.loads(clean_text(probe.model_dump_json()))


@dataclass(slots=True)
class AttachedProbes:
    """The probes attached to a run, refreshed when new ones are added.

    Args:
        run: the run directory or log file.
    """

    run: Path
    probe: AttachedProbe | None = None
    """The latest probe; None if there is none."""
    damage: list[Damage] = field(default_factory=list)
    """Files that could not be read as a probe."""
    _seen: tuple[int, int] = (0, 0)
    _refreshed: float = -math.inf

    def add_readings(self, record: StepRecord) -> StepRecord:
        """The step, with the probe's readings for the metrics that the run does not log.

        A metric that the run logs is never partly filled in: the worst response of a probe has no
        relation to the run's own mean. Metrics that both have are kept side by side, the probe's
        under the qualifier `probe`.
        """
        self.refresh()
        if self.probe is None:
            return record
        logged = {metric.name for name in record.values if (metric := metric_of(name)) is not None}
        added: dict[str, Reading] = {}
        for name, value in self.probe.readings.items():
            metric = metric_of(name)
            if metric is not None and metric.name not in logged:
                added[name] = value
            if name in COMPARED:
                added[f"{name}/{PROBED}"] = value
        return replace(record, values={**added, **record.values})

    def refresh(self) -> None:
        """Check for new probes, at most once a second."""
        now = time.monotonic()
        if now - self._refreshed < _REFRESH_SECONDS:
            return
        self._refreshed = now
        try:
            folder = folder_of(self.run)
            status = folder.stat()
        except OSError:
            return
        if (status.st_mtime_ns, status.st_ino) != self._seen:
            self._seen = status.st_mtime_ns, status.st_ino
            self._read(folder)

    def _read(self, folder: Path) -> None:
        self.damage = []
        probes = [self._probe(path) for path in sorted(folder.glob("*.json"))[-_MOST_FILES:]]
        known = [probe for probe in probes if probe is not None]
        self.probe = max(known, key=lambda probe: probe.created, default=None)

    def _probe(self, path: Path) -> AttachedProbe | None:
        from pydantic import ValidationError  # only for runs with a probe

        from grpodoctor.monitor.probe_file import AttachedProbe

        try:
            content = read_regular(path, _MOST_BYTES)
            probe = AttachedProbe.model_validate(orjson.loads(content))
        except (OSError, ValueError) as error:
            in_one_line = " ".join(str(error).split())[:200]
            reason = first_reason(error) if isinstance(error, ValidationError) else in_one_line
            self.damage.append(Damage(f"{FOLDER}/{path.name}", 0, reason))
            return None
        readings = {
            name: value
            for name, value in probe.readings.items()
            if name.startswith(_FAMILIES) and metric_of(name) is not None
        }
        return probe.model_copy(update={"readings": readings})
