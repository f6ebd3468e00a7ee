"""DAT127."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

from grpodoctor.preflight.answers.multiple_choice import option_letter
from grpodoctor.preflight.answers.reference_answers import REQUIRES_ANSWERS
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.columns import flat_columns
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult
from grpodoctor.preflight.texts.inverted_labels import inverted_groups
from grpodoctor.preflight.texts.label_noise import label_noise
from grpodoctor.preflight.texts.normal_form import number_of

_MAX_ROWS = 3000
_SHOWN = 5
_MAX_LABELS = 10


class NoisyLabels(Check):
    """Labels contradict those of similar prompts.

    What it sees:
        Data sets whose answers are at most ten words or phrases. A classifier of words learns the
        labels of four fifths of the rows and predicts the others. If it is right about most of
        them, but its errors are as frequent where it is sure as where it is not, the labels of
        those rows are wrong: errors about hard prompts become rare where the classifier is sure.
        Also two labels that are exchanged in the rows of one source.

    Why it matters:
        A wrong label rewards the wrong answer and punishes the right one. With a fifth of wrong
        labels no policy exceeds four fifths of the reward, and the advantage points the wrong way
        in those groups.

    What to do:
        Read the listed rows, and correct or remove them.

    When it is wrong:
        Irony and other texts that mean the opposite of their words look like wrong labels.

    References:
        Northcutt, Jiang and Chuang 2021, Confident Learning.
    """

    code: ClassVar[str] = "DAT127"
    name: ClassVar[str] = "noisy-labels"
    summary: ClassVar[str] = "Labels contradict those of similar prompts."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Predict each label from the other rows."""
        rows = [row for row in spread_rows(context.rows, _MAX_ROWS) if row.answer]
        if not rows:
            return REQUIRES_ANSWERS
        return (*_contradictions(rows), *_inverted(rows))


def _inverted(rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    """Sources whose two labels are exchanged."""
    labels = [final_answer(row.answer or "").strip().casefold() for row in rows]
    if len(set(labels)) != 2 or any(option_letter(label) for label in set(labels)):
        return
    prompts = ["\n".join(row.texts()) for row in rows]
    for name in flat_columns(rows[0].columns):
        values = [str(flat_columns(row.columns).get(name)) for row in rows]
        if not 2 <= len(set(values)) <= _MAX_LABELS or name == rows[0].prompt_column:
            continue
        for value in inverted_groups(prompts, labels, values):
            found = [row for row, own in zip(rows, values, strict=True) if own == value]
            yield CheckFinding(
                "warning",
                f"The labels of {len(found)} rows with {name} {value!r} are exchanged: similar "
                "prompts of other rows have the opposite label.",
                ("Map the labels of this source to those of the others.",),
                tuple(f"{row.location}: {row.answer!r:.30}" for row in found[:_SHOWN]),
                {"rows": float(len(found))},
            )


def _contradictions(rows: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    labels = [final_answer(row.answer or "").strip().casefold() for row in rows]
    counts = Counter(labels)
    if len(counts) > _MAX_LABELS or any(
        number_of(label) is not None or option_letter(label) for label in counts
    ):
        return
    noise = label_noise(["\n".join(row.texts()) for row in rows], labels)
    if noise is None:
        return
    share = len(noise.rows) / noise.sure
    yield CheckFinding(
        "warning",
        f"Labels look wrong: those of {len(noise.rows)} of {noise.sure} clear rows contradict "
        "similar rows.",
        ("Read the listed rows, and correct or remove wrong labels.",),
        tuple(
            f"{rows[at].location}: {labels[at]!r:.30}: {rows[at].prompt[:80]!r}"
            for at in noise.rows[:_SHOWN]
        ),
        {"share": share},
    )
