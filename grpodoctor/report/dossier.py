"""Everything the formats draw from: the report, the vitals, the courses and some responses."""

from __future__ import annotations

from dataclasses import dataclass, field

from grpodoctor.report.examination import Examination
from grpodoctor.report.model import Report
from grpodoctor.report.samples import Sample, samples_of
from grpodoctor.report.tracks import Tracks
from grpodoctor.report.vitals import Vital, vital_signs


@dataclass(frozen=True, slots=True)
class Dossier:
    """A report with what the human formats show beside it."""

    report: Report
    vitals: tuple[Vital, ...] = ()
    tracks: Tracks = field(default_factory=lambda: Tracks(()))
    samples: tuple[Sample, ...] = ()


def dossier_of(examination: Examination, framework: str | None = None) -> Dossier:
    """The dossier of an examination, its remedies spelled for `framework` (or the run's own).

    Raises:
        ConfigError: if nobody knows the framework.
    """
    report = examination.report(framework)
    return Dossier(
        report=report,
        vitals=tuple(vital_signs(examination.engine.chart)),
        tracks=examination.tracks,
        samples=samples_of(report, examination.directory),
    )
