"""Reward functions that lists, judges, programs, verdicts, stop strings and caches lead astray."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.trainer.rewards.user_reward import UserReward
from tests.preflight.planted.models import CHATML, CHATML_TEMPLATE

Make = Callable[..., PreflightContext]
Findings = Callable[[str, PreflightContext], list[CheckFinding]]
Rewards = Callable[..., UserReward]
ContextFor = Callable[..., PreflightContext]

HEAD = r"""
import re
def text(c):
    return c if isinstance(c, str) else c[-1]["content"]
def tagged(c):
    found = re.findall(r"(?s)<answer>(.*?)</answer>", text(c))
    return found[-1].strip() if found else None
"""


def source(body: str) -> str:
    """A reward function whose expression sees the completion `c` and the answer `a`."""
    return (
        f"{HEAD}\ndef reward(completions, answer, **kwargs):\n"
        f"    return [float({body}) for c, a in zip(completions, answer)]\n"
    )


def row(at: int, prompt: str, answer: str) -> PromptRow:
    messages = ({"role": "user", "content": prompt},)
    return PromptRow(f"line {at}", prompt, messages, answer, {"answer": answer})


@pytest.fixture
def context_for(tmp_path: Path, context_of: Make, reward_of: Rewards) -> ContextFor:
    model = CHATML.save(tmp_path / "model")

    def build(body: str, rows: list[PromptRow], **more: Any) -> PreflightContext:
        code = body if "def reward" in body else source(body)
        return context_of(more.pop("model", model), rows, reward=reward_of(code), **more)

    return build


TAGS = " Use <answer> tags."
ROOTS = [row(at, f"Solve case {at}.{TAGS}", f"{at}, {at + 40}") for at in range(11, 41)]
_LABELS = ("law", "art", "sea", "war")
TOPICS = [
    row(at, f"Which topics has clip {at}?{TAGS}", ", ".join(_LABELS[at % 3 :][:2]))
    for at in range(40)
]
TEXTS = [
    row(at, f"Describe picture {at}.{TAGS}", f"A {thing} of {at} stones stands near the {place}.")
    for at, (thing, place) in enumerate(
        (thing, place) for thing in ("wall", "tower", "bridge", "mill", "barn")
        for place in ("river", "forest", "road", "harbour", "field", "market")
    )
]  # fmt: skip
COLD = [row(at, f"What is 3 - {at}?{TAGS}", str(3 - at)) for at in range(11, 51)]
NUMBERS = [row(at, f"What is {at} + 1?{TAGS}", str(at + 1)) for at in range(11, 51)]
ROUNDED = [row(at, f"About what is 9 * {at}?{TAGS}", str(9 * at)) for at in range(111, 151)]
PUZZLES = [
    row(at, f"Use 3, 5 and {at} once to make {at + 8}. Write an expression.{TAGS}", str(at + 8))
    for at in range(20, 60)
]
RECALL = "len(set((tagged(c) or '').split()) & set(a.split())) / len(set(a.split()))"
F1 = (
    "2 * len(set((tagged(c) or '').split()) & set(a.split())) "
    "/ (len(set((tagged(c) or '').split())) + len(set(a.split())))"
)
LABELS = "set(a.split(', ')) <= set((tagged(c) or '').split(', '))"
JUDGE = "(re.search(r'Score: (\\d+)', text(c) + f'Score: {10 * (a == tagged(c))}') or [0, 0])[1]"


@pytest.mark.parametrize(
    ("body", "rows", "kind"),
    [
        ("tagged(c) in a.split(', ') or tagged(c) == a", ROOTS, "a part of the answer"),
        (LABELS, TOPICS, "every label at once"),
        (RECALL, TEXTS, "the words of several references"),
        (JUDGE, ROOTS, "a score for the judge"),
        ("(tagged(c) or ' ').split('/')[-1] == a.split('/')[-1]",
         [row(at, f"Case {at}.{TAGS}", f"{at}/{at + 1}") for at in range(11, 51)],
         "another number, sign or bracket"),
        ("re.findall(r'\\d+', tagged(c) or '')[-1:] == re.findall(r'\\d+', a)", COLD,
         "another number, sign or bracket"),
        ("abs(int(tagged(c) or 0) - int(a)) < 9", NUMBERS, "a count that is off by one"),
        ("eval(tagged(c) or '0') == int(a)", PUZZLES, "the target of the puzzle"),
    ],
)  # fmt: skip
def test_answers_that_deserve_nothing(
    body: str, rows: list[PromptRow], kind: str, context_for: ContextFor, findings_of: Findings
) -> None:
    summaries = [each.summary for each in findings_of("REW102", context_for(body, rows))]
    assert any(each.startswith(kind) for each in summaries), summaries


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ("set((tagged(c) or '').split(', ')) == set(a.split(', '))", ROOTS),
        ("set((tagged(c) or '').lower().split(', ')) == set(a.split(', '))", TOPICS),
        (F1, TEXTS),
        ("tagged(c) is not None and abs(float(re.sub('[^0-9.]', '', tagged(c)) or 0) - int(a)) < 3",
         ROUNDED),
        # partial credit for one of two parts
        ("len(set((tagged(c) or '').split(', ')) & set(a.split(', '))) / "
         "max(2, len((tagged(c) or '').split(', ')))", ROOTS),
    ],
)  # fmt: skip
def test_sound_rewards_of_lists_and_texts(
    body: str, rows: list[PromptRow], context_for: ContextFor, findings_of: Findings
) -> None:
    context = context_for(body, rows)
    for code in ("REW101", "REW102", "REW103", "REW104"):
        assert findings_of(code, context) == [], code


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("len(text(c).split()) < 9 and tagged(c) == a", "also on one line"),
        (
            "re.match(r'.*<answer>', text(c)) is not None and tagged(c) == a",
            "stops at a line break",
        ),
    ],
)
def test_why_reasoning_costs_reward(
    body: str, words: str, context_for: ContextFor, findings_of: Findings
) -> None:
    findings = findings_of("REW104", context_for(body, NUMBERS))
    assert any(words in each.summary for each in findings), findings


CODE = [
    row(at, f"Write f{at}(n), which adds {at}.", f"def f{at}(n):\n    return n + {at}")
    for at in range(12)
]
RUNNER = (
    HEAD
    + """
import signal
def stop(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, stop)
def one(code, name, at):
    scope = {}
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        exec(code.split("```python")[-1].split("```")[0].replace("\\0", ""), scope)
        return float(scope[name](1) == 1 + at)
    except TimeoutError:
        return LATE
    except BaseException:
        return 0.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
def reward(completions, answer, **kwargs):
    names = [re.search(r"f\\d+", a)[0] for a in answer]
    return [one(text(c), n, int(n[1:])) for c, n in zip(completions, names)]
"""
)


@pytest.mark.parametrize(
    ("limit", "late", "found"),
    [
        ("0.2", "1.0", "program that never ends"),
        ("0.2", "0.0", ""),
        ("30", "0.0", "never ends stop"),
    ],
)
def test_a_program_that_never_ends(
    limit: str, late: str, found: str, tmp_path: Path, context_of: Make, findings_of: Findings
) -> None:
    file = tmp_path / "programs.py"
    file.write_text(RUNNER.replace("LIMIT", limit).replace("LATE", late))
    reward = UserReward(f"{file}:reward", seconds=6, columns=["answer"])
    context = context_of(CHATML.save(tmp_path / "model"), CODE, reward=reward)
    summaries = [each.summary for each in findings_of("REW102", context)]
    reward.close()
    assert any(found in each for each in summaries) if found else not summaries


RIGHT = "tagged(c) == a"
CACHE = (
    HEAD
    + """
seen = {}
def reward(completions, answer, **kwargs):
    return [seen.setdefault(text(c), float(tagged(c) == a)) for c, a in zip(completions, answer)]
"""
)
CACHE_BY_BOTH = CACHE.replace("setdefault(text(c),", "setdefault((text(c), a),")
EDIT = (
    HEAD
    + """
def reward(completions, answer, **kwargs):
    for c in completions:
        c[-1]["content"] = tagged(c) or ""
    return [float(text(c) == a) for c, a in zip(completions, answer)]
"""
)
POP = (
    HEAD
    + """
def reward(completions, answer, **kwargs):
    return [float(tagged(c) == answer.pop(0)) for c in completions]
"""
)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (RIGHT, ""),
        (CACHE_BY_BOTH, ""),
        (CACHE, "remembers earlier calls"),
        (EDIT, "in place: completions"),
        (POP, "in place: answer"),
    ],
)
def test_memory_and_edits(
    body: str, found: str, context_for: ContextFor, findings_of: Findings
) -> None:
    summaries = [each.summary for each in findings_of("REW103", context_for(body, NUMBERS))]
    assert any(found in each for each in summaries) if found else summaries == []


CLAIMS = [row(at, f"Is {at} odd? Say 'yes' or 'no'.{TAGS}", str(at % 2 == 1)) for at in range(40)]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("(tagged(c) or '').lower() == a.lower()", True),
        ("(tagged(c) or '').lower() in (a.lower(), 'yes' if a == 'True' else 'no')", False),
    ],
)
def test_verdicts_by_another_name(
    body: str, found: bool, context_for: ContextFor, findings_of: Findings
) -> None:
    findings = findings_of("REW106", context_for(body, CLAIMS))
    assert [each.severity for each in findings] == ["critical"] * found
    assert all("ask for yes or no" in each.summary for each in findings)


@pytest.mark.parametrize(
    ("body", "found"), [(RIGHT, True), ("a in text(c).split('<answer>')[-1]", False)]
)
def test_a_stop_string_that_the_reward_needs(
    body: str, found: bool, context_for: ContextFor, findings_of: Findings
) -> None:
    context = context_for(body, NUMBERS, stop_strings=("</answer>", "\n\nUser:"))
    findings = findings_of("REW106", context)
    assert [each.severity for each in findings] == ["critical"] * found


def test_a_thought_that_the_template_has_closed(
    tmp_path: Path, context_for: ContextFor, findings_of: Findings
) -> None:
    closed = CHATML_TEMPLATE.replace(
        "assistant\n{% endif %}", "assistant\n<think>\n\n</think>\n\n{% endif %}"
    )
    model = replace(CHATML, template=closed).save(tmp_path / "closed")
    rows = [
        row(each.number, f"{each.prompt} First <think>.", each.answer or "") for each in NUMBERS
    ]
    strict = "text(c).startswith('<think>') and tagged(c) == a"
    (finding,) = findings_of("REW106", context_for(strict, rows, model=model))
    assert "already ends with <think></think>" in finding.summary
    assert "enable_thinking=True" in finding.advice[0]
    assert findings_of("REW106", context_for(RIGHT, rows, model=model)) == []


@pytest.mark.parametrize(
    ("part", "is_named"),
    [("text(c).endswith('<|im_end|>')", True), ("len(text(c)) / 1e6", False)],
)
def test_the_text_of_the_eos_token_is_no_length(
    part: str, is_named: bool, tmp_path: Path, context_for: ContextFor, findings_of: Findings
) -> None:
    body = f"(tagged(c) == a) + {part}"
    findings = findings_of("REW106", context_for(body, NUMBERS, model=CHATML.save(tmp_path / "m")))
    named = [each for each in findings if "requires the text" in each.summary]
    assert len(named) == is_named


@pytest.mark.parametrize(
    ("without", "wrong", "alarms"),
    [(0.5, 0.0, 1), (0.0, -1.0, 1), (0.0, 0.0, 0), (0.1, 0.0, 0), (0.0, 0.2, 0)],
)
def test_a_response_without_an_answer_must_not_pay(
    without: float, wrong: float, alarms: int, context_for: ContextFor, findings_of: Findings
) -> None:
    sums = [row(at, f"Add {at} and {at}.{TAGS}", str(2 * at)) for at in range(11, 41)]
    body = f"{without} if tagged(c) is None else 1.0 if tagged(c) == a else {wrong}"
    found = findings_of("REW102", context_for(body, sums))
    paid = [each for each in found if "without an answer earns more" in each.summary]
    assert [each.severity for each in paid] == ["warning"] * alarms
    assert all("below a pass rate of 50%" in each.summary for each in paid)
