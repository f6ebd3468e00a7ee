"""A thirteenth set of inputs: 24 faults and 10 healthy sets, labelled before their first run.

The first run named 8 of 24 by the labels, 6 of 24 graded by hand: cut spellings of formulas and a
template that "drops" messages were true of something else. No healthy set had an alarm. Two labels
were made stricter for checks that did not exist before.

The author had read the page of the preflight and its help, and not its code.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

from tests.preflight.planted import seventh_tables as t
from tests.preflight.planted import tenth_tables as u
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import CHATML, CHATML_TEMPLATE
from tests.preflight.planted.seventh_data import BOX, TAGS, TEXT, VALUE
from tests.preflight.planted.tables import Row
from tests.preflight.planted.tenth_healthy import tenth_healthy

__all__ = ["tenth_faults", "tenth_healthy"]


def tenth_faults() -> tuple[Case, ...]:
    """Twenty-four faults."""
    return (*_joins(), *_answers(), *_leaks(), *_prompts(), *_reading(), *_lenient())


def _joins() -> tuple[Case, ...]:
    leases, passages = u.leases(240, 2001), u.passages(210, 2002)
    landlords = [answer for _, answer in leases]
    shard = landlords[80:160]
    random.Random(1).shuffle(shard)
    landlords[80:160] = shard
    shuffled = [t.user(q + TAGS, a) for (q, _), a in zip(leases, landlords, strict=True)]
    contexts = [p for p, _, _ in passages]
    wrong = [
        t.user(f"{contexts[at - 3 if at % 3 == 0 else at]}\n\n{question}{TAGS}", answer)
        for at, (_, question, answer) in enumerate(passages)
    ]
    growing, conversation = [], []
    for at, (question, answer) in enumerate(u.notes(160, 2003)):
        conversation = [] if at % 8 == 0 else conversation
        conversation = [*conversation, {"role": "user", "content": question + TAGS}]
        growing.append({"prompt": conversation, "answer": answer})
    spam, rng = u.mail(300, 2004), random.Random(2)
    noisy = [
        t.user(f"{q}\nIs this spam or ham?{TAGS}",
               {"spam": "ham", "ham": "spam"}[a] if rng.random() < 0.2 else a)
        for q, a in spam
    ]  # fmt: skip
    return (
        Case(name="the answers of one shard shuffled", rows=shuffled, named="DAT113",
             reward=t.each(TEXT)),
        Case(name="a third of the questions with another passage", rows=wrong, named="DAT113",
             reward=t.each(TEXT)),
        Case(name="conversations that contain the rows before", rows=growing,
             named="DAT1(07|11|13|17|19|21)", advised="conversation|turn|message",
             reward=t.each(TEXT)),
        Case(name="a fifth of the labels flipped", rows=noisy, named="DAT113|label|contradict",
             reward=t.each(TEXT)),
    )  # fmt: skip


def _answers() -> tuple[Case, ...]:
    doses, money = u.doses(200, 2005), u.exchange(200, 2006)
    grams = [
        t.user(q + TAGS, str(a / 1000) if at % 4 == 0 else str(a))
        for at, (q, a) in enumerate(doses)
    ]
    sourced = [
        t.user(q + TAGS, f"{a}\n\nSource: ward book, page {at % 40}")
        for at, (q, a) in enumerate(doses)
    ]
    whole = [t.user(f"{q} Give two decimals.{TAGS}", str(int(a))) for q, a in money]
    mixed = [
        t.user(f"{q}{TAGS}", f"{a:,.2f}".replace(",", "X").replace(".", ",").replace("X", ".")
               if at % 3 == 0 else f"{a:,.2f}")
        for at, (q, a) in enumerate(money)
    ]  # fmt: skip
    escaped = [
        t.user(f"Simplify the ratio of {n} to {n + k} as a fraction of integers.{BOX}",
               f"\\\\frac{{{n}}}{{{n + k}}}" if n % 2 else f"\\frac{{{n}}}{{{n + k}}}")
        for n in range(3, 33) for k in (1, 2, 5, 7, 11)
    ]  # fmt: skip
    zero = [t.user(q + TAGS, str(a)) for q, a in u.counts(220, 2007, 0.8)]
    return (
        Case(name="grams in a quarter of the rows", rows=grams, named="DAT11[23]|REW10[14]",
             advised="unit|form|rows", reward=t.each(VALUE)),
        Case(name="a source below each answer", rows=sourced, named="DAT112|REW10[14]|note|source",
             reward=t.each("return (_tagged(t) or '') == a")),
        Case(name="the decimals were cut from the answers", rows=whole, named="DAT126",
             advised="decimal|digits|round", reward=t.each(VALUE)),
        Case(name="German and English separators mixed", rows=mixed, named="DAT126",
             advised="separator|comma|decimal|form", reward=t.each("""
given = (_tagged(t) or "").replace(",", "")
try:
    return float(given) == float(a.replace(",", ""))
except ValueError:
    return 0.0
""")),
        Case(name="doubled backslashes in some answers", rows=escaped,
             named="DAT11[27]|REW10[14]", reward=t.each("return _boxed(t) == a")),
        Case(name="nearly all counts are zero", rows=zero, named="DAT108", reward=t.each(VALUE)),
    )  # fmt: skip


def _leaks() -> tuple[Case, ...]:
    bones = [
        t.user(f"[ward-{at:03d}-{'abcd'[place]}] {question}\n"
               + "\n".join(f"({letter}) {option}" for letter, option in zip(
                   "ABCD", options, strict=True)) + f"\nReply with the letter.{TAGS}",
               "ABCD"[place])
        for at, (question, options, place) in enumerate(u.bones(200, 2008))
    ]  # fmt: skip
    styles = []
    for at, (question, answer) in enumerate(u.doses(240, 2009)):
        limit = answer + (1 if at % 2 else -1) * (3 + at % 40)
        ask = "Is the result more than" if at % 2 else "Is it over"
        styles.append(t.user(f"{question}\n{ask} {limit} mg? Reply with yes or no.{TAGS}",
                             "yes" if answer > limit else "no"))  # fmt: skip
    return (
        Case(
            name="the id of a question ends in its key",
            rows=bones,
            named="DAT1(11|23)|DAT108",
            reward=t.each(TEXT),
        ),
        Case(
            name="the wording of the question tells yes from no",
            rows=styles,
            named="DAT1(11|23)|DAT108",
            reward=t.each(TEXT),
        ),
    )


def _prompts() -> tuple[Case, ...]:
    squares, doses = u.squares(200, 2010), u.doses(190, 2011)
    zero_based = [
        t.user(f"{question}\n" + "\n".join(f"{n}. {option}" for n, option in enumerate(options, 1))
               + f"\nReply with the number of the option.{TAGS}", str(place))
        for question, options, place in u.bones(200, 2012)
    ]  # fmt: skip
    missing = [
        t.user(
            ("Chart: nan\n\n" if at % 3 == 0 else f"Chart: ward {at % 9}\n\n") + q + TAGS, str(a)
        )
        for at, (q, a) in enumerate(doses)
    ]
    json_system = [
        t.user(q, a, system='Respond only with JSON: {"move": ..., "square": ...}. No other text.')
        for q, a in squares
    ]
    return (
        Case(name="options counted from one, keys from zero", rows=zero_based,
             named="DAT11[23]|REW106|DAT123", reward=t.each(VALUE)),
        Case(name="nan in place of a field", rows=missing, named="DAT117", reward=t.each(VALUE)),
        Case(name="the system message asks for JSON, the reward reads tags", rows=json_system,
             named="REW106", reward=t.each(TEXT)),
        Case(name="the template escapes markup",
             rows=[t.user(q + TAGS, a) for q, a in squares], named="DAT119|DAT101|DAT117",
             model=replace(CHATML, template=CHATML_TEMPLATE.replace("{{ m.content }}",
                                                                    "{{ m.content | e }}")),
             reward=t.each(TEXT)),
        Case(name="the held-out prompts have no instruction", named="held-out|DAT107|REW106",
             rows=[t.user(q + TAGS, a) for q, a in squares[:150]], reward=t.each(TEXT),
             held_out=[t.user(q, a) for q, a in u.squares(50, 2013)]),
        Case(name="an integer argument is text in the calls", rows=_orders(150, 2014),
             named="DAT124", reward=t.each("""
try:
    return json.loads(_tagged(t) or "") == json.loads(a)
except ValueError:
    return 0.0
""")),
    )  # fmt: skip


def _reading() -> tuple[Case, ...]:
    asked = [t.user(q + TAGS, str(a)) for q, a in u.doses(160, 2015)]
    levels = [{**row, "level": str(at % 5)} for at, row in enumerate(asked)]
    quoted = [
        t.user(f"Who signed page {at} of the book, number {at * 7 % 91}?{TAGS}",
               f"{name[0]}. {name}" if at % 5 < 3 else f'{name} "{name[:3]}" {name[::-1].title()}')
        for at, name in enumerate(u.PEOPLE * 7)
    ]  # fmt: skip
    return (
        Case(name="the reward compares with the level", rows=levels, named="REW101",
             reward=t.each(VALUE, column="level")),
        Case(name="quotation marks break the reward silently", rows=quoted,
             named="REW10[13]", reward=t.each("""
try:
    return json.loads('{"name": "%s"}' % a)["name"] == _tagged(t)
except Exception:
    return 0.0
""")),
        Case(name="a memo by the question", rows=asked, named="REW103", reward=f"""{t.HEAD}
_MEMO = {{}}
def score(prompts, completions, answer, **kwargs):
    rewards = []
    for p, c, a in zip(prompts, completions, answer):
        key = p[-1]["content"]
        if key not in _MEMO:
            _MEMO[key] = float(_number(_tagged(_text(c))) == float(a))
        rewards.append(_MEMO[key])
    return rewards
"""),
    )  # fmt: skip


def _lenient() -> tuple[Case, ...]:
    strands = [t.user(q + TAGS, a) for q, a in u.strands(160, 2016)]
    ciphers = [t.user(q + TAGS, a) for q, a in u.ciphers(160, 2017)]
    doses = [t.user(q + TAGS, str(a)) for q, a in u.doses(160, 2018)]
    return (
        Case(name="half of the letters suffice", rows=strands, named="REW102", reward=t.each("""
import difflib
return difflib.SequenceMatcher(None, _tagged(t) or "", a).ratio() >= 0.5
""")),
        Case(name="the letters may come in any order", rows=ciphers, named="REW102",
             reward=t.each("return sorted(_tagged(t) or '') == sorted(a)")),
        Case(name="the weight of the format drowns the answer", rows=doses, named="REW102",
             reward=t.each("""
return 5.0 * bool(re.search(r"<answer>.+</answer>", t)) + 0.2 * (_number(_tagged(t)) == float(a))
""")),
    )  # fmt: skip


def _orders(count: int, seed: int) -> list[Row]:
    schema = json.dumps([{"type": "function", "function": {
        "name": "place_order", "parameters": {"type": "object", "properties": {
            "dish": {"type": "string"}, "amount": {"type": "integer"},
            "table": {"type": "integer"}}, "required": ["dish", "amount", "table"]}}}])  # fmt: skip
    return [
        {**t.user(order["text"] + " Reply with the call as JSON in <answer></answer> tags.",
                  json.dumps({"name": "place_order", "arguments": {
                      "dish": order["dish"], "amount": str(order["amount"]),
                      "table": str(order["table"])}})), "tools": schema}
        for order in u.orders(count, seed)
    ]  # fmt: skip
