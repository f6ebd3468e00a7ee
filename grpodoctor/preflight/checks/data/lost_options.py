"""Findings about prompts without options, and answers that their solution lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grpodoctor.preflight.answers.kinds.unsolved_answers import unsolved
from grpodoctor.preflight.answers.multiple_choice import without_options
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.support.numbers import part_of

_SHOWN = 4


def lost_options(rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Prompts that ask for a letter and have no options."""
    if lost := without_options(rows):
        yield CheckFinding(
            "warning",
            f"{part_of(len(lost), len(rows), 'prompts', 'ask')} "
            "for the letter of an option without options.",
            ("Write the options into the prompts; check that no line was lost.",),
            tuple(f"{row.location}: …{row.prompt[-80:]!r}" for row in lost[:_SHOWN]),
            {"share": len(lost) / len(rows)},
        )


def unsolved_findings(rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Numbers that most worked solutions do not contain."""
    name, found, compared = unsolved(rows)
    if found:
        yield CheckFinding(
            "warning",
            f"{part_of(len(found), compared, 'answers', 'do')} "
            "not occur in the solution of the row, "
            f"the column {name!r}.",
            ("Check that this is the column of the answers, and that rows were joined by an id.",),
            tuple(f"{row.location}: answer {row.answer!r:.60}" for row in found[:_SHOWN]),
            {"share": len(found) / compared},
        )
