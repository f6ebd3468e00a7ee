"""Everything the formats draw from: report, vitals, courses, and where the responses are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from grpodoctor.report.examination import Examination
from grpodoctor.report.model import Report
from grpodoctor.report.tracks import Tracks
from grpodoctor.report.vitals import Vital, vital_signs


@dataclass(frozen=True, slots=True)
class Beside:
    """Another run, drawn into the same pictures for comparison."""

    label: str
    """What it is called in the legends."""
    tracks: Tracks
    sentence: str
    """What the comparison shows."""


@dataclass(frozen=True, slots=True)
class Dossier:
    """A report with what the human formats show beside it."""

    report: Report
    vitals: tuple[Vital, ...] = ()
    tracks: Tracks = field(default_factory=lambda: Tracks(()))
    directory: Path | None = None
    """Where the run's rollouts are."""
    beside: Beside | None = None

    def with_beside(self, beside: Beside) -> Dossier:
        """The same dossier, compared with another run."""
        return replace(self, beside=beside)


def dossier_of(examination: Examination, framework: str | None = None) -> Dossier:
    """The dossier of an examination, its remedies spelled for `framework` (or the run's own)."""
    return Dossier(
        report=examination.report(framework),
        vitals=tuple(vital_signs(examination.engine.chart)),
        tracks=examination.tracks,
        directory=examination.directory,
    )
