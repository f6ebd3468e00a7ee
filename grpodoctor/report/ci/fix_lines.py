"""What to paste or type first, as lines of the message that has the verdict."""

from __future__ import annotations

from grpodoctor.monitor.report import Report
from grpodoctor.report.run.finding_view import first_steps
from grpodoctor.support.safe_text import plain


def fix_lines(report: Report) -> list[str]:
    """The settings or the command of the verdict's first remedy; empty if there is none."""
    return [plain(each.commented) for each in first_steps(report)]
