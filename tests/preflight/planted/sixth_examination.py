"""A ninth set of inputs, written as users write them and labelled before its first run.

That run named 15 of 30 faults, and 5 of 6 healthy inputs had no alarm. Changed since: a healthy set
repeated its prompts by mistake, a blank at the end of a prompt is a fault for a base model only, and
"User: ... Assistant:" inside a message is a matter of taste and was removed. Removed are also two
faults that are not named: fewer prompts than a batch, since a preflight does not know whether the
batch size is the run's, and a tolerance of four for answers of which most are large.
"""

from __future__ import annotations

import random

from tests.preflight.planted import rewards, tables
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import BASE
from tests.preflight.planted.tables import Row, final

_HASHES = "\nThink step by step and finish with #### and the number."
_LETTER = "\nReply with 'Answer: X' where X is the letter."
_TEXT = """
import random, re, time
def _text(c):
    return c if isinstance(c, str) else c[-1]["content"]
def _final(text):
    found = re.findall(r"-?\\d[\\d,]*\\.?\\d*", text.split("####")[-1])
    return found[-1].replace(",", "").rstrip(".") if found else None
"""


def _reward(body: str, column: str = "solution") -> str:
    """A reward function whose lines see `texts` and `wanted`."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    return (
        f"{_TEXT}\ndef score(completions, {column}, **kwargs):\n"
        f"    texts, wanted = [_text(c) for c in completions], {column}\n{lines}\n"
    )


_CORRECT = "[float(_final(t) == w) for t, w in zip(texts, wanted)]"
_INVERTED = _reward("return [-1.0 if _final(t) == w else 1.0 for t, w in zip(texts, wanted)]")
_NEIGHBOURS = _reward(
    f"""
values = {_CORRECT}
mean = sum(values) / len(values)
return [value - mean for value in values]
"""
)
_RANKS = _reward(
    """
order = sorted(range(len(texts)), key=lambda n: (_final(texts[n]) == wanted[n], -len(texts[n])))
return [order.index(n) / len(texts) for n in range(len(texts))]
"""
)
_FIRST_DIGIT = _reward(
    "return [float(bool(_final(t)) and _final(t)[0] == w[0]) for t, w in zip(texts, wanted)]"
)
_BACKTRACKING = _reward(
    r"""
return [float(bool(re.search(r"(?:[a-z ]+)+\d+[.]?$", t)) and _final(t) == w)
        for t, w in zip(texts, wanted)]
"""
)
_COUNTER = _reward(
    f"""
score.calls = getattr(score, "calls", 0) + 1
weight = 1 + score.calls
return [weight * value for value in {_CORRECT}]
"""
)
_EXCEPT_HALF = _reward(
    """
values = []
for t, w in zip(texts, wanted):
    try:
        values.append(float(int(_final(t)) == int(w["value"])))
    except Exception:
        values.append(0.5)
return values
"""
)
_STARTS = _reward(
    "return [float((_final(t) or '').startswith(w) or w.startswith(_final(t) or 'x')) "
    "for t, w in zip(texts, wanted)]"
)
_ANY_LINE = _reward(
    "return [float(any(w == (_final(x) or '') for x in t.splitlines())) "
    "for t, w in zip(texts, wanted)]"
)
_CASELESS_LETTER = _reward(
    "return [float(w.lower() in t.lower()) for t, w in zip(texts, wanted)]", "answer"
)
_INDEX = _reward(
    """
found = [re.findall(r"Answer: ([A-D0-3])", t) for t in texts]
return [float(bool(f) and f[-1] == str(w)) for f, w in zip(found, wanted)]
""",
    "label",
)
_PARTIAL = _reward(
    "return [0.2 * ('####' in t) + 0.8 * (_final(t) == w) for t, w in zip(texts, wanted)]"
)
_SIGNED = _reward("return [1.0 if _final(t) == w else -1.0 for t, w in zip(texts, wanted)]")
_DECIMAL_COMMA = _reward(
    r"""
found = [re.findall(r"-?\d+(?:[.,]\d+)?", t) for t in texts]
values = [float(f[-1].replace(",", ".")) if f else None for f in found]
return [float(v is not None and abs(v - float(w.replace(",", "."))) < 1e-6)
        for v, w in zip(values, wanted)]
"""
)
_YES_NO = _reward(
    """
found = [re.findall(r"(?i)verdict: (yes|no)", t) for t in texts]
return [float(bool(f) and f[-1].lower() == w) for f, w in zip(found, wanted)]
"""
)


def _chat(question: str, answer: object, column: str = "solution") -> Row:
    return {"prompt": [{"role": "user", "content": question}], column: answer}


def _problems(count: int, seed: int) -> list[tuple[str, str]]:
    return [(row["question"], final(row)) for row in tables.word_problems(count, seed)]


def _asked(count: int, seed: int) -> list[Row]:
    return [_chat(question + _HASHES, answer) for question, answer in _problems(count, seed)]


def _choices(count: int, seed: int, column: str = "answer", *, as_index: bool = False) -> list[Row]:
    rows = []
    for row in tables.choices(count, seed):
        options = [
            f"{letter}) {text}" for letter, text in zip("ABCD", row["choices"]["text"], strict=True)
        ]
        key = str("ABCD".index(row["answerKey"])) if as_index else row["answerKey"]
        rows.append(_chat("\n".join([row["question"], *options]) + _LETTER, key, column))
    return rows


def _with_role(role: str, key: str = "role", text: str = "content") -> list[Row]:
    """Conversations of another tool's layout, such as ShareGPT's `from` and `value`."""
    return [
        {"prompt": [{key: role, text: question + _HASHES}], "solution": answer}
        for question, answer in _problems(120, 901)
    ]


def _every(rows: list[Row], step: int, edit: str) -> list[Row]:
    """Every so many answers in another form."""
    return [
        {**row, "solution": edit.format(row["solution"]) if at % step == 0 else row["solution"]}
        for at, row in enumerate(rows)
    ]


def sixth_faults() -> tuple[Case, ...]:
    """Faults of data, prompts, settings and rewards."""
    return (*_data_faults(), *_prompt_faults(), *_reward_faults())


def _data_faults() -> tuple[Case, ...]:
    problems = _problems(150, 902)
    swapped = [_chat(answer, question) for question, answer in problems]
    same = [_chat(problems[0][0] + _HASHES, answer) for _, answer in problems]
    return (
        Case(name="questions and answers exchanged", rows=swapped, named="DAT1|REW10",
             reward=_reward(f"return {_CORRECT}")),
        Case(name="the same question in every prompt", rows=same, named="DAT107|DAT108"),
        Case(name="answers in bold", rows=_every(_asked(150, 904), 1, "**{}**"),
             named="REW10[14]|DAT112", reward=_reward(f"return {_CORRECT}")),
        Case(name="alternatives in one answer", rows=_every(_asked(150, 905), 1, "{0} or {0}.0"),
             named="REW10[14]|DAT112", reward=_reward(f"return {_CORRECT}")),
        Case(name="answers with a zero-width space", rows=_every(_asked(150, 906), 3, "{}\u200b"),
             named="REW10[14]|DAT1", reward=_reward(f"return {_CORRECT}")),
        Case(name="full-width digits in some answers", named="REW10[14]|DAT1",
             rows=[{**row, "solution": "".join(chr(ord(c) + 0xFEE0) for c in row["solution"])
                    if at % 4 == 0 else row["solution"]}
                   for at, row in enumerate(_asked(150, 907))],
             reward=_reward(f"return {_CORRECT}")),
        Case(name="HTML entities in prompts", named="DAT117|DAT1",
             rows=[_chat(f"{q.replace(' and ', ' &amp; ')} Is it &gt; 5 &amp;&amp; &lt; 900?"
                         f"&lt;br&gt;{_HASHES}", a) for q, a in problems]),
        Case(name="two sources, the reward knows one", named="REW101",
             rows=_asked(100, 908) + [{"prompt": row["prompt"], "solution": row["answer"]}
                                      for row in _choices(60, 909)],
             reward=_reward(f"return {_CORRECT}")),
        Case(name="none and nan as answers", named="DAT112",
             rows=_every(_asked(150, 910), 6, "None")),
        Case(name="placeholders as answers", named="DAT112",
             rows=_every(_asked(150, 911), 5, "TODO")),
    )  # fmt: skip


def _prompt_faults() -> tuple[Case, ...]:
    problems = _problems(150, 912)
    return (
        Case(name="the roles human and gpt", rows=_with_role("human"), named="DAT1"),
        Case(name="ShareGPT's from and value", rows=_with_role("human", "from", "value"),
             named="DAT1|role|content"),
        Case(name="the prompt ends with a blank", named="DAT122", model=BASE,
             rows=[{"prompt": f"Question: {q}\nAnswer: ", "solution": a} for q, a in problems]),
        Case(name="a solution begun in the prompt", named="DAT111|DAT1",
             rows=[_chat(f"{q}{_HASHES}\nSolution: the result is {a}", a) for q, a in problems]),
        Case(name="the limit of the config cuts the prompts", named="DAT106|CFG",
             rows=[_chat(f"{'Background. ' * 120}{q}{_HASHES}", a) for q, a in problems],
             run_config="data: {max_prompt_length: 64, max_response_length: 512, truncation: left}"),
        Case(name="the config allows shorter responses than the solutions", named="LEN101|CFG",
             rows=[{"question": q, "answer": "We add the parts one after the other. " * 30
                    + f"\n#### {a}"} for q, a in problems],
             run_config="data: {max_prompt_length: 512, max_response_length: 64}"),
    )  # fmt: skip


def _reward_faults() -> tuple[Case, ...]:
    asked = _asked(120, 913)
    return (
        Case(name="an inverted reward", rows=asked, named="REW101", reward=_INVERTED, critical=True),
        Case(name="rewards minus their mean", rows=asked, named="REW103", reward=_NEIGHBOURS),
        Case(name="ranks in the batch", rows=asked, named="REW103", reward=_RANKS),
        Case(name="only the first digit counts", rows=asked, named="REW102", reward=_FIRST_DIGIT),
        Case(name="a pattern that backtracks", rows=asked, named="REW10[35]|hang|slow|seconds",
             reward=_BACKTRACKING, settings={"max_tokens": 256}),
        Case(name="a weight that grows with every call", rows=asked, named="REW103",
             reward=_COUNTER),
        Case(name="half a reward for an exception", named="REW10[1-3]",
             rows=[{**row, "solution": {"val": row["solution"]}} for row in asked],
             reward=_EXCEPT_HALF),
        Case(name="a prefix of the answer is enough", rows=asked, named="REW102", reward=_STARTS),
        Case(name="the answer on any line", rows=asked, named="REW102", reward=_ANY_LINE),
        Case(name="the letter anywhere", rows=_choices(150, 914), named="REW102",
             reward=_CASELESS_LETTER),
        Case(name="the key is a number, the prompt asks for a letter", named="REW10[16]",
             rows=_choices(150, 915, "label", as_index=True), reward=_INDEX),
    )  # fmt: skip


def sixth_healthy() -> tuple[Case, ...]:
    """Sets without a fault that look odd."""
    rng = random.Random(916)
    halves = [
        _chat(f"Ein Kilo Nüsse kostet {n},5 Euro, ein Sack wiegt {k} Kilo. Was kostet der Sack? "
              "Gib nur die Zahl an.", f"{n * k + k / 2:.1f}".replace(".", ","))
        for n, k in ((rng.randint(2, 90), rng.randint(2, 60)) for _ in range(150))
    ]  # fmt: skip
    pages = [
        _chat(
            f"How many <li> items has this page? <ul>{'<li>&amp;</li>' * n}</ul>{_HASHES}", str(n)
        )
        for n in rng.sample(range(2, 152), 150)
    ]
    claims = [
        _chat(f"Is {n} divisible by {k}? Explain, then write 'verdict: yes' or 'verdict: no'.",
              "yes" if n % k == 0 else "no")
        for k in (3, 4, 6) for n in rng.sample(range(k, 400), 60)
        if n % k == 0 or rng.random() < 1 / (k - 1)
    ]  # fmt: skip
    return (
        Case(name="German decimals", rows=halves, reward=_DECIMAL_COMMA),
        Case(name="markup that belongs to the task", rows=pages, reward=_SIGNED),
        Case(name="a part of the reward for the layout", rows=_asked(150, 917), reward=_PARTIAL),
        Case(name="plus and minus one", rows=_asked(150, 918), reward=_SIGNED),
        Case(name="yes and no in balance", rows=claims, reward=_YES_NO),
        Case(name="two sources, the reward knows both", reward=rewards.MATH_TRL,
             rows=_asked(90, 919) + [_chat(f"How much is {n} times {n}?{_HASHES}", str(n * n))
                                     for n in range(11, 80)]),
    )  # fmt: skip
