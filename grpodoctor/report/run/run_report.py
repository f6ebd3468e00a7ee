"""A run's report as an object for Python programs and notebooks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from typing import Any, Self

from grpodoctor.monitor.diagnosis.diagnose import Diagnosis
from grpodoctor.monitor.diagnosis.verdict import Verdict
from grpodoctor.monitor.report import Report, RunFacts
from grpodoctor.monitor.report_data import ReportData
from grpodoctor.report.run.view import view_of
from grpodoctor.report.view import brief_blocks
from grpodoctor.rules.base import Finding
from grpodoctor.support.safe_text import plain

_HEIGHT = 420
"""Pixels of the frame in a notebook; the reader can enlarge it."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """The report of a run. A notebook shows it as a page, `print` as text.

    Args:
        data: the report with its vitals, charts and responses.
    """

    data: ReportData

    @classmethod
    def without_run(cls, path: str, framework: str, reason: str) -> Self:
        """The report of a run that cannot be read.

        Args:
            path: where the run was expected.
            framework: framework that trains.
            reason: why there is nothing, without a full stop.
        """
        diagnosis = Diagnosis(verdict=Verdict("not examined", f"{plain(reason)}."))
        return cls(ReportData(Report(RunFacts(path, framework), diagnosis)))

    @property
    def verdict(self) -> Verdict:
        """The answer: healthy, flat, solved, sick, too short or not examined."""
        return self.data.report.diagnosis.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, the most important problem first, each cause before its symptoms."""
        return self.data.report.findings

    def to_json(self) -> dict[str, Any]:
        """The object that `grpodoctor check --json` prints."""
        return self.data.report.to_json()

    def to_markdown(self) -> str:
        """The report in Markdown."""
        from grpodoctor.report import markdown

        return markdown.render(view_of(self.data))

    def to_html(self) -> str:
        """The full report with charts and responses, as one HTML page."""
        from grpodoctor.report import html

        return html.render(view_of(self.data))

    def __str__(self) -> str:
        from grpodoctor.report import text

        return text.render(view_of(self.data))

    def _repr_html_(self) -> str:
        """The report without charts, in a frame, so that its style stays out of the notebook."""
        from grpodoctor.report import html

        view = view_of(self.data)
        page = html.render(replace(view, blocks=tuple(brief_blocks(view.blocks))))
        style = f"width:100%;height:{_HEIGHT}px;border:1px solid #8884;resize:vertical"
        return f'<iframe sandbox srcdoc="{escape(page)}" style="{style}"></iframe>'
