"""Normal form, overlap, languages, and the relation of prompts to answers."""

import random

import pytest

from grpodoctor.preflight.answers.stated_answers import final_answer, states_answer
from grpodoctor.preflight.texts.affixes import without_affixes
from grpodoctor.preflight.texts.alignment import shift_of_sizes, shift_of_words
from grpodoctor.preflight.texts.encoded_twice import has_escapes, is_written_object
from grpodoctor.preflight.texts.languages import language_of
from grpodoctor.preflight.texts.normal_form import number_of, words_of
from grpodoctor.preflight.texts.overlap import overlapping


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("Find $\\dfrac12$ of  1,200.", "find \\frac12 of 1200", True),
        ("\u201cWhat\u00a0is it?\u201d", "what is it", True),
        ("a well-known fact", "A well known fact!", True),
        ("3+4", "3-4", False),
        ("3 \u2212 4", "3-4", True),
        ("[0, 1)", "(0, 1]", False),
        ("1.5", "15", False),
    ],
)
def test_normal_form(left: str, right: str, *, same: bool) -> None:
    assert (words_of(left) == words_of(right)) is same


def test_a_number_is_the_whole_text() -> None:
    assert number_of(" -1,234.5 ") == -1234.5
    assert number_of("12 apples") is None


def test_instructions_are_removed() -> None:
    texts = [("please", "solve", str(at), "now") for at in range(10)]
    assert without_affixes(texts) == [(str(at),) for at in range(10)]
    assert without_affixes(texts[:3]) == texts[:3]  # too few to know an instruction
    assert without_affixes([("same",)] * 9) == [("same",)] * 9


def test_overlap_ignores_what_surrounds_a_text() -> None:
    question = "what is {0} apples plus {0} pears in total today"
    tested = [words_of(f"Question: {question.format(at)}?") for at in range(9)]
    others = [words_of(f"Answer briefly. {question.format(at)}") for at in range(7, 20)]
    assert overlapping(tested, others) == {7: 0, 8: 1}
    long = words_of(f"In the morning a boy asks the question {question.format(3)} and leaves")
    assert overlapping(tested, [long]) == {3: 0}
    assert overlapping([words_of("two plus two")], [words_of("what is two plus two")]) == {}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How many pears are there in each of the boxes?", "English"),
        ("Wie viele Birnen sind in jeder der Kisten auf dem Markt?", "German"),
        ("Combien de poires y a-t-il dans chaque caisse sur le march\u00e9 ?", "French"),
        ("\u5c0f\u660e\u4e70\u4e86\u4e09\u7bb1\u68a8", "Chinese"),
        ("\u68a8\u306f\u3044\u304f\u3064\u3042\u308a\u307e\u3059\u304b", "Japanese"),
        ("Compute $\\sum_{i=1}^n i$", ""),
        ("12 + 7 =", ""),
    ],
)
def test_languages(text: str, language: str) -> None:
    assert language_of(text) == language


WORDS = [f"w{chr(97 + at % 26)}{chr(97 + at // 26)}x" for at in range(60)]


def test_shifted_texts_are_found_and_others_are_not() -> None:
    prompts = [f"explain the word {word}" for word in WORDS]
    answers = [f"the word {word} means this" for word in WORDS]
    assert shift_of_words(prompts, answers) is None
    shift = shift_of_words(prompts[:-2], answers[2:])
    assert shift is not None
    assert shift.rows == -2
    assert shift_of_words(prompts, random.Random(1).sample(answers, 60)) is None
    assert shift_of_words(prompts[:10], answers[1:11]) is None  # too few rows


def test_shifted_numbers_are_found_and_others_are_not() -> None:
    rng = random.Random(2)
    pairs = [(rng.randint(2, 900), rng.randint(2, 900)) for _ in range(80)]
    prompts, answers = [f"{a} times {b}" for a, b in pairs], [float(a * b) for a, b in pairs]
    assert shift_of_sizes(prompts, answers) is None
    shift = shift_of_sizes(prompts[1:], answers[:-1])
    assert shift is not None
    assert shift.rows == 1
    unrelated = [float(rng.randint(1, 10**6)) for _ in range(80)]
    assert shift_of_sizes(prompts, unrelated) is None


@pytest.mark.parametrize(
    ("prompt", "answer", "states"),
    [
        ("What is 3+4? The answer is 7.", "7", True),
        ("What is 3+4?\n7", "7", True),
        ("What is 3+4? #### 7", "so\n#### 7", True),
        ("What is 3+4? Write \\boxed{7}", "7", True),
        ("What is 3+4? Put the final answer in \\boxed{}.", "7", False),
        ("The result of 7 games is known. How many were won?", "7", False),
        ("Three and four are added. Therefore three and four are seven in total.",
         "Three and four are added. Therefore three and four are seven in total.", True),
    ],
)  # fmt: skip
def test_stated_answers(prompt: str, answer: str, *, states: bool) -> None:
    assert states_answer(prompt, answer) is states


def test_the_final_answer_is_extracted() -> None:
    assert final_answer("so $\\boxed{\\frac{1}{2}}$") == "\\frac{1}{2}"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        (r"Tom has 3 pears.\nHow many are left?", True),
        (r"First line\n\nSecond line", True),
        (r"Le march\u00e9 ouvre.", True),
        ("Tom has 3 pears.\nHow many are left?", False),
        (r"Print the values, separated by '\n'.", False),
        (r'Write `print("a\nB")` in C.', False),
        (r"Show that $a\neq b$ and a\nRightarrow b, \nabla f = 0, x\text{ cm}", False),
    ],
)
def test_escapes_are_found_outside_code_and_formulas(text: str, *, escaped: bool) -> None:
    assert has_escapes(text) == escaped


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("[{'role': 'user', 'content': 'Hi'}]", True),
        ('[{"content": "Hi", "role": "user"}]', True),
        ('{"from": "human", "value": "Hi"}', True),
        ("array([{'role': 'user', 'content': 'Hi'}], dtype=object)", True),
        ('Parse this object: {"role": "admin"}', False),
        ("{1, 2, 3} is a set. What is its size?", False),
    ],
)
def test_messages_written_as_text_are_found(text: str, *, written: bool) -> None:
    assert is_written_object(text) == written
