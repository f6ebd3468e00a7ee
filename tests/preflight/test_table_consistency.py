"""Tests that compare a table with itself: joins, formulas, words that tell, labels, forms."""

from __future__ import annotations

import random

import pytest

from grpodoctor.preflight.answers.written_forms import (
    common_line,
    doubled_backslashes,
    lost_zeros,
    mixed_forms,
    mixed_separators,
    prompt_spelling,
    unfit_forms,
)
from grpodoctor.preflight.texts.joins import answers_of_other_prompts, filled_down
from grpodoctor.preflight.texts.label_noise import label_noise
from grpodoctor.preflight.texts.number_relations import overflowed, wrong_numbers
from grpodoctor.preflight.texts.telling_words import best_rule
from grpodoctor.preflight.texts.template_slots import empty_slots, repeats_paragraph
from tests.preflight.planted import tenth_tables as tables


@pytest.mark.parametrize("exchanged", [0, 40, 200])
def test_exchanged_answers_are_found(exchanged: int) -> None:
    triples = tables.passages(200, 1)
    prompts = [f"{passage} {question}" for passage, question, _ in triples]
    answers = [answer for *_, answer in triples]
    answers[:exchanged] = [*answers[1:exchanged], *answers[:1]][:exchanged]
    found = answers_of_other_prompts(prompts, answers)
    assert len(found) >= 0.9 * exchanged
    assert all(at < exchanged for at in found)


def test_answers_of_another_kind_belong_to_no_prompt() -> None:
    triples = tables.passages(200, 2)
    prompts = [f"{passage} {question} If no one, say so." for passage, question, _ in triples]
    answers = [answer if at % 3 else "no one" for at, (*_, answer) in enumerate(triples)]
    assert answers_of_other_prompts(prompts, answers) == []


def test_cells_filled_from_above_are_found() -> None:
    rng = random.Random(3)
    pairs = tables.strands(200, 3)
    prompts, answers = [question for question, _ in pairs], [answer for _, answer in pairs]
    assert filled_down(prompts, answers) == []
    gaps = sorted(rng.sample(range(1, 200), 40))
    for at in gaps:
        answers[at] = answers[at - 1]
    assert filled_down(prompts, answers) == gaps
    assert filled_down(prompts, ["yes", "no"] * 100) == []


@pytest.mark.parametrize(("factor", "found"), [(1.0, 0), (1000.0, 50), (0.01, 50), (1.2, 0)])
def test_another_unit_is_found(factor: float, found: int) -> None:
    pairs = tables.doses(200, 4)
    answers = [f"{a * factor if at % 4 == 0 else a:.15g}" for at, (_, a) in enumerate(pairs)]
    wrong = wrong_numbers([question for question, _ in pairs], answers)
    assert len(wrong.rows if wrong else ()) == found
    assert wrong is None or wrong.factor == pytest.approx(factor)


def test_results_and_numbers_of_other_places_are_found() -> None:
    pairs = tables.doses(200, 5)
    prompts, answers = [question for question, _ in pairs], [str(a) for _, a in pairs]
    shuffled = [*answers[1:60], answers[0], *answers[60:]]
    wrong = wrong_numbers(prompts, shuffled)
    assert wrong is not None
    assert (wrong.factor, wrong.place) == (0.0, 0)
    assert len(wrong.rows) >= 55
    copied = [question.split()[3] if at % 4 == 0 else answers[at]
              for at, question in enumerate(prompts)]  # fmt: skip
    wrong = wrong_numbers(prompts, copied)
    assert wrong is not None
    assert wrong.place == 2


def test_wages_with_a_limit_are_no_wrong_numbers() -> None:
    rng = random.Random(6)
    hours = [(rng.randint(20, 55), rng.randint(9, 40)) for _ in range(200)]
    prompts = [f"{each} hours at {wage} crowns" for each, wage in hours]
    answers = [str(wage * each + wage * max(each - 40, 0)) for each, wage in hours]
    assert wrong_numbers(prompts, answers) is None


def test_questions_for_another_unit_are_no_wrong_numbers() -> None:
    pairs = tables.doses(200, 11)
    prompts = [q.replace("milligrams", "micrograms") if at % 4 == 0 else q
               for at, (q, _) in enumerate(pairs)]  # fmt: skip
    answers = [str(a * 1000 if at % 4 == 0 else a) for at, (_, a) in enumerate(pairs)]
    assert wrong_numbers(prompts, answers) is None


def test_an_overflow_needs_both_ends_of_the_range() -> None:
    wide = [str((n * 97_654_321) % 2**32 - 2**31) for n in range(200)]
    assert len(overflowed(wide)) == sum(each.startswith("-") for each in wide) > 50
    assert overflowed([str(int(each) // 2) for each in wide]) == []


def test_a_telling_word_and_a_telling_id() -> None:
    rng = random.Random(7)
    answers = [rng.choice(("yes", "no")) for _ in range(200)]
    asks = {"yes": "more than", "no": "over"}
    plain = [f"Sheet {n}: is it {rng.choice(list(asks.values()))} {n}?" for n in range(200)]
    telling = [f"Sheet {n}: is it {asks[a]} {n}?" for n, a in enumerate(answers)]
    ids = [
        f"[ward-{n}-{a[0]}] {text}" for n, (a, text) in enumerate(zip(answers, plain, strict=True))
    ]
    rules = [best_rule(texts, answers, only_ids=False) for texts in (plain, telling, ids)]
    assert [rule is not None and rule.rate > 0.95 for rule in rules] == [False, True, True]
    rule = best_rule(telling, answers, only_ids=True)
    assert rule is not None
    assert rule.rate < 0.7


@pytest.mark.parametrize(("flipped", "is_noise"), [(0.0, False), (0.2, True)])
def test_flipped_labels(flipped: float, is_noise: bool) -> None:
    rng = random.Random(8)
    other = {"spam": "ham", "ham": "spam"}
    pairs = [(q, other[a] if rng.random() < flipped else a) for q, a in tables.mail(300, 8)]
    assert bool(label_noise(*map(list, zip(*pairs, strict=True)))) == is_noise


def test_hard_rows_are_no_noise() -> None:
    """Half of the rows say nothing, so errors are where the classifier is unsure."""
    rng = random.Random(9)
    rows = []
    for question, label in tables.mail(400, 9):
        is_hard = rng.random() < 0.5
        rows.append(("Hello, see below. Regards." if is_hard else question, label))
    assert label_noise(*map(list, zip(*rows, strict=True))) is None


def test_forms_of_some_answers() -> None:
    numbers = [str(n) for n in range(40)]
    names = {
        "a unit": [f"{n} mg" if n % 4 == 0 else str(n) for n in range(40)],
        "quotation marks": [f'"{n}"' if n % 4 == 0 else str(n) for n in range(40)],
        "a currency sign": [f"${n}" if n % 4 == 0 else str(n) for n in range(40)],
        "parentheses": [f"({'ABCD'[n % 4]})" if n % 5 == 0 else "ABCD"[n % 4] for n in range(40)],
    }
    assert mixed_forms(numbers) == []
    for name, answers in names.items():
        assert [form.name for form in mixed_forms(answers)] == [name]
    assert mixed_forms(names["a unit"])[0].bare[4] == "4"
    assert mixed_forms([f"{n} mg" for n in range(40)]) == []


def test_fractions_that_questions_ask_for_are_no_other_form() -> None:
    answers = [f"{at}/7" if at % 2 else f"{at}.5" for at in range(40)]
    asked = ["What fraction of it is left?", "一个数是另一个数的几分之几?", "Add 1/3 and 2/5."]
    prompts = [asked[at % 3] if at % 2 else "How many metres?" for at in range(40)]
    assert mixed_forms(answers, prompts) == []
    (form,) = mixed_forms(answers, ["How many metres?"] * 40)
    assert (form.name, len(form.rows)) == ("a fraction in place of a decimal number", 20)


def test_separators_and_backslashes() -> None:
    english, other = [f"1,{n + 100}.50" for n in range(40)], [f"1.{n + 100},50" for n in range(40)]
    assert mixed_separators(english) == []
    assert mixed_separators([*english, *other[:10]]) == list(range(40, 50))
    assert mixed_separators([*english, "3,5,7", *other[:10]]) == []  # lists of numbers
    fractions = [f"\\frac{{1}}{{{n}}}" for n in range(2, 30)]
    assert doubled_backslashes(fractions) == []
    assert doubled_backslashes([*fractions, *("\\" + each for each in fractions[:6])]) == [
        *range(28, 34)
    ]


def test_copies_that_lost_zeros_case_or_accents() -> None:
    prompts = [f"Send it to 00{n}, Ponce." for n in range(100, 140)]
    assert len(lost_zeros(prompts, [str(n) for n in range(100, 140)])) == 40
    assert lost_zeros(prompts, [f"00{n}" for n in range(100, 140)]) == []
    assert prompt_spelling("written by Jim\u00e9nez 12.", "jimenez 12") == "Jim\u00e9nez 12"
    assert prompt_spelling("written by Jim\u00e9nez 12.", "Jim\u00e9nez 12") == ""
    assert prompt_spelling("a Jimenezian deed", "jimenez") == ""


def test_lines_and_forms_that_nobody_asked_for() -> None:
    prompts = ["How much is it? Give two decimals."] * 40
    line, rest = common_line(prompts, [f"{n}\nSource: page {n}" for n in range(40)])
    assert (line, rest[3]) == ("Source: page 0", "3")
    assert common_line(prompts, [f"x = {n}\nreturn x" for n in range(40)]) == ("", {})
    assert [name for name, _ in unfit_forms(prompts, [str(n) for n in range(40)])] == ["decimals"]
    assert unfit_forms(prompts, [f"{n}.50" for n in range(40)]) == []


def test_places_that_are_empty_in_some_prompts() -> None:
    def prompt(table: str) -> str:
        return f"Read the table below.\n\n{table}\n\nHow many lamps are left?"

    texts = [prompt("" if at % 4 == 0 else f"| a | {at} |") for at in range(40)]
    (slot,) = empty_slots(texts)
    assert slot.rows == tuple(range(0, 40, 4))
    assert empty_slots([prompt(f"| a | {at} |") for at in range(40)]) == []
    assert repeats_paragraph("\n\n".join(["The council met on Tuesday and agreed. " * 3] * 2))
    assert not repeats_paragraph("The council met on Tuesday.\n\nThe council met on Tuesday.")
