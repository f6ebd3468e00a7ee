"""False alarms that sound data of real projects raised, made again with small sets."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from grpodoctor.preflight.answers.requested.requested_formats import requested_formats
from grpodoctor.preflight.checks.reward.same_form import without_same_form
from grpodoctor.preflight.inputs.columns import answer_of
from grpodoctor.preflight.results.check_results import CheckFinding
from grpodoctor.preflight.texts.languages import is_rather, language_of
from grpodoctor.preflight.texts.normal_form import words_of
from tests.preflight.planted.cases import Case, Examined, examine
from tests.preflight.planted.tables import Row

_XML = "Respond in the following format:\n<reasoning>\n...\n</reasoning>\n<answer>\n...\n</answer>"
_R1 = (
    "The assistant first thinks and then answers. The reasoning and the answer are enclosed in "
    "tags, i.e., <think> reasoning process here </think> <answer> answer here </answer>."
)


def _sums(count: int = 40) -> list[tuple[str, int]]:
    chance = random.Random(5)
    pairs = [(chance.randint(11, 99), chance.randint(11, 99)) for _ in range(count)]
    return [(f"Ann has {a} pens and buys {b} more. What is the total?", a + b) for a, b in pairs]


def _chats(system: str, *, text: bool = False) -> list[Row]:
    return [
        {
            "prompt": f"{system}\nUser: {question}\nAssistant: <think>"
            if text
            else [{"role": "system", "content": system}, {"role": "user", "content": question}],
            "answer": str(answer),
        }
        for question, answer in _sums()
    ]


def _examined(folder: Path, code: str, rows: list[Row], reward: str = "") -> Examined:
    return examine(Case(name="set", rows=rows, reward=reward), folder, (code,))


def test_french_prompts_with_words_of_other_languages_are_french(tmp_path: Path) -> None:
    rows: list[Row] = [
        {
            "question": f"En {a} ans, Zoé aura {b} ans. De combien de pas avance Léo en {a} jours, "
            "et en combien de jours finit son ami ?",
            "answer": str(a + b),
        }
        for a in range(3, 13)
        for b in range(20, 24)
    ]
    assert not _examined(tmp_path / "french", "DAT114", rows).alarms
    for at in range(0, 40, 8):
        rows[at]["question"] = (
            f"Hoeveel appels heeft Jan als hij er {at + 2} van de {at + 9} geeft?"
        )
    assert "Dutch" in _examined(tmp_path / "mixed", "DAT114", rows).alarms[0]


def test_a_language_has_more_words_of_its_own() -> None:
    assert language_of("Erica en a fait de plus en deux jours, et elle en offre un.") == "French"
    assert not is_rather(
        "Bill met une boite de pain en vente, et les autres aussi", "Dutch", "French"
    )
    assert is_rather("Hoeveel appels heeft Jan als hij er 3 van de 5 geeft?", "Dutch", "French")


def test_the_format_that_prompts_ask_for_comes_before_the_bare_answer(tmp_path: Path) -> None:
    reward = """
def score(completions, answer, **kwargs):
    texts = [each[0]["content"].split("<answer>")[-1].split("</answer>")[0] for each in completions]
    return [2.0 if text.strip() == right else 0.0 for text, right in zip(texts, answer)]
"""
    examined = _examined(tmp_path, "REW104", _chats(_XML), reward)
    assert not [each for each in examined.alarms if "rejects" in each]


def test_tags_are_tried_with_the_white_space_of_the_prompt(tmp_path: Path) -> None:
    assert "<think> I think. </think> <answer> {answer} </answer>" in requested_formats([_R1])
    reward = """
def score(completions, answer, **kwargs):
    def content(text):
        if "</think> <answer>" not in text or "</answer>" not in text:
            return None
        return text.split("<answer>")[-1].replace("</answer>", "").strip()
    return [float(content(text) == right) for text, right in zip(completions, answer)]
"""
    assert not _examined(tmp_path, "REW101", _chats(_R1, text=True), reward).alarms


_BEHIND_A_THOUGHT = r"""
import re
def score(completions, answer, **kwargs):
    rewards = []
    for text, right in zip(completions, answer):
        behind = text.split("</think>")[1] if "<think>" in text and "</think>" in text else ""
        found = re.findall(r"\\boxed\{([^}]*)\}", behind)
        rewards.append(float(bool(found) and found[-1].strip() == right))
    return rewards
"""


def test_a_box_behind_a_thought_is_read(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"prompt": f"{question} Write the number in \\boxed{{}}.", "answer": str(answer)}
        for question, answer in _sums()
    ]
    for name, alarms in (("Qwen2.5-Math-1.5B", 1), ("DeepSeek-R1-Distill-Qwen-1.5B", 0)):
        case = Case(
            name="set",
            rows=rows,
            reward=_BEHIND_A_THOUGHT,
            run_config=f"model_name_or_path: org/{name}\nnum_generations: 8\nbeta: 0.0\n",
            framework="trl",
        )
        examined = examine(case, tmp_path / name, ("REW104",))
        assert "only behind a thought" in " ".join((*examined.alarms, *examined.notes))
        assert len(examined.alarms) == alarms
        assert not [each for each in examined.alarms if "critical" in each]


def test_a_layout_that_costs_a_part_is_not_unread(tmp_path: Path) -> None:
    reward = """
import re
def score(completions, answer, **kwargs):
    rewards = []
    for text, right in zip(completions, answer):
        shaped = re.match("^<think>.*</think><answer>.*</answer>$", text) is not None
        found = re.findall("<answer>(.*?)</answer>", text)
        rewards.append(float(shaped) + float(bool(found) and found[0] == right))
    return rewards
"""
    rows: list[Row] = [
        {
            "prompt": f"{text} Think in <think></think>, answer in <answer></answer>.",
            "answer": str(n),
        }
        for text, n in _sums()
    ]
    alarms = _examined(tmp_path, "REW104", rows, reward).alarms
    assert not [each for each in alarms if "critical" in each]
    assert [each for each in alarms if "line breaks costs 50%" in each]


def test_numbers_in_tags_and_signs_of_logic_tell_prompts_apart(tmp_path: Path) -> None:
    assert words_of("P \u2227 Q") != words_of("P \u2228 Q")
    assert words_of("3 \u00d7 4") == words_of("3 * 4")
    assert words_of("<b>bold</b> text<br/>") == words_of("bold text")
    rows: list[Row] = [
        {
            "question": f'This <path d="M {a}.5,{b}.2 L {b}.1,{a}.7"/> draws a shape. Name it.',
            "answer": "line",
        }
        for a, b in ((at, 97 - at) for at in range(10, 50))
    ]
    assert not _examined(tmp_path, "DAT107", rows).alarms


def test_a_solution_that_names_the_letter_agrees_with_it(tmp_path: Path) -> None:
    rows: list[Row] = []
    for at in range(40):
        options = [f"{at + 20}%", f"{at + 30}%", f"{at + 40}%", f"{at + 50}%"]
        listed = "\n".join(
            f"{letter}) {text}" for letter, text in zip("ABCD", options, strict=True)
        )
        rows.append(
            {
                "question": f"Of {at + 90} members, {at + 20}% play. How many swim?\n{listed}",
                "answer": "B",
                "rationale": f"Of them {at + 20}% play, so S = {at + 30}.\nAnswer: B",
            }
        )
    assert not _examined(tmp_path / "sound", "DAT113", rows).alarms
    for row in rows[::4]:
        row["rationale"] = row["rationale"].replace("Answer: B", "Answer: C")
    assert "differ from the solution" in " ".join(
        _examined(tmp_path / "wrong", "DAT113", rows).alarms
    )


def test_a_grid_may_be_a_part_of_another_grid(tmp_path: Path) -> None:
    chance = random.Random(3)
    rows: list[Row] = []
    for _ in range(40):
        grid = [[str(chance.randint(0, 9)) for _ in range(3)] for _ in range(6)]
        written = "\n".join(" ".join(line) for line in grid)
        cut = "\n".join(" ".join(line) for line in grid[1:4])
        rows.append(
            {"question": f"Cut the rows two to four out of the grid.\n{written}\n", "answer": cut}
        )
    assert not _examined(tmp_path, "DAT111", rows).alarms


def test_a_few_lists_of_options_are_no_baseline(tmp_path: Path) -> None:
    rows: list[Row] = [{"question": text, "answer": str(right)} for text, right in _sums(100)]
    rows[7] = {"question": "Which is even?\n(A) 3\n(B) 4\n(C) 5\n(D) 7", "answer": "B"}
    examined = _examined(tmp_path / "one", "DAT108", rows)
    assert not examined.alarms
    assert not examined.notes
    for at in range(20):
        rows[at] = {
            "question": f"Which is even?\n(A) {2 * at + 3}\n(B) {2 * at + 4}\n(C) {2 * at + 7}",
            "answer": "B",
        }
    assert "multiple choice" in _examined(tmp_path / "many", "DAT108", rows).alarms[0]


def test_a_few_answers_that_no_parser_reads_are_a_note(tmp_path: Path) -> None:
    rows: list[Row] = [{"question": text, "answer": str(right)} for text, right in _sums(64)]
    rows[9]["answer"] = "no total, because the pens are lost"
    reward = """
import re
def score(prompts, completions, answers):
    numbers = [re.findall(r"-?\\d+", text) for text in completions]
    return [float(bool(found) and found[-1] == right) for found, right in zip(numbers, answers)]
"""
    examined = _examined(tmp_path / "one", "REW101", rows, reward)
    assert not examined.alarms
    assert "1 of 64 correct answers" in " ".join(examined.notes)
    for at in range(9, 16):
        rows[at]["answer"] = "no total, because the pens are lost"
    assert "of 64 correct answers" in " ".join(
        _examined(tmp_path / "many", "REW101", rows, reward).alarms
    )


def test_a_line_break_behind_the_response_is_reported_once(tmp_path: Path) -> None:
    reward = r"""
import re
def score(completions, answer, **kwargs):
    found = [re.findall(r"<answer>(.*?)</answer>", text.split("\n")[-1]) for text in completions]
    return [float(bool(f) and f[-1].strip() == right) for f, right in zip(found, answer)]
"""
    alarms = _examined(tmp_path, "REW104", _chats(_R1, text=True), reward).alarms
    assert (
        len([each for each in alarms if "white space" in each or "line break behind" in each]) == 1
    )


@pytest.mark.parametrize("asked", ["(Answer Yes or No)", "(answer in one word)"])
def test_the_case_that_prompts_show_is_the_case_that_models_write(
    tmp_path: Path, asked: str
) -> None:
    rows: list[Row] = [
        {
            "question": f"All cats are pets. Some pets are {at} years old. Does it follow that cat "
            f"{at} is a pet? {asked} Write it in <answer></answer>.",
            "answer": "Yes" if at % 2 else "No",
        }
        for at in range(40)
    ]
    reward = r"""
import re
def score(prompts, completions, answers):
    found = [re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL) for text in completions]
    return [float(bool(f) and f[-1].strip() == right) for f, right in zip(found, answers)]
"""
    alarms = _examined(tmp_path, "REW104", rows, reward).alarms
    assert bool([each for each in alarms if "(case" in each]) == ("Yes" not in asked)


def test_the_answer_alone_belongs_into_its_tag(tmp_path: Path) -> None:
    rows: list[Row] = [
        {
            "prompt": [
                {"role": "system", "content": system},
                {"role": "user", "content": f"{question} Respond only with the number."},
            ],
            "answer": str(answer),
        }
        for system in (_R1, "Think step by step and explain your reasoning.")
        for question, answer in _sums()
    ]
    assert not _examined(tmp_path / "tags", "DAT131", rows[:40]).alarms
    assert _examined(tmp_path / "no tags", "DAT131", rows[40:]).alarms


def test_what_the_format_earns_is_reported_once() -> None:
    form, long, other = (
        CheckFinding(
            "warning", f"{kind}: earns {worth:.0%} of the …", ("Fix it.",), (), {"worth": worth}
        )
        for kind, worth in (("wrong answer", 0.56), ("long wrong answer", 0.56), ("several", 0.9))
    )
    kept = without_same_form([form, long, other])
    assert [each.summary for each in kept] == [form.summary, other.summary]
    assert "weights" in kept[0].advice[0]
    assert without_same_form([long, other]) == [long, other]


def test_a_function_that_reads_another_column_has_its_answers_there(tmp_path: Path) -> None:
    rows: list[Row] = [
        {
            "question": f"{text} Write the number in \\boxed{{}}.",
            "solution": f"Add the two numbers. This gives **{answer}** pens, so Ann has them all.",
            "final_answer": [str(answer)],
        }
        for text, answer in _sums()
    ]
    reward = r"""
import re
def score(completions, final_answer, **kwargs):
    found = [re.findall(r"\\boxed\{([^}]*)\}", text) for text in completions]
    return [float(bool(f) and f[-1] == right[0]) for f, right in zip(found, final_answer)]
"""
    assert not _examined(tmp_path, "REW101", rows, reward).alarms


def test_a_column_that_is_no_part_of_the_solution_is_no_result(tmp_path: Path) -> None:
    rows: list[Row] = [
        {
            "question": f"{text} Write the number in \\boxed{{}}.",
            "answer": str(answer),
            "level": 900,
        }
        for text, answer in _sums()
    ]
    reward = r"""
import re
def score(completions, level, **kwargs):
    found = [re.findall(r"\\boxed\{([^}]*)\}", text) for text in completions]
    return [float(bool(f) and f[-1] == str(right)) for f, right in zip(found, level)]
"""
    assert _examined(tmp_path, "REW101", rows, reward).alarms


def test_tests_are_no_answers_where_programs_are(tmp_path: Path) -> None:
    rows: list[Row] = [
        {
            "prompt": f"Write a function f(x) that returns x + {at}. Write only the code.",
            "answer": f"def f(x):\n    return x + {at}",
            "test_list": [f"assert f(1) == {at + 1}", f"assert f(5) == {at + 5}"],
        }
        for at in range(40)
    ]
    reward = """
def score(completions, test_list, **kwargs):
    rewards = []
    for text, tests in zip(completions, test_list):
        scope = {"__builtins__": {}}
        try:
            exec(text.split("```python")[-1].split("```")[0], scope)
            for test in tests:
                exec(test, scope)
            rewards.append(1.0)
        except Exception:
            rewards.append(0.0)
    return rewards
"""
    assert not _examined(tmp_path, "REW101", rows, reward).alarms


def test_the_last_of_several_labels_is_right_by_chance(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"question": f"Which of A, B, C and D is item {at}? End with 'Answer: X'.", "answer": label}
        for at, label in enumerate("ABCDDCBAACBD" * 5)
    ]
    reward = r"""
import re
def score(prompts, completions, answers):
    found = [re.findall(r"Answer: ([A-D])", text) for text in completions]
    return [float(bool(f) and f[PLACE] == right) for f, right in zip(found, answers)]
"""
    last = _examined(tmp_path / "last", "REW102", rows, reward.replace("PLACE", "-1")).alarms
    assert not [each for each in last if "several answers" in each]
    any_one = reward.replace("f[PLACE] == right", "right in f")
    paid = _examined(tmp_path / "any", "REW102", rows, any_one).alarms
    assert [each for each in paid if "several answers" in each]


def test_variables_are_no_words_of_another_language() -> None:
    assert not is_rather("Let w, z, i and o be numbers. Find w + z + i + o.", "Polish", "English")


_SCHEMA = '{"page": {"description": "The page to read.", "type": "int", "default": ""}}'
_CALL = '{"name": "Tool name", "parameters": {"Parameter name": "Parameter content"}}'


def _schema(at: int) -> str:
    return _SCHEMA.replace("page", f"page_{at % 5}") if at % 8 else "{}"


def _tool_prompt(name: str, parameters: str) -> str:
    return (
        f"You can use this tool:\nName: {name}\nDescription: It reads the news of a day.\n"
        f"Parameters: {parameters}\n\nWrite calls like this:\n<tool_call>\n{_CALL}\n</tool_call>"
    )


def test_the_example_of_a_call_is_no_schema(tmp_path: Path) -> None:
    rows: list[Row] = [
        {
            "question": f"{_tool_prompt(f'read_{at}', _SCHEMA)}\nRead page {at} of the news.",
            "answer": json.dumps({"name": f"read_{at}", "parameters": {"page": at}}),
        }
        for at in range(40)
    ]
    assert not _examined(tmp_path / "example", "DAT124", rows).alarms
    schema = json.dumps({"name": "read", "parameters": {"page": {"type": "integer"}}})
    for at, row in enumerate(rows):
        row["question"] = f"Tools: {schema}\nRead page {at} of the news."
    assert "no tool" in _examined(tmp_path / "schema", "DAT124", rows).alarms[0]


def test_a_tool_without_parameters_lacks_no_value(tmp_path: Path) -> None:
    rows: list[Row] = [
        {
            "question": f"{_tool_prompt('read', _schema(at))}\nRead page {at}.",
            "answer": str(at),
        }
        for at in range(40)
    ]
    assert not _examined(tmp_path / "tools", "DAT117", rows).alarms
    for at in range(0, 40, 8):
        rows[at]["question"] = f"{_tool_prompt('read', 'nan')}\nRead page {at}."
    assert "without its value" in " ".join(_examined(tmp_path / "nan", "DAT117", rows).alarms)
    for at in range(0, 40, 8):
        rows[at]["question"] = f"{_tool_prompt('read', 'None')}\nRead page {at}."
    assert "nothing, None" in " ".join(_examined(tmp_path / "none", "DAT117", rows).alarms)


def test_a_translation_leaves_handles_and_addresses_as_they_are(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"question": f"The bus of line {at} is late.", "answer": f"Der Bus der Linie {at} kommt."}
        for at in range(60)
    ]
    for at in range(0, 60, 10):
        text = f"@user{at} #train https://example.org/{at}/of/the/day"
        rows[at] = {"question": text, "answer": text}
    assert not _examined(tmp_path / "handles", "DAT111", rows).alarms
    for at in range(0, 60, 10):
        text = f"Der Bus der Linie {at} kommt heute etwas zu spät, und wir warten im Regen auf ihn."
        rows[at] = {"question": text, "answer": text}
    assert _examined(tmp_path / "copies", "DAT111", rows).alarms


def test_sentences_in_japanese_have_digits_of_full_width(tmp_path: Path) -> None:
    wide = str.maketrans("0123456789", "".join(chr(0xFF10 + digit) for digit in range(10)))
    rows: list[Row] = [
        {
            "question": f"Translate: the bus number {at} is late today.",
            "answer": f"{at}".translate(wide) + "番のバスは今日遅れています。",
        }
        for at in range(40)
    ]
    assert not _examined(tmp_path / "sentences", "DAT117", rows).alarms
    for at, row in enumerate(rows):
        row["answer"] = f"{at}".translate(wide)
    assert "full-width" in _examined(tmp_path / "numbers", "DAT117", rows).alarms[0]


def test_one_of_several_truth_values_is_no_answer() -> None:
    assert answer_of({"solution": [True, False, True]}) is None
    assert answer_of({"solution": [True]}) == "True"
    assert answer_of({"solution": ["yes", "true"]}) == "yes"


def test_the_answer_is_not_looked_for_in_the_tag_of_a_call(tmp_path: Path) -> None:
    system = (
        "To use a tool, write: <search>name(arguments)</search>\n"
        "To give your final answer, write: <answer>your answer</answer>"
    )
    words = ("a train station", "the eastern part of town", "an old wooden table", "some red wine")
    rows: list[Row] = [
        {
            "prompt": [{"role": "system", "content": system},
                       {"role": "user", "content": f"What is in room {at} of the house?"}],
            "answer": f"{words[at % 4]} with number {at}",
        }
        for at in range(40)
    ]  # fmt: skip
    reward = """
import re
def score(completions, answer, **kwargs):
    def overlap(text, right):
        found = re.findall("<answer>(.*?)</answer>", text, re.DOTALL)
        said = (found[-1] if found else text).lower().split()
        if not found and NEEDED:
            said = text.splitlines()[0].split() if text else []
        common = len(set(said) & set(right.lower().split()))
        return 2 * common / (len(said) + len(right.split()) or 1)
    return [overlap(c[0]["content"], a) for c, a in zip(completions, answer)]
"""
    sound = _examined(tmp_path / "sound", "REW104", rows, reward.replace("NEEDED", "True"))
    assert not [each for each in sound.alarms if "behind a line" in each]
    first = reward.replace("(.*?)</answer>", "(.*?)</none>").replace("NEEDED", "True")
    faulty = _examined(tmp_path / "first", "REW104", rows, first)
    assert [each for each in faulty.alarms if "behind a line" in each]
