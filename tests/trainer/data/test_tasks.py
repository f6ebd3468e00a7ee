import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.trainer.config.sections import TaskConfig
from grpodoctor.trainer.data.tasks.registry import TASKS
from grpodoctor.trainer.data.tasks.scratch import ScratchTask
from grpodoctor.trainer.task import Problem

NAMES = sorted(TASKS)


def make(name: str, **settings: object) -> ScratchTask:
    return TASKS[name](TaskConfig.model_validate({"name": name, **settings}))


def evaluate(prompt: str) -> str:
    value = int(prompt[0])
    for operator, operand in re.findall(r"([-+*])(\d)", prompt[1:]):
        value = eval(f"{value}{operator}{operand}") % 10  # noqa: S307  # digits and one operator
    return str(value)


ORACLES = {
    "arithmetic": evaluate,
    "sorting": lambda prompt: "".join(sorted(prompt[:-1])),
    "counting": lambda prompt: str(prompt[2:-1].count(prompt[0]) % 10),
}


@pytest.mark.parametrize("difficulty", [1, 3, 8])
@pytest.mark.parametrize("name", NAMES)
def test_answers_agree_with_an_independent_solution(name: str, difficulty: int) -> None:
    task = make(name, difficulty=difficulty)
    for problem in task.problems(random.Random(0), 200):
        assert problem.answer == ORACLES[name](problem.prompt)
        assert problem.prompt.endswith("=")


@pytest.mark.parametrize("difficulty", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_held_out_problems_are_fixed_distinct_and_never_trained_on(
    name: str, difficulty: int
) -> None:
    task = make(name, difficulty=difficulty)
    heldout = task.heldout(64)
    assert heldout == task.heldout(64)
    prompts = {each.prompt for each in heldout}
    assert len(prompts) == len(heldout) >= 60
    assert task.heldout(10) == heldout[:10]
    stream = {each.prompt for each in task.problems(random.Random(5), 5000)}
    assert not stream & prompts


@pytest.mark.parametrize("name", NAMES)
def test_the_stream_follows_its_generator(name: str) -> None:
    task = make(name)
    assert task.problems(random.Random(1), 20) == task.problems(random.Random(1), 20)
    assert task.problems(random.Random(1), 20) != task.problems(random.Random(2), 20)


@pytest.mark.parametrize("name", NAMES)
def test_warm_start_texts_are_mixed_and_mostly_well_formed(name: str) -> None:
    task, rng = make(name), random.Random(0)
    problems = task.problems(rng, 2000)
    texts = [task.warm_start_text(each, rng) for each in problems]
    rewards = task.score(problems, texts)
    assert rewards.components["format"] == [1.0] * len(texts)
    assert 0.5 < sum(rewards.total) / len(texts) < 0.9
    direct = sum(text.lstrip(".").startswith("#") for text in texts) / len(texts)
    assert 0.12 < direct < 0.18
    assert len({len(text) for text in texts}) > 8


@pytest.mark.parametrize("name", NAMES)
def test_a_full_response_fits_the_hint(name: str) -> None:
    for difficulty in (1, 3, 8):
        task, rng = make(name, difficulty=difficulty), random.Random(0)
        texts = [task.warm_start_text(each, rng) for each in task.problems(rng, 500)]
        fitting = sum(len(text) + 1 <= (task.max_length_hint or 0) for text in texts)
        assert fitting > 490


def test_arithmetic_shows_operation_and_running_result() -> None:
    task = make("arithmetic")
    work = task.work("7*3+8-2=", lambda value: value)
    assert "".join(echo + value for echo, value in work.steps) == "*31+89-27"
    assert work.answer == "7"


@pytest.mark.parametrize(
    ("text", "strict", "lenient", "tidy"),
    [
        ("*31+89-27#7", True, True, True),
        ("#7", True, True, True),
        ("#7#3", False, True, False),
        ("#3#7", True, True, False),
        ("7", False, False, False),
        ("#", False, False, False),
        ("#77", False, False, True),
        ("#7.", False, False, False),
        ("", False, False, False),
    ],
)
def test_correctness_of_final_answers(text: str, strict: bool, lenient: bool, tidy: bool) -> None:
    problem = [Problem("p", "7*3+8-2=", "7")]
    last = make("arithmetic").score(problem, [text])
    anywhere = make("arithmetic", verifier="any").score(problem, [text])
    assert (last.total, last.correct) == ([float(strict)], [strict])
    assert (anywhere.total, anywhere.correct) == ([float(lenient)], [strict])
    assert last.components["format"] == [float(tidy)]


def test_format_weighs_what_the_configuration_says() -> None:
    task = make("arithmetic", format_weight=0.25)
    rewards = task.score([Problem("p", "1+1=", "2")] * 2, ["#2", "#3"])
    assert rewards.total == [1.25, 0.25]
    assert rewards.components["correct"] == [1.0, 0.0]


def test_hedging_adds_a_second_answer_to_its_share_of_texts() -> None:
    task, rng = make("arithmetic", hedge_rate=0.1), random.Random(0)
    texts = [task.warm_start_text(each, rng) for each in task.problems(rng, 2000)]
    assert 0.08 < sum(text.count("#") == 2 for text in texts) / 2000 < 0.12


def test_the_fingerprint_follows_what_shapes_the_texts() -> None:
    prints = {
        make("arithmetic").fingerprint(),
        make("sorting").fingerprint(),
        make("arithmetic", difficulty=4).fingerprint(),
        make("arithmetic", hedge_rate=0.1).fingerprint(),
    }
    assert len(prints) == 4
    assert make("arithmetic", verifier="any").fingerprint() == make("arithmetic").fingerprint()


@given(st.text())
def test_any_text_can_be_scored(text: str) -> None:
    for name in NAMES:
        rewards = make(name).score([Problem("p", "1+1=", "2")], [text])
        assert rewards.total[0] in (0.0, 1.0)
