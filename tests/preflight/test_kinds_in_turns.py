"""Tables in which kinds of questions take turns, as `interleave_datasets` writes them."""

import random

import pytest

from grpodoctor.preflight.texts.alignment import shift_of_sizes
from grpodoctor.preflight.texts.result_alignment import are_own_results, shift_of_results

NAMES = ["Ann", "Bob", "Cleo", "Dan", "Eve", "Finn"]


def _word_problems(count: int, seed: int) -> tuple[list[str], list[float]]:
    rng = random.Random(seed)
    prompts, answers = [], []
    for index in range(count):
        first, second, few = rng.randint(3, 60), rng.randint(3, 60), rng.randint(2, 9)
        one, other = rng.sample(NAMES, 2)
        text, answer = (
            (f"{one} has {first} pens and {other} gives {second} more. How many?", first + second),
            (f"A box holds {first} pens. {one} buys {few} boxes. How many?", first * few),
            (f"{one} had {first + second} pens and lost {second}. How many are left?", first),
            (f"{one} packs {first * few} pens into {few} bags. How many in each?", first),
        )[index % 4]
        prompts.append(text)
        answers.append(float(answer))
    return prompts, answers


@pytest.mark.parametrize("seed", range(5))
def test_answers_of_their_own_prompts_are_not_displaced(seed: int) -> None:
    prompts, answers = _word_problems(200, seed)
    assert are_own_results(prompts, answers)
    assert shift_of_results(prompts, answers) is None
    assert shift_of_sizes(prompts, answers) is None


@pytest.mark.parametrize("rows", [-2, 1, 3])
def test_displaced_results_are_found_at_their_distance(rows: int) -> None:
    prompts, answers = _word_problems(200, 7)
    moved = [answers[(at - rows) % len(answers)] for at in range(len(answers))]
    assert not are_own_results(prompts, moved)
    found = shift_of_results(prompts, moved)
    assert found is not None
    assert found.rows == rows


def test_sizes_that_return_with_each_turn_are_no_displacement() -> None:
    rng = random.Random(3)
    prompts = [
        f"Add {rng.randint(800, 999)} and one." if at % 3 == 0 else f"Guess {rng.randint(1, 9)}."
        for at in range(240)
    ]
    answers = [rng.uniform(500, 900) if at % 3 == 1 else rng.uniform(1, 9) for at in range(240)]
    assert shift_of_sizes(prompts, answers) is None


def test_a_displacement_without_turns_is_still_found_by_size() -> None:
    rng = random.Random(4)
    sizes = [rng.randint(2, 5000) for _ in range(240)]
    prompts = [f"A town has {size} people. How much water do they drink?" for size in sizes]
    answers = [size * rng.uniform(2.5, 3.5) for size in sizes]
    moved = [answers[-1], *answers[:-1]]
    found = shift_of_sizes(prompts, moved)
    assert found is not None
    assert found.rows == 1


def test_numbers_without_a_relation_have_no_result() -> None:
    rng = random.Random(5)
    prompts = [f"Item {rng.randint(1, 99)} of {rng.randint(1, 99)}" for _ in range(200)]
    answers = [float(rng.randint(1, 99)) for _ in range(200)]
    assert not are_own_results(prompts, answers)
    assert shift_of_results(prompts, answers) is None
