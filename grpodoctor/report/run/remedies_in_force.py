"""The remedies of a finding that the run has already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpodoctor.monitor.advice import Advice
from grpodoctor.report.view import Paragraph


def remedies_in_force(
    remedies: Sequence[str], advice: Mapping[str, Advice], shown: Sequence[Advice] = ()
) -> tuple[Paragraph, ...]:
    """One line with the remedies that are in force and their settings; none if there are none.

    Args:
        remedies: ids of the finding's remedies.
        advice: remedies by id, resolved for the run.
        shown: those that are shown in full.
    """
    own = [advice[each] for each in remedies if each in advice and advice[each] not in shown]
    done = [f"{each.id} ({_lines(each)})" for each in own if each.is_in_force]
    return (Paragraph(f"already set: {', '.join(done)}", "faint"),) if done else ()


def _lines(advice: Advice) -> str:
    return ", ".join(line.line or line.note for line in advice.already_set)
