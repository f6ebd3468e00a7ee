"""Everything the formats draw from: report, vitals, courses, and where the responses are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from grpodoctor.monitor.downsampled_series import Tracks
from grpodoctor.monitor.examination import Examination
from grpodoctor.monitor.report import Report
from grpodoctor.monitor.sample_responses import Recorded, Rollouts
from grpodoctor.monitor.vitals import Vital, vital_signs


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
    rollouts: Rollouts | None = None
    """The run's responses, to be read when they are shown."""
    beside: Beside | None = None

    def with_beside(self, beside: Beside) -> Dossier:
        """The same dossier, compared with another run."""
        return replace(self, beside=beside)


def dossier_of(
    examination: Examination, framework: str | None = None, rollouts: Rollouts | None = None
) -> Dossier:
    """The dossier of an examination.

    Args:
        examination: of a run.
        framework: whose words remedies are spelled in; the run's own if None.
        rollouts: the run's responses; those of our own recorder if None.
    """
    return Dossier(
        report=examination.report(framework),
        vitals=tuple(vital_signs(examination.engine.chart)),
        tracks=examination.tracks,
        rollouts=Recorded(examination.directory) if rollouts is None else rollouts,
    )
