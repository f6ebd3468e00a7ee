"""Completions of which it is known what they are worth: right, wrong, empty, form alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpodoctor.preflight.context import Plan

FORMATS: Mapping[str, str] = {
    "plain": "{answer}",
    "boxed": "The answer is \\boxed{{answer}}.",
    "hashes": "#### {answer}",
    "tags": "<think>\nI think.\n</think>\n<answer>{answer}</answer>",
    "tags on lines": "<think>\nI think.\n</think>\n<answer>\n{answer}\n</answer>",
    "boxed after thoughts": "<think>\nI think.\n</think>\nThe answer is \\boxed{{answer}}.",
    "sentence": "The final answer is: {answer}",
    "answer line": "Answer: {answer}",
    "code": "```python\n{answer}\n```",
}
"""Ways in which right answers are written, by the trainers' own examples."""

_NUMBER = re.compile(r"-?\d+")
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_FORMULA = re.compile(r"\$+\s*([^$]*[^$\s])\s*\$+")
_THOUGHT = "I think."
_LONG_THOUGHT = "Let me think about this once more, step by step. " * 100


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


def final_answer(solution: str) -> str:
    """The answer at a solution's end: behind ####, in the last box or in tags; else all of it.

    Without the dollars around it, if it is one formula.
    """
    marked = solution.rpartition("####")[2].strip() if "####" in solution else ""
    tagged = _TAGGED.findall(solution)
    found = marked or (tagged[-1].strip() if tagged else "") or _boxed(solution) or solution.strip()
    formula = _FORMULA.fullmatch(found)
    return formula[1] if formula else found


def _boxed(solution: str) -> str:
    """What stands in the last box, whose braces may hold braces."""
    inside, found, _ = solution.rpartition("\\boxed{")[::-1]
    depth = 1
    for place, letter in enumerate(inside if found else ""):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if not depth:
            return inside[:place].strip()
    return ""


def wrong_answer(answer: str, answers: Sequence[str]) -> str:
    """An answer that looks like this one and is not: another row's, or another number."""
    for other in answers:
        if other and other.casefold() != answer.casefold() and _alike(other, answer):
            return other
    numbers = list(_NUMBER.finditer(answer))
    if numbers:
        last = numbers[-1]
        return answer[: last.start()] + str(int(last.group()) + 1) + answer[last.end() :]
    return "B" if answer == "A" else f"not {answer}"


def _alike(one: str, other: str) -> bool:
    return bool(_NUMBER.fullmatch(one)) == bool(_NUMBER.fullmatch(other))


def hedged(answer: str, answers: Sequence[str], form: str, most: int = 8) -> str:
    """Several answers at once, the right one in the middle.

    Neither who takes the first nor who takes the last is cheated by it.
    """
    others = list(dict.fromkeys(each for each in answers if each and each != answer))[: most - 1]
    others = others if len(others) > 1 else [wrong_answer(answer, answers)] * 2
    half = len(others) // 2
    return " ".join(written(form, each) for each in [*others[:half], answer, *others[half:]])


def bad_cases(prompt: str, answer: str, answers: Sequence[str], form: str) -> list[Case]:
    """What must not be worth as much as the right answer.

    Args:
        prompt: the row's.
        answer: the right one.
        answers: of all rows.
        form: how an answer is written.
    """
    wrong = wrong_answer(answer, answers)
    is_thought = _THOUGHT in form
    long = form.replace(_THOUGHT, _LONG_THOUGHT) if is_thought else _LONG_THOUGHT + form
    return [
        Case("wrong", written(form, wrong)),
        Case("wrong at great length", written(long, wrong)),
        Case("empty", ""),
        Case("form without an answer", written(form, "")),
        Case("the prompt again", prompt),
        Case("all answers at once", hedged(answer, answers, form)),
    ]
