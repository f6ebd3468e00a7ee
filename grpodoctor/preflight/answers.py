"""Completions of which it is known what they are worth: right, wrong, empty, form alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpodoctor.preflight.patient import Plan, Row

FORMATS: Mapping[str, str] = {
    "plain": "{answer}",
    "boxed": "The answer is \\boxed{{answer}}.",
    "hashes": "#### {answer}",
    "tags": "<think>\nI think.\n</think>\n<answer>{answer}</answer>",
    "boxed after thoughts": "<think>\nI think.\n</think>\nThe answer is \\boxed{{answer}}.",
    "sentence": "The final answer is: {answer}",
    "answer line": "Answer: {answer}",
    "code": "```python\n{answer}\n```",
}
"""Ways in which right answers are written, by the trainers' own examples."""

_NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True, slots=True)
class Case:
    """A completion of one kind."""

    kind: str
    text: str


def formats_of(plan: Plan) -> dict[str, str]:
    """The user's own way of writing an answer, or all of ours."""
    return {"yours": plan.gold_format} if plan.gold_format else dict(FORMATS)


def written(form: str, answer: str) -> str:
    """An answer in a form."""
    return form.replace("{answer}", answer)


def is_in_form(form: str, text: str) -> bool:
    r"""Whether a response has an answer in a form, right or wrong.

    Only what stands next to the answer counts (`\boxed{…}`, `<answer>…</answer>`); where nothing
    does, the words before it on its line; where there are none, any text at all.
    """
    before, _, after = form.partition("{answer}")
    line = before.rpartition("\n")[2]
    left, right = line.rpartition(" ")[2] or line, re.split(r"\s", after)[0].rstrip(".")
    return re.search(f"{re.escape(left)}.*?\\S.*?{re.escape(right)}", text, re.DOTALL) is not None


def wrong_answer(row: Row, rows: Sequence[Row]) -> str:
    """An answer that looks like this row's and is not: a neighbour's, or another number."""
    answer = (row.answer or "").strip()
    for other in rows:
        text = (other.answer or "").strip()
        if text and text.casefold() != answer.casefold() and _alike(text, answer):
            return text
    numbers = list(_NUMBER.finditer(answer))
    if numbers:
        last = numbers[-1]
        return answer[: last.start()] + str(int(last.group()) + 1) + answer[last.end() :]
    return "B" if answer == "A" else f"not {answer}"


def _alike(one: str, other: str) -> bool:
    return bool(_NUMBER.fullmatch(one)) == bool(_NUMBER.fullmatch(other))


def hedged(row: Row, rows: Sequence[Row], form: str, most: int = 8) -> str:
    """Several answers at once, the right one last."""
    others = []
    for each in rows:
        text = (each.answer or "").strip()
        if text and text != (row.answer or "").strip() and text not in others:
            others.append(text)
        if len(others) == most - 1:
            break
    return " ".join(written(form, text) for text in [*others, row.answer or ""])


def bad_cases(row: Row, rows: Sequence[Row], form: str) -> list[Case]:
    """What must not be worth as much as the right answer."""
    return [
        Case("wrong", written(form, wrong_answer(row, rows))),
        Case("empty", ""),
        Case("form without an answer", written(form, "")),
        Case("the prompt again", row.prompt),
        Case("all answers at once", hedged(row, rows, form)),
    ]
