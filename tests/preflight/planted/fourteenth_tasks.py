"""Sound rows and sound reward functions for the tasks of the fourteenth examination."""

from __future__ import annotations

import json

from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted.tables import Row

TEXT = "    text = completion if isinstance(completion, str) else completion[-1]['content']\n"
ANSWER_TAGS = "Think first. Then put only the final answer between <answer> and </answer>."
BOXED = "\nReason step by step and put the final answer in \\boxed{}."

TAGGED = r"""
import re
def _answer(completion):
    text = completion if isinstance(completion, str) else completion[-1]["content"]
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[0].strip() if len(found) == 1 else None
def _number(text):
    try:
        return float((text or "").replace(",", "").replace("$", "").strip().rstrip("."))
    except ValueError:
        return None
def correct(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        given = _answer(completion)
        same = given is not None and given.casefold() == str(right).strip().casefold()
        number = _number(given)
        rewards.append(float(same or (number is not None and number == _number(str(right)))))
    return rewards
"""
BOX = r"""
import re
def _box(text):
    at = text.rfind("\\boxed{")
    if at < 0:
        return ""
    depth = 0
    for end in range(at + 6, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[at + 7 : end]
    return ""
def _normal(text):
    text = re.sub(r"\\left|\\right|\\[,;! ]|\\text\{.*?\}|[\s$]|(?<=\d),(?=\d{3})", "", text)
    text = text.replace("dfrac", "frac").replace("tfrac", "frac").rstrip(".")
    text = re.sub(r"\\frac(\d)(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac\{(-?\d+)\}\{(\d+)\}", r"\1/\2", text)
    text = re.sub(r"\\sqrt\{?(\w+)\}?", r"sqrt\1", text)
    return re.sub(r"^(-?\d+)\.0+$", r"\1", text)
def boxed(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        given = _normal(_box(text))
        rewards.append(float(bool(given) and given == _normal(str(right))))
    return rewards
"""
ASSERTS = r"""
import re, secrets, subprocess, sys
def tests_pass(completions, tests, **kwargs):
    rewards = []
    for completion, asserts in zip(completions, tests):
        found = re.findall(r"```(?:python|py)?\s*\n(.*?)```", completion[-1]["content"], re.DOTALL)
        token = secrets.token_hex(8)
        program = (found[-1] if found else "raise SystemExit(1)") + "\n" + "\n".join(asserts)
        program += f"\nprint({token!r})"
        try:
            done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=5)
        except subprocess.TimeoutExpired:
            rewards.append(0.0)
            continue
        rewards.append(float(done.returncode == 0 and done.stdout.strip().endswith(token)))
    return rewards
"""
STDIN = r"""
import re, subprocess, sys
def accepted(completions, inputs, outputs, **kwargs):
    rewards = []
    for completion, given, wanted in zip(completions, inputs, outputs):
        found = re.findall(r"```(?:python|py)?\s*\n(.*?)```", completion[-1]["content"], re.DOTALL)
        right = bool(found)
        for text, output in zip(given, wanted):
            if not right:
                break
            try:
                done = subprocess.run([sys.executable, "-I", "-c", found[-1]], input=text, capture_output=True, text=True, timeout=5)
            except subprocess.TimeoutExpired:
                right = False
                break
            right = done.returncode == 0 and done.stdout.split() == output.split()
        rewards.append(float(right))
    return rewards
"""
LETTER = r"""
import re
def letter(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        found = re.findall(r"answer(?: is)?\s*:?\s*\(?([A-D])\b", text, re.IGNORECASE)
        rewards.append(float(len(set(found)) == 1 and found[0].upper() == right))
    return rewards
"""
CALL = r"""
import json, re
def called(completions, call, **kwargs):
    rewards = []
    for completion, right in zip(completions, call):
        found = re.findall(r"<tool_call>(.*?)</tool_call>", completion[-1]["content"], re.DOTALL)
        try:
            given = json.loads(found[0]) if len(found) == 1 else None
        except ValueError:
            given = None
        rewards.append(float(given == json.loads(right)))
    return rewards
"""
TOTAL = r"""
import re
def total(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        found = re.findall(r"Total:\s*(-?\d+(?:\.\d+)?)", completion[-1]["content"].replace(",", ""))
        rewards.append(float(len(found) == 1 and float(found[0]) == float(right)))
    return rewards
"""
FIELDS = r"""
import json, re
def fields(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        text = completion[-1]["content"]
        found = re.search(r"\{.*\}", text, re.DOTALL)
        try:
            given = json.loads(found.group()) if found else None
        except ValueError:
            given = None
        rewards.append(float(given == json.loads(right)))
    return rewards
"""
CHRF = r"""
from collections import Counter
def _grams(text, n):
    text = " ".join(text.lower().split())
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))
def chrf(completions, reference, **kwargs):
    scores = []
    for completion, wanted in zip(completions, reference):
        given, parts = completion[-1]["content"].strip(), []
        for n in (1, 2, 3, 4):
            mine, theirs = _grams(given, n), _grams(wanted, n)
            common = sum((mine & theirs).values())
            if not mine or not theirs:
                parts.append(0.0)
                continue
            precision, recall = common / sum(mine.values()), common / sum(theirs.values())
            parts.append(2 * precision * recall / (precision + recall) if common else 0.0)
        scores.append(sum(parts) / 4)
    return scores
"""
GRID = r"""
import re
def grid(completions, puzzle, **kwargs):
    rewards = []
    for completion, shown in zip(completions, puzzle):
        found = re.findall(r"<answer>(.*?)</answer>", completion[-1]["content"], re.DOTALL)
        digits = re.sub(r"[^1-4]", "", found[0]) if len(found) == 1 else ""
        clues = shown.replace("\n", "").replace(" ", "")
        right = len(digits) == 16 and all(c in (".", d) for c, d in zip(clues, digits))
        if right:
            rows = [digits[i : i + 4] for i in range(0, 16, 4)]
            columns = ["".join(column) for column in zip(*rows)]
            boxes = [rows[y][x : x + 2] + rows[y + 1][x : x + 2] for y in (0, 2) for x in (0, 2)]
            right = all(sorted(part) == list("1234") for part in rows + columns + boxes)
        rewards.append(float(right))
    return rewards
"""
LABEL = r"""
def label(completions, intent, **kwargs):
    rewards = []
    for completion, right in zip(completions, intent):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        rewards.append(float(text.strip().strip(".'\"`*").lower() == right))
    return rewards
"""
JUDGE = r"""
import re
def _judge(question, text, facts):
    # Stands for a call of a judge: facts covered, in running text of a sensible length.
    words = re.findall(r"[a-z]+", text.lower())
    if not 30 <= len(words) <= 250 or len(set(words)) < len(words) / 3:
        return "Score: 1"
    return f"Score: {1 + 3 * sum(fact in words for fact in facts)}"
def judged(prompts, completions, facts, **kwargs):
    rewards = []
    for prompt, completion, wanted in zip(prompts, completions, facts):
        verdict = _judge(prompt[-1]["content"], completion[-1]["content"], wanted)
        rewards.append(int(re.fullmatch(r"Score: (\d+)", verdict).group(1)) / 10)
    return rewards
"""
SQL = r"""
import re, sqlite3
def _run(fill, query):
    base = sqlite3.connect(":memory:")
    base.executescript(fill)
    try:
        return sorted(map(repr, base.execute(query).fetchmany(50)))
    finally:
        base.close()
def same_result(completions, fill, sql, **kwargs):
    rewards = []
    for completion, statements, right in zip(completions, fill, sql):
        found = re.findall(r"```sql\s*\n(.*?)```", completion[-1]["content"], re.DOTALL)
        try:
            rewards.append(float(_run(statements, found[-1]) == _run(statements, right)) if found else 0.0)
        except sqlite3.Error:
            rewards.append(0.0)
    return rewards
"""
RULES = r"""
def keeps_rules(completions, lines, word, **kwargs):
    rewards = []
    for completion, count, wanted in zip(completions, lines, word):
        text = [line.strip() for line in completion[-1]["content"].strip().splitlines() if line.strip()]
        kept = [len(text) == count, any(wanted in line.lower() for line in text),
                all(line.endswith(".") and len(line.split()) > 2 for line in text) and len(text) > 1]
        rewards.append(float(all(kept)))
    return rewards
"""


def words(count: int, seed: int, ask: str = ANSWER_TAGS) -> list[Row]:
    """Word problems."""
    return [{"prompt": t.chat(r["q"], ask), "answer": str(r["a"])} for r in t.words(count, seed)]


def contest(count: int, seed: int) -> list[Row]:
    """Competition problems with a box."""
    return [{"prompt": t.chat(r["q"] + BOXED), "answer": r["a"]} for r in t.contest(count, seed)]


def functions(count: int, seed: int) -> list[Row]:
    """Functions with assertions."""
    return [
        {"prompt": t.chat(r["q"] + " Answer with one ```python block."), "tests": r["tests"]}
        for r in t.functions(count, seed)
    ]


def programs(count: int, seed: int) -> list[Row]:
    """Programs that read standard input."""
    return [
        {"prompt": t.chat(r["q"] + " Write a Python program that reads standard input, in a ```python block."),
         "inputs": r["inputs"], "outputs": r["outputs"]} for r in t.programs(count, seed)
    ]  # fmt: skip


def exam(count: int, seed: int) -> list[Row]:
    """Multiple choice."""
    ask = "\nThink, then end with 'Answer: X', where X is one of A, B, C, D."
    return [
        {"prompt": t.chat(t.lettered(r) + ask), "answer": "ABCD"[r["key"]]} for r in t.exam(count, seed)
    ]  # fmt: skip


def calls(count: int, seed: int) -> list[Row]:
    """Tool calls with schemas in a column."""
    ask = 'Call a tool with <tool_call>{"name": ..., "arguments": {...}}</tool_call>.'
    tools = [t.schema(name) for name in ("book_table", "send_money", "set_thermostat", "rent_bike")]
    return [
        {"prompt": t.chat(r["q"], ask), "tools": json.dumps(tools),
         "call": json.dumps({"name": r["name"], "arguments": r["arguments"]})}
        for r in t.calls(count, seed)
    ]  # fmt: skip


def dialogs(count: int, seed: int) -> list[Row]:
    """Orders in several turns."""
    return [{"prompt": r["q"], "answer": r["a"]} for r in t.dialogs(count, seed)]


EXTRACT = (
    "Extract the sender, the amount in euros and the due date from the letter. Answer with a JSON "
    'object with the keys "sender" (text), "amount" (number) and "due" (an object with "day" and '
    '"month").\n\nLetter:\n'
)


def notices(count: int, seed: int) -> list[Row]:
    """Fields of letters, as JSON."""
    return [
        {"prompt": t.chat(EXTRACT + r["q"]), "answer": json.dumps(r["a"])} for r in t.notices(count, seed)
    ]  # fmt: skip


TRANSLATE = "Translate into French. Answer with the translation only.\n\n"


def sentences(count: int, seed: int) -> list[Row]:
    """Sentences with reference translations."""
    return [
        {"prompt": t.chat(TRANSLATE + r["q"]), "reference": r["a"]} for r in t.sentences(count, seed)
    ]  # fmt: skip


PLAY = (
    "Fill in the dots: each row, each column and each two-by-two corner holds 1 to 4 once. {}\n\n"
)


def sudokus(count: int, seed: int, ask: str = ANSWER_TAGS) -> list[Row]:
    """Small sudokus."""
    return [
        {"prompt": t.chat(PLAY.format(ask) + "\n".join(" ".join(row) for row in r["q"])),
         "puzzle": "\n".join(" ".join(row) for row in r["q"])} for r in t.sudokus(count, seed)
    ]  # fmt: skip


def records(count: int, seed: int) -> list[Row]:
    """Questions about long documents."""
    return [
        {"prompt": t.chat(f"{r['context']}\n\n{r['question']} {ANSWER_TAGS}"), "answer": r["a"]}
        for r in t.records(count, seed)
    ]  # fmt: skip


SORT = f"Sort the message into one of: {', '.join(t.INTENTS)}. Reply with the label only.\n\n"


def intents(count: int, seed: int) -> list[Row]:
    """Messages with labels."""
    return [{"prompt": t.chat(SORT + r["q"]), "intent": r["a"]} for r in t.intents(count, seed)]


def essays(count: int, seed: int) -> list[Row]:
    """Open questions for a judge."""
    return [{"prompt": t.chat(r["q"]), "facts": r["facts"]} for r in t.essays(count, seed)]


def foreign(count: int, seed: int) -> list[Row]:
    """Word problems in four languages."""
    return [{"prompt": t.chat(r["q"] + BOXED), "answer": str(r["a"])} for r in t.foreign(count, seed)]  # fmt: skip


def queries(count: int, seed: int) -> list[Row]:
    """Questions that a query answers."""
    return [
        {"prompt": t.chat(f"{r['schema']}\n\n{r['q']} Answer with one ```sql block."),
         "fill": r["fill"], "sql": r["a"]} for r in t.queries(count, seed)
    ]  # fmt: skip


def orders(count: int, seed: int) -> list[Row]:
    """Texts with rules."""
    return [{"prompt": t.chat(r["q"]), **r["rules"]} for r in t.orders(count, seed)]
