"""DAT130."""

from __future__ import annotations

from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult
from grpodoctor.preflight.texts.exchanged_columns import exchanged_columns

_MAX_ROWS = 5000
_SHOWN = 4


class ExchangedColumns(Check):
    """Two columns have changed places in some rows.

    What it sees:
        Pairs of columns with different forms in nearly all rows: a number, a letter, a question, a
        short or a long text. Reports three or more rows in which the first column has the form of
        the second and the second that of the first. Also chosen responses with a lower score than
        the rejected ones, by as much as the others have a higher one, if the data has both scores.

    Why it matters:
        The prompt of such a row is an answer, and its answer is a prompt. Exchanged pairs teach the
        worse response.

    What to do:
        Exchange the columns of these rows, or correct the code that merges the sources.

    When it is wrong:
        Two columns may both hold short and long texts by their nature. Scores of a judge other
        than the annotator may be lower for some chosen responses.

    References:
        None.
    """

    code: ClassVar[str] = "DAT130"
    name: ClassVar[str] = "exchanged-columns"
    summary: ClassVar[str] = "Two columns have changed places in some rows."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare the forms of the columns."""
        rows = list(spread_rows(context.rows, _MAX_ROWS))
        found = exchanged_columns([row.columns for row in rows])
        if found is None:
            return ()
        one, other = found.columns
        return (
            CheckFinding(
                "warning",
                f"{one!r:.60} and {other!r:.60} are exchanged in {len(found.rows)} of {len(rows)} "
                f"rows: {found.why}.",
                ("Exchange the two columns of these rows.",),
                tuple(rows[at].location for at in found.rows[:_SHOWN]),
                {"share": len(found.rows) / len(rows)},
            ),
        )
