"""DAT128."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

from grpodoctor.errors import DataError
from grpodoctor.preflight.answers.stated_answers import final_answer
from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow, spread_rows
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.preflight.texts.normal_form import number_of
from grpodoctor.rules.base import Severity

_MAX_ROWS = 1000
_MIN_ROWS = 10
_SENTENCE = re.compile(r"[^.!?\n\u3002]+[.!?\u3002]?")
_COMMON, _RARE = 0.9, 0.1
"""Share of the prompts of one file that have a sentence, and of the other file."""
_MIN_LETTERS = 12
_MARK = re.compile(r"\\boxed|####|</?[a-zA-Z]\w*>|```|\*\*|\w+:")


class HeldOutDiffers(Check):
    """The held-out data asks or answers in another form than the training data.

    What it sees:
        Sentences that nine of ten training prompts contain, system messages included, and at most
        one of ten held-out prompts. It is a warning if the sentence names the format that the
        reward function reads. Also answers of another kind: numbers in one file and letters, words
        or sentences in the other.

    Why it matters:
        Without the instruction the model does not write the format, and the held-out accuracy
        measures the format. The curve of the evaluation then says nothing about the training.

    What to do:
        Build the prompts and the answers of both files with the same code.

    When it is wrong:
        A benchmark with prompts of its own may be the purpose.

    References:
        None.
    """

    code: ClassVar[str] = "DAT128"
    name: ClassVar[str] = "held-out-differs"
    summary: ClassVar[str] = "Held-out prompts lack the instruction, or their answers differ."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare sentences and kinds of answers."""
        if not context.held_out:
            return SkippedCheck("no held-out prompts were given", "add --held-out")
        rows = list(spread_rows(context.rows, _MAX_ROWS))
        held_out = list(spread_rows(context.held_out, _MAX_ROWS))
        if min(len(rows), len(held_out)) < _MIN_ROWS:
            return SkippedCheck("too few prompts to compare", "pass more prompts")
        return (*_missing_sentence(context, rows, held_out), *_other_kind(rows, held_out))


def _missing_sentence(
    context: PreflightContext, rows: Sequence[PromptRow], held_out: Sequence[PromptRow]
) -> Iterator[CheckFinding]:
    trained, tested = _shares(rows), _shares(held_out)
    missing = [
        sentence for sentence, share in trained.items()
        if share >= _COMMON and tested.get(sentence, 0.0) <= _RARE
    ]  # fmt: skip
    marks = _format_marks(context)
    text = " ".join(missing)
    if not missing:
        return
    kept = " ".join(sentence for sentence, share in tested.items() if share > _RARE)
    names_format = any(mark in text and mark not in kept for mark in marks)
    severity: Severity = "warning" if names_format else "info"
    yield CheckFinding(
        severity,
        f"Training prompts contain {missing[0][:60]!r}, held-out prompts do not.",
        ("Build held-out prompts with the same instruction as training prompts.",),
        tuple(missing[:4]),
    )


def _shares(rows: Sequence[PromptRow]) -> dict[str, float]:
    """The share of prompts that contain each sentence."""
    counts: Counter[str] = Counter()
    for row in rows:
        text = "\n".join(row.texts())
        sentences = (" ".join(each.split()) for each in _SENTENCE.findall(text[-4000:]))
        counts.update({each for each in sentences if len(each) >= _MIN_LETTERS})
    return {sentence: count / len(rows) for sentence, count in counts.items()}


def _format_marks(context: PreflightContext) -> set[str]:
    """The marks of the format that the reward function reads."""
    if context.reward is None:
        return set()
    try:
        answers = context.reference_answers
    except DataError:  # REW103 reports it
        return set()
    if answers is None or answers.threshold is None:
        return set()
    return set(_MARK.findall(answers.answer_format))


def _other_kind(rows: Sequence[PromptRow], held_out: Sequence[PromptRow]) -> Iterator[CheckFinding]:
    trained, tested = _kinds(rows), _kinds(held_out)
    for kind, share in trained.items():
        if share >= _COMMON and tested and tested.get(kind, 0.0) <= _RARE:
            other = max(tested, key=lambda each: tested[each])
            yield CheckFinding(
                "warning",
                f"Answers are {kind} in the training data and {other} in the held-out data.",
                ("Store the answers of both files in the same form.",),
                (f"held-out: {held_out[0].answer!r:.80}", f"training: {rows[0].answer!r:.80}"),
            )


def _kinds(rows: Sequence[PromptRow]) -> dict[str, float]:
    kinds = Counter(_kind(final_answer(row.answer)) for row in rows if row.answer)
    return {kind: count / kinds.total() for kind, count in kinds.items()}


def _kind(answer: str) -> str:
    if number_of(answer) is not None:
        return "numbers"
    words = len(answer.split())
    if re.fullmatch(r"\W*[A-Z]\W*", answer):
        return "letters"
    return "sentences" if words > 8 else "words"
