"""What a probe has measured of a run's engines, kept beside the run: `RUN/probe/*.json`.

A probe compares the two engines of a run's setup, not one of its steps. So what it has measured
stands in for every step, but only for what the run itself does not log: a run's own readings are
of the very tokens that it trained on. The latest probe is the one that counts.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import orjson
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError

from grpodoctor.errors import RunError
from grpodoctor.runs.records import StepRecord
from grpodoctor.support import atomic_files
from grpodoctor.support.damage import Damage
from grpodoctor.support.safe_text import clean_text
from grpodoctor.vocabulary.metrics import PROBED, metric_of
from grpodoctor.vocabulary.values import Reading, reading_from_json, reading_to_json

FOLDER = "probe"
_FAMILIES = ("mismatch/", "experts/")
COMPARED = ("mismatch/prob_diff_mean", "experts/churn_engine")
"""Figures by which a run is compared with the probe of its engines."""
_MOST_FILES = 1000
_MOST_BYTES = 4 << 20
_LOOK_SECONDS = 1.0
"""Between two looks for a new probe."""
_Text = Annotated[str, Field(max_length=2000)]


def _reading(value: object) -> Reading:
    return value if isinstance(value, Reading) else reading_from_json(value)


class AttachedProbe(BaseModel):
    """One pair of engines, as a probe has measured it."""

    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True)

    schema_version: int = 1
    """Version of the file's format."""
    created: Annotated[str, Field(max_length=40)] = ""
    """When the probe was made, ISO 8601, UTC; the latest one counts."""
    sampler: _Text = ""
    """The engine that samples, as the probe calls it."""
    learner: _Text = ""
    """The engine that learns."""
    verdict: _Text = ""
    """Whether they agree, and if not, why."""
    causes: tuple[_Text, ...] = ()
    """Ids of the causes that were found, most of the gap first."""
    readings: dict[
        str, Annotated[Reading, PlainValidator(_reading), PlainSerializer(reading_to_json)]
    ] = Field(default_factory=dict)
    """Readings by canonical metric name."""

    @property
    def note(self) -> str:
        """One sentence for whoever reads a report of the run."""
        return (
            f"a probe of {self.created[:10] or 'unknown date'} is attached ({self.sampler} against "
            f"{self.learner}): {self.verdict}"
        )


def folder_of(run: Path) -> Path:
    """Where probes are attached to a run: in its directory, or beside its log file."""
    return (run if run.is_dir() else run.parent) / FOLDER


def check_run(run: Path) -> None:
    """Look whether there is a run that something could be attached to.

    Raises:
        RunError: if there is none.
    """
    if not run.exists():
        raise RunError("no such file or directory", where=str(run), remedy="check --attach")


def attach(run: Path, probe: AttachedProbe) -> Path:
    """Put a probe beside a run; returns the file.

    Raises:
        RunError: if there is no run, or it cannot be written to.
    """
    check_run(run)
    stamp = "".join(each for each in probe.created if each.isalnum())[:20]
    path = folder_of(run) / f"{stamp or 'probe'}.json"
    try:
        path.parent.mkdir(exist_ok=True)
        content = orjson.dumps(_writable(probe), option=orjson.OPT_INDENT_2)
        atomic_files.write_bytes(path, content)
    except OSError as error:
        raise RunError(f"the probe cannot be attached: {error.strerror}", where=str(path)) from None
    return path


def _writable(probe: AttachedProbe) -> object:
    return orjson.loads(clean_text(probe.model_dump_json()))


@dataclass(slots=True)
class Attached:
    """The probes of a run, looked for again and again.

    Args:
        run: the run's directory or log.
    """

    run: Path
    probe: AttachedProbe | None = None
    """The latest one; None if there is none."""
    damage: list[Damage] = field(default_factory=list)
    """Files that are no probes."""
    _seen: tuple[int, int] = (0, 0)
    _looked: float = -math.inf

    def filled(self, record: StepRecord) -> StepRecord:
        """The step with the probe's readings where the run has none of its own.

        What the run reads itself is never completed by half: the worst response of a probe says
        nothing beside the run's own mean. The figures that both have stand side by side, the
        probe's under the qualifier `probe`.
        """
        self.look()
        if self.probe is None:
            return record
        own = {metric.name for name in record.values if (metric := metric_of(name)) is not None}
        beside: dict[str, Reading] = {}
        for name, value in self.probe.readings.items():
            metric = metric_of(name)
            if metric is not None and metric.name not in own:
                beside[name] = value
            if name in COMPARED:
                beside[f"{name}/{PROBED}"] = value
        return replace(record, values={**beside, **record.values})

    def look(self) -> None:
        """See whether there is a new probe; at most once a second."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        folder = folder_of(self.run)
        try:
            found = folder.stat()
        except OSError:
            return
        if (found.st_mtime_ns, found.st_ino) != self._seen:
            self._seen = found.st_mtime_ns, found.st_ino
            self._read(folder)

    def _read(self, folder: Path) -> None:
        self.damage = []
        probes = [self._probe(path) for path in sorted(folder.glob("*.json"))[-_MOST_FILES:]]
        known = [probe for probe in probes if probe is not None]
        self.probe = max(known, key=lambda probe: probe.created, default=None)

    def _probe(self, path: Path) -> AttachedProbe | None:
        try:
            with path.open("rb") as file:
                content = file.read(_MOST_BYTES)
            probe = AttachedProbe.model_validate(orjson.loads(content))
        except (OSError, ValueError, ValidationError) as error:
            why = " ".join(str(error).split())[:200]
            self.damage.append(Damage(f"{FOLDER}/{path.name}", 0, why))
            return None
        readings = {
            name: value
            for name, value in probe.readings.items()
            if name.startswith(_FAMILIES) and metric_of(name) is not None
        }
        return probe.model_copy(update={"readings": readings})
