"""False alarms that sound data of real code, question and text tasks raised, made again small."""

from __future__ import annotations

import random
from pathlib import Path
from string import ascii_lowercase

import pytest

from grpodoctor.preflight.answers.answer_variants import CASE, response_variants, variant_of
from grpodoctor.preflight.answers.completions.unasked_spellings import ANSWER_ONLY
from grpodoctor.preflight.answers.inferred_answers import program_of_assertions
from grpodoctor.preflight.answers.requested.asked_choices import asked_choices
from grpodoctor.preflight.answers.written_forms import mixed_forms
from grpodoctor.preflight.texts.label_noise import label_noise
from grpodoctor.preflight.texts.languages import language_of
from grpodoctor.preflight.texts.template_slots import repeats_paragraph
from tests.preflight.planted.cases import Case, Examined, examine
from tests.preflight.planted.tables import Row

_TOWNS = ("Bonn", "Cork", "Lyon", "Turin", "Ghent", "Porto", "Basel", "Derby", "Tartu", "Graz")
_RIVERS = ("Elbe", "Avon", "Loire", "Dora", "Lys", "Douro", "Aare", "Derwent", "Emajogi", "Mur")


def _examined(folder: Path, code: str, rows: list[Row], reward: str = "") -> Examined:
    return examine(Case(name="set", rows=rows, reward=reward), folder, (code,))


def _passages(count: int = 40) -> list[Row]:
    """Questions about passages; some answers are a whole clause of them."""
    rows: list[Row] = []
    for at in range(count):
        town, river = _TOWNS[at % 10], _RIVERS[at // 4 % 10]
        clause = f"the old mill of {town} was built from grey stone near the {river} weir"
        passage = f"In {1700 + at} {clause}. The miller Jan {river}mann sold it to a baker."
        answer = clause if at % 5 == 0 else f"Jan {river}mann"
        rows.append({"question": f"{passage}\nWhat does line {at} say?", "answer": answer})
    return rows


def test_spans_of_passages_are_no_leaked_solutions(tmp_path: Path) -> None:
    assert not _examined(tmp_path / "spans", "DAT111", _passages()).alarms
    solved = [row | {"answer": f"It is {at}"} for at, row in enumerate(_passages())]
    for at, row in enumerate(solved[::5]):
        row["answer"] = f"First count the {at + 3} mills and then add all of their stones"
        row["question"] = f"{row['question']} {row['answer']} Go on."
    assert _examined(tmp_path / "leak", "DAT111", solved).alarms


def test_a_summary_may_repeat_a_sentence_of_its_text(tmp_path: Path) -> None:
    rows: list[Row] = []
    for at in range(40):
        first = f"We study {at} mills of {_TOWNS[at % 10]} and find that most wheels turn slowly"
        answer = first if at % 8 == 0 else f"Wheels of {_TOWNS[at % 10]} are slower than others"
        text = f"{first}. The stones of mill {at} are grey."
        rows.append({"question": f"Summarize in one sentence.\n\n{text}", "answer": answer})
    assert not _examined(tmp_path, "DAT111", rows).alarms


def test_a_translation_leaves_names_as_they_are(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"question": f"Translate into German:\nThe mill {at} stands in {town}.",
         "answer": f"Die Mühle {at} steht in {town}."}
        for at, town in enumerate(_TOWNS * 4)
    ]  # fmt: skip
    for row, town in zip(rows[::8], _TOWNS, strict=False):
        row |= {"question": f"Translate into German:\n{town}", "answer": town}
    assert not _examined(tmp_path / "names", "DAT111", rows).alarms
    for row in rows[::8]:
        row["question"] = f"Translate into German:\nThe mill of {row['answer']}\n{row['answer']}"
    assert _examined(tmp_path / "leak", "DAT111", rows).alarms


def test_labels_and_references_in_prompts_are_no_quotations(tmp_path: Path) -> None:
    notices = [
        (
            f"The mill {at} of {town} closes.",
            f'{{"mill": {at}, "town": "{town}", "state": "shut", "until": "next May"}}',
        )
        for at, town in enumerate(_TOWNS * 4)
    ]
    labeled: list[Row] = [
        {"question": f"Extract JSON.\n{text}" + (f"\n<!-- {label} -->" if at % 5 == 2 else ""),
         "answer": label}
        for at, (text, label) in enumerate(notices)
    ]  # fmt: skip
    assert _examined(tmp_path / "label", "DAT111", labeled).alarms
    shown: list[Row] = [
        {"question": f"Translate.\nEnglish: The mill {at}\nGerman: Die Mühle {at} von {town} "
                     "steht am Ufer neben der Brücke",
         "answer": f"Die Mühle {at} von {town} steht am Ufer neben der Brücke"}
        for at, town in enumerate(_TOWNS * 4)
    ]  # fmt: skip
    assert _examined(tmp_path / "shown", "DAT111", shown).alarms
    source: list[Row] = [
        {"question": "Translate into German:\n" + (german if at % 6 == 1 else f"Mill {at} turns"),
         "answer": german}
        for at, german in enumerate(f"Die Mühle {at} dreht sich langsam" for at in range(60))
    ]  # fmt: skip
    assert _examined(tmp_path / "source", "DAT111", source).alarms


def test_right_programs_and_translations_differ(tmp_path: Path) -> None:
    rows: list[Row] = [
        {
            "question": f"Write a function that adds {at}.",
            "answer": f"def f(x):\n    return x + {at}",
        }
        for at in range(30)
    ]
    again = [rows[3] | {"answer": "def add(x):\n    y = x + 3\n    return y"}]
    assert not _examined(tmp_path / "code", "DAT107", rows + again).alarms
    texts = [row | {"answer": f"Zähle {at} zu der Zahl, die du bekommst, und gib sie aus"}
             for at, row in enumerate(rows)]  # fmt: skip
    other = [texts[3] | {"answer": "Gib die Zahl, die du bekommst, um drei erhöht wieder zurück"}]
    assert not _examined(tmp_path / "text", "DAT107", texts + other).alarms
    short = [row | {"answer": str(at)} for at, row in enumerate(rows)]
    contradiction = [short[3] | {"answer": "8"}]
    assert "contradictory" in _examined(tmp_path / "no", "DAT107", short + contradiction).alarms[0]


def test_solutions_contradict_each_other_by_their_final_answers(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"question": f"How much is {at} and 4?", "answer": f"{at} + 4 = {at + 4}\n#### {at + 4}"}
        for at in range(30)
    ]
    longer = [rows[5] | {"answer": "Start at 5. Count four further.\n#### 9"}]
    assert not _examined(tmp_path, "DAT107", rows + longer).alarms


def test_a_paragraph_that_is_a_part_of_the_content_is_no_joint() -> None:
    same = "I would love to see you at the game night on Friday, snacks are there. Bring a friend."
    others = [f"{name} writes about the plan of the week and asks for an answer soon, please do so."
              for name in _TOWNS[:4]]  # fmt: skip
    assert not repeats_paragraph("\n\n".join([same, *others, same]))
    assert repeats_paragraph("\n\n".join([same, others[0], same, others[0]]))


def test_numbers_of_another_magnitude_order_or_era_have_no_unit() -> None:
    words = ["4th", "360 million", "1045 BC", "19th", "2 thousand", "12th"]
    plain = [str(at) for at in range(30)]
    assert not mixed_forms(words + plain)
    assert mixed_forms([f"{at} km" for at in range(6)] + plain)[0].name == "a unit"


def test_keys_of_a_schema_are_no_choices() -> None:
    schema = '{"parameters": {"type": "dict", "properties": {"base": {"type": "integer"}}}}'
    assert asked_choices([f"{schema}\nCall {at}." for at in range(20)]) == ()
    assert asked_choices(['Say "dict" or "list".'] * 20) == ("dict", "list")
    assert asked_choices(["End with 'Answer: (A)' or 'Answer: (B)'."] * 20) == ("A", "B")


def test_kana_in_a_name_make_no_japanese_text() -> None:
    chinese = (
        "这首歌由日本歌手演唱。收录在第三张专辑中。发行后受到了许多听众的欢迎。后来又再版了两次"
    )
    assert language_of(f"{chinese}。原名为さくら。") == "Chinese"
    assert language_of("この歌は春に発売されました。") == "Japanese"


_BUY_OR_SELL = """
def score(completions, move, **kwargs):
    return [float(("up" in text) == (value > 0)) for text, value in zip(completions, move)]
"""


def test_an_empty_column_that_the_reward_does_not_read(tmp_path: Path) -> None:
    rows: list[Row] = [
        {
            "prompt": f"Prices of {town}: {at}, {at + 2}. Up or down?",
            "label": "",
            "move": 1 - at % 3,
        }
        for at, town in enumerate(_TOWNS * 4)
    ]
    assert not _examined(tmp_path / "other", "DAT112", rows, _BUY_OR_SELL).alarms
    reads = _BUY_OR_SELL.replace("move, **", "label, **").replace(
        "zip(completions, move)", "zip(completions, map(len, label))"
    )
    assert _examined(tmp_path / "read", "DAT112", rows, reads).alarms


_CITED = """
import re

def score(completions, answer, **kwargs):
    found = [set(re.findall(r"KB-\\d+", text)) for text in completions]
    return [
        2 * len(own & set(right)) / (len(own) + len(right)) if own or right else 1.0
        for own, right in zip(found, answer)
    ]
"""


def test_a_list_without_elements_is_an_answer_if_silence_is_paid(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"question": f"Which articles help with fault {at}?", "answer": [f"KB-{at:05}"]}
        for at in range(40)
    ]
    for row in rows[::8]:
        row["answer"] = []
    assert not _examined(tmp_path / "paid", "DAT112", rows, _CITED).alarms
    unpaid = _CITED.replace("else 1.0", "else 0.0")
    assert _examined(tmp_path / "unpaid", "DAT112", rows, unpaid).alarms


def test_identifiers_are_copied_with_their_case() -> None:
    other_case = response_variants("{answer}")[CASE]
    assert variant_of(other_case, "{answer}", "KB-00001") is None
    assert variant_of(other_case, "{answer}", "Oslo") == "OSLO"


def test_tests_call_the_function_of_another_column() -> None:
    tests = "def check(candidate):\n    assert True\n    assert candidate(2) == 4\n"
    scope: dict[str, object] = {}
    exec(program_of_assertions(tests, "double"), scope)  # noqa: S102 - made here
    assert scope["double"](2) == 4  # type: ignore[operator]
    assert not program_of_assertions(f"{tests}    assert abs(candidate(3)) < 9\n", "double")


@pytest.mark.parametrize(
    "prompt",
    [
        "根据文章回答问题\uff0c只输出文章中的原文片段。",
        "Antworte nur mit der Zahl.",
        "Répondez uniquement par le mot.",
        "Answer with the name of the intent only.",
    ],
)
def test_prompts_of_several_languages_forbid_reasoning(prompt: str) -> None:
    assert ANSWER_ONLY.search(prompt)
    assert not ANSWER_ONLY.search("Ana tiene solo el doble. Jan hat nur die H\u00e4lfte davon.")


def test_questions_may_end_with_a_preposition_or_a_name(tmp_path: Path) -> None:
    ends = ("is it known for", "was it filmed in", "does it come from", "was built by Ann Mur")
    rows: list[Row] = [
        {"question": f"Which film of {town} {_RIVERS[at % 10]} with {at} scenes and old music "
                     + (ends[at // 6 % 4] if at % 6 == 0 else "was made first?"),
         "answer": str(at)}
        for at, town in enumerate(_TOWNS * 6)
    ]  # fmt: skip
    assert not _examined(tmp_path / "sound", "DAT115", rows).alarms
    for row in rows[::6]:
        row["question"] = f"{row['question'][:58]} that is of the"
    assert _examined(tmp_path / "cut", "DAT115", rows).alarms


def test_a_label_that_attracts_the_errors_of_all_others_is_no_noise() -> None:
    """Reports on games are long, and so a classifier of words takes other long texts for them."""
    chance = random.Random(4)
    topics = {
        name: [name + end for end in ascii_lowercase[:12]] for name in ("tax", "law", "ball", "med")
    }
    common = ["n" + one + two for one in ascii_lowercase for two in ascii_lowercase][:300]
    labels = [list(topics)[at % 4] for at in range(240)]
    lengths = [80 if each == "ball" or chance.random() < 0.2 else 30 for each in labels]
    prompts = [
        " ".join(chance.sample(topics[label], 2) + chance.sample(common, length))
        for label, length in zip(labels, lengths, strict=True)
    ]
    assert label_noise(prompts, labels) is None
    mixed = [chance.choice(list(topics)) if chance.random() < 0.25 else each for each in labels]
    clear = [" ".join(chance.sample(topics[each], 5)) for each in labels]
    assert label_noise(clear, mixed) is not None


_JSON_REVIEW = (
    'You review code. Think step by step. Reply in JSON with the keys "thoughts" and "verdict".'
)


def test_reasons_in_a_field_of_the_only_json_object(tmp_path: Path) -> None:
    def rows(ends: str) -> list[Row]:
        return [
            {"prompt": [{"role": "system", "content": _JSON_REVIEW},
                        {"role": "user", "content": f"Change {at} of {town}. {ends}"}],
             "answer": "ok"}
            for at, town in enumerate(_TOWNS * 3)
        ]  # fmt: skip

    assert not _examined(tmp_path / "json", "DAT131", rows("Respond with ONLY JSON.")).alarms
    assert _examined(tmp_path / "word", "DAT131", rows("Answer with one word, only.")).alarms


def test_braces_within_code_are_no_placeholders(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"question": f"Review change {at}:\n1. url = f'/find?q={{query}}&p={at}'", "answer": "ok"}
        for at in range(30)
    ]
    assert not _examined(tmp_path / "code", "DAT117", rows).alarms
    text: list[Row] = [{"question": f"Review {at}: {{query}}", "answer": "ok"} for at in range(30)]
    assert _examined(tmp_path / "text", "DAT117", text).alarms


_ACTION = """
def score(completions, action, target, **kwargs):
    return [
        0.5 * (text.split()[:1] == [one]) + 0.5 * (text.split()[:2] == [one, other])
        for text, one, other in zip(completions, action, target)
    ]
"""


def test_a_reward_of_two_columns_gets_both(tmp_path: Path) -> None:
    actions = ("REPAIR", "MONITOR", "ISOLATE")
    rows: list[Row] = [
        {"prompt": f"Grid {at} of {town} is at {at} percent. What now?",
         "action": actions[at % 3], "target": town}
        for at, town in enumerate(_TOWNS * 4)
    ]  # fmt: skip
    alarms = _examined(tmp_path, "REW101", rows, _ACTION).alarms
    assert not [each for each in alarms if "another column" in each]


_NEAR_LABEL = """
def score(completions, label, **kwargs):
    return [
        max(0.0, 1 - abs(int(text[-1]) - int(right)) / 5) if text[-1:].isdigit() else 0.0
        for text, right in zip(completions, label)
    ]
"""


def test_a_neighboring_label_earns_a_part(tmp_path: Path) -> None:
    chance = random.Random(3)
    rows: list[Row] = [
        {"question": f"Rate claim {at} of {town} from 0 to 5.", "label": chance.randrange(6)}
        for at, town in enumerate(_TOWNS * 12)
    ]
    alarms = _examined(tmp_path, "REW102", rows, _NEAR_LABEL).alarms
    assert not [each for each in alarms if "label =" in each]
