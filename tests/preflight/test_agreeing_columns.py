"""Columns that name other options, kinds of answers in other rows, and texts with other ends."""

from __future__ import annotations

import random

import pytest

from grpodoctor.preflight.texts.agreeing_columns import disagreeing_columns
from grpodoctor.preflight.texts.kind_alignment import partial_shift_of_kinds, shift_of_kinds
from grpodoctor.preflight.texts.normal_form import loose_words_of
from grpodoctor.preflight.texts.other_ends import with_other_ends
from grpodoctor.preflight.texts.template_slots import empty_slots

_TEXTS = ("oak", "elm", "fir", "ash")


def _choices(further: int, wrong: int) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    rng = random.Random(1)
    options, rows = [], []
    for at in range(100):
        texts = rng.sample(_TEXTS, 4)
        place = rng.randrange(4)
        letter = "ABCD"[(place + further + (at < wrong)) % 4]
        options.append(dict(zip("ABCD", texts, strict=True)))
        rows.append({"letter": letter, "right": texts[place], "id": str(at)})
    return options, rows


@pytest.mark.parametrize(("further", "wrong", "rows"), [(0, 0, 0), (1, 0, 100), (0, 6, 6)])
def test_letters_and_texts_that_disagree(further: int, wrong: int, rows: int) -> None:
    found = disagreeing_columns(*_choices(further, wrong))
    assert (len(found.rows) if found else 0) == rows
    assert found is None or (found.distance == further and found.compared == 100)


def test_a_distractor_disagrees_by_chance() -> None:
    rng = random.Random(2)
    options, rows = _choices(0, 0)
    for row in rows:
        row["rejected"] = rng.choice([text for text in _TEXTS if text != row["right"]])
    assert disagreeing_columns(options, rows) is None
    pairs = [dict(zip("AB", each.values(), strict=False)) for each in options]
    both = [{"chosen": "A" if at % 3 else "B", "rejected": "B" if at % 3 else "A"}
            for at in range(100)]  # fmt: skip
    assert disagreeing_columns(pairs, both) is None


def _questions(count: int) -> tuple[list[str], list[str]]:
    rng = random.Random(3)
    prompts, answers = [], []
    for _ in range(count):
        thing = rng.choice(("mill", "tower", "bridge", "barn"))
        prompt, answer = rng.choice((
            (f"How many windows has the {thing}?", str(rng.randint(1, 9))),
            (f"Is the {thing} old?", rng.choice(("yes", "no"))),
            (f"What colour is the {thing}?", rng.choice(("red", "blue", "white"))),
        ))  # fmt: skip
        prompts.append(prompt)
        answers.append(answer)
    return prompts, answers


def test_kinds_of_answers_in_other_rows() -> None:
    prompts, answers = _questions(300)
    assert shift_of_kinds(prompts, answers) is None
    assert partial_shift_of_kinds(prompts, answers) is None
    moved = [*answers[-1:], *answers[:-1]]
    whole = shift_of_kinds(prompts, moved)
    assert whole is not None
    assert whole.rows == 1
    part = partial_shift_of_kinds(prompts, [*answers[:200], *moved[200:]])
    assert part is not None
    assert part.shift.rows == 1
    assert abs(part.start - 200) < 8
    assert part.stop > 290


def test_kinds_in_order_or_without_a_sign_are_not_displaced() -> None:
    prompts, answers = _questions(300)
    order = sorted(range(300), key=lambda at: prompts[at][:5])
    rows = [prompts[at] for at in order], [answers[at] for at in order]
    assert shift_of_kinds(*rows) is None
    assert partial_shift_of_kinds(*rows) is None
    turns = [("yes", "7", "red")[at % 3] for at in range(300)]
    same = [f"Solve the riddle {at}." for at in range(300)]
    assert shift_of_kinds(same, turns) is None
    assert partial_shift_of_kinds(same, turns) is None


def _letters(count: int, seed: int, greeting: str) -> list[tuple[str, ...]]:
    rng = random.Random(seed)
    return [
        loose_words_of(f"{greeting}, my parcel {rng.randint(10**5, 10**6)} went to a house in "
                       f"street {rng.randint(1, 99)} and nobody there has seen it since.")
        for _ in range(count)
    ]  # fmt: skip


def test_copies_with_another_greeting() -> None:
    trained = _letters(100, 4, "Good morning")
    held_out = [*_letters(20, 4, "Hi"), *_letters(20, 5, "Hi")]
    assert with_other_ends(held_out, trained) == {at: at for at in range(20)}
    assert with_other_ends(held_out[20:], trained) == {}


def test_texts_of_one_template_share_their_ends_by_chance() -> None:
    rng = random.Random(6)
    who, what = ("the baker", "my cousin", "a doctor", "our friend"), ("clock", "boat", "lamp")
    texts = [
        loose_words_of(f"{rng.choice(who)} sells the old {rng.choice(what)} on every second Monday "
                       "of the month at the harbour market")
        for _ in range(200)
    ]  # fmt: skip
    assert with_other_ends(texts[:80], texts[80:]) == {}


def test_a_phrase_of_many_turns_is_no_template() -> None:
    rng = random.Random(7)
    turns = ("I called you twice.", "Nobody answers me.", "The driver did not ring.")
    talks = [
        "\n".join(f"{rng.choice(turns)}\nI am sorry to hear that. It is day {rng.randint(1, 9)}."
                  for _ in range(12))
        for _ in range(100)
    ]  # fmt: skip
    assert empty_slots(talks) == []
