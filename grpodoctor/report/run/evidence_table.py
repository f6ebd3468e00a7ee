"""The table of the readings under a finding."""

from __future__ import annotations

from grpodoctor.monitor.vitals import format_reading, in_tokens
from grpodoctor.report.view import Block, Column, Inline, Paragraph, Table, code
from grpodoctor.rules.base import Evidence, Finding
from grpodoctor.rules.catalogue import all_rules
from grpodoctor.support.safe_text import plain

_MAX_ID_LETTERS = 80
_NO_EVIDENCE = {
    True: "This finding rests on the settings of the run, not on readings.",
    False: "This finding has no evidence: its rule named no readings.",
}
"""The sentence in place of the evidence, by whether the rule reads the config."""


def evidence_blocks(
    finding: Finding, evidence: tuple[Evidence, ...], last_step: int | None, *, is_full: bool
) -> tuple[Block, ...]:
    """The table of the evidence; in full cards, why there is none."""
    if evidence:
        return (_evidence(evidence, last_step, with_cause=is_full),)
    if not is_full or finding.evidence:
        return ()
    reads_config = any(each.reads_config for each in all_rules() if each.code == finding.code)
    return (Paragraph(_NO_EVIDENCE[reads_config], "faint"),)


def _evidence(evidence: tuple[Evidence, ...], last_step: int | None, *, with_cause: bool) -> Table:
    """The evidence; its heading has the step if all readings are from the same one.

    Args:
        evidence: the readings.
        last_step: the last step of the run, which the heading names if the readings are older.
        with_cause: whether to name the sequences behind the readings.
    """
    steps = {each.step for each in evidence}
    is_one, is_now = len(steps) == 1, steps == {last_step}
    at = "" if is_now or last_step is None else f" of {last_step}"
    title = f"evidence at step {evidence[0].step}{at}" if is_one else "evidence"
    has_cause = with_cause and any(each.where for each in evidence)
    columns = (
        Column(title, unbroken=True),
        *(() if is_one else (Column("step", numeric=True),)),
        Column("reading", numeric=True),
        Column("recent median", numeric=True),
        Column("baseline", numeric=True),
        *((Column("sequence"),) if has_cause else ()),
    )
    rows: list[tuple[Inline, ...]] = [
        (
            (code(each.metric), " (tokens)") if in_tokens(each.metric) else code(each.metric),
            *(() if is_one else (str(each.step),)),
            *(
                format_reading(each.metric, number) if number is not None else ""
                for number in (each.value, each.median, each.baseline)
            ),
            *([_sequence(each.where)] if has_cause else []),
        )
        for each in evidence
    ]
    return Table(columns, tuple(rows))


def _sequence(where: str | None) -> Inline:
    return code(plain(where, limit=_MAX_ID_LETTERS)) if where else ""
