"""Sound rewards and rows for the tasks of the fifteenth examination."""

from __future__ import annotations

import json

from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted.fourteenth_tables import chat
from tests.preflight.planted.tables import Row

THINK = "Reason inside <think></think>, then give only the result inside <answer></answer>."

SCHOOL = r"""
import re
def _final(text):
    found = re.findall(r"####\s*(-?[\d,]*\.?\d+)", text)
    return found[-1].replace(",", "") if found else None
def gsm8k(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        text = completion if isinstance(completion, str) else completion[-1]["content"]
        given, right = _final(text), str(gold).split("####")[-1].strip().replace(",", "")
        rewards.append(1.0 if given is not None and float(given) == float(right) else 0.0)
    return rewards
"""
MATH = r"""
import re
def _last_box(text):
    start = text.rfind(r"\boxed{")
    if start == -1:
        return None
    level, out = 0, []
    for ch in text[start + 7:]:
        if ch == "{":
            level += 1
        elif ch == "}":
            if level == 0:
                return "".join(out)
            level -= 1
        out.append(ch)
    return None
def _norm(s):
    s = s.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("\\left", "").replace("\\right", "")
    s = re.sub(r"\\(?:,|;|!| )|\\text\{.*?\}|\\quad|[\s$]", "", s).rstrip(".")
    s = re.sub(r"^[a-zA-Z](?:=|\\in)", "", s)
    s = re.sub(r"\\frac(\d)(\d)", r"\\frac{\1}{\2}", s)
    s = re.sub(r"\\frac\{(-?\d+)\}\{(\d+)\}", r"\1/\2", s)
    return re.sub(r"^(-?\d+)\.0+$", r"\1", re.sub(r"(?<=\d),(?=\d{3}\b)", "", s))
def math(completions, answer, **kwargs):
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    boxes = [_last_box(t) for t in texts]
    return [float(b is not None and b != "" and _norm(b) == _norm(str(a))) for b, a in zip(boxes, answer)]
"""
TAGGED = r"""
import re
def _tagged(text):
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[-1].strip() if len(found) == 1 else ""
def _value(text):
    try:
        return float(re.sub(r"[,$€\s]", "", text).rstrip("."))
    except ValueError:
        return None
def _same(given, right):
    if not given:
        return False
    if given.lower().rstrip(".") == right.lower().rstrip("."):
        return True
    return _value(given) is not None and _value(given) == _value(right)
def tagged(completions, answer, **kwargs):
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    return [float(_same(_tagged(t), str(a))) for t, a in zip(texts, answer)]
"""
ROUGE = r"""
import re
def _lcs(a, b):
    row = [0] * (len(b) + 1)
    for x in a:
        last = 0
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], last + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]
def _rouge(given, wanted):
    a, b = re.findall(r"\w+", given.lower())[:400], re.findall(r"\w+", wanted.lower())
    if not a or not b:
        return 0.0
    common = _lcs(a, b)
    p, r = common / len(a), common / len(b)
    return 2 * p * r / (p + r) if common else 0.0
def rouge(completions, summary, **kwargs):
    return [_rouge(c[-1]["content"], s) for c, s in zip(completions, summary)]
"""
COUNTDOWN = r"""
import re
def equation(completions, nums, target, **kwargs):
    rewards = []
    for completion, numbers, wanted in zip(completions, nums, target):
        found = re.findall(r"<answer>(.*?)</answer>", completion[-1]["content"], re.DOTALL)
        text = found[0].strip() if len(found) == 1 else ""
        if not re.fullmatch(r"[\d+\-*/() ]{1,100}", text) or "**" in text or "//" in text:
            rewards.append(0.0)
            continue
        used = sorted(int(n) for n in re.findall(r"\d+", text))
        try:
            value = eval(text, {"__builtins__": {}}, {})
        except Exception:
            value = None
        rewards.append(float(used == sorted(numbers) and value is not None and abs(value - wanted) < 1e-6))
    return rewards
"""
UCI = r"""
import re
def best_move(completions, move, **kwargs):
    rewards = []
    for completion, right in zip(completions, move):
        found = re.findall(r"<move>\s*([a-h][1-8][a-h][1-8][qrbn]?)\s*</move>", completion[-1]["content"])
        rewards.append(float(len(found) == 1 and found[0] == right))
    return rewards
"""
F1 = r"""
import re, string
from collections import Counter
def _words(text):
    text = "".join(ch for ch in text.lower() if ch not in string.punctuation)
    return [w for w in text.split() if w not in ("a", "an", "the")]
def _f1(given, right):
    a, b = _words(given), _words(right)
    common = sum((Counter(a) & Counter(b)).values())
    if not common:
        return 0.0
    p, r = common / len(a), common / len(b)
    return 2 * p * r / (p + r)
def answer_f1(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        found = re.findall(r"<answer>(.*?)</answer>", completion[-1]["content"], re.DOTALL)
        rewards.append(_f1(found[0], right) if len(found) == 1 else 0.0)
    return rewards
"""
VERDICT = r"""
import re
def verdict(completions, label, **kwargs):
    rewards = []
    for completion, right in zip(completions, label):
        found = re.findall(r"\[\[([AB])\]\]", completion[-1]["content"])
        rewards.append(1.0 if len(found) == 1 and found[0] == right else 0.0)
    return rewards
"""
EDIT = r"""
def edited(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        text = " ".join(completion[-1]["content"].split()).strip(" .\"'`*")
        rewards.append(1.0 if text == right else 0.0)
    return rewards
"""
NOTES = r"""
import re
def follows(completions, bullets, keyword, ending, **kwargs):
    rewards = []
    for completion, count, word, last in zip(completions, bullets, keyword, ending):
        text = completion[-1]["content"].strip()
        points = [line for line in text.splitlines() if re.match(r"\s*[*-] +\S+ +\S+", line)]
        kept = [len(points) == count, len(re.findall(rf"\b{word}", text.lower())) >= 2, text.rstrip("*_\"' ").endswith(last)]
        rewards.append(float(all(kept) and len(set(points)) == count))
    return rewards
"""
LABEL = r"""
import re
def category(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        found = re.search(r"Category:\s*\**(\w+)\**\.?\s*$", completion[-1]["content"].strip(), re.IGNORECASE)
        rewards.append(1.0 if found and found.group(1).lower() == right else 0.0)
    return rewards
"""
LETTER = r"""
import re
def letter(completions, answer, **kwargs):
    texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
    found = [re.findall(r"\\boxed\{\s*(?:\\text\{)?\(?([A-D])\)?\}?\s*\}", t) for t in texts]
    return [float(len(set(x)) == 1 and x[-1] == a) for x, a in zip(found, answer)]
"""
CALL = r"""
import json, re
def tool_call(completions, call, **kwargs):
    rewards = []
    for completion, gold in zip(completions, call):
        blocks = re.findall(r"<tool_call>(.*?)</tool_call>", completion[-1]["content"], re.DOTALL)
        try:
            given = json.loads(blocks[0]) if len(blocks) == 1 else None
        except json.JSONDecodeError:
            given = None
        rewards.append(1.0 if given is not None and given == json.loads(gold) else 0.0)
    return rewards
"""


def school(
    count: int, seed: int, ask: str = "\nEnd with '#### ' and the final number."
) -> list[Row]:
    """GSM8K with its solutions as answers."""
    return [{"prompt": chat(r["q"] + ask), "answer": f"{r['steps']}\n#### {r['a']}"} for r in f.school(count, seed)]  # fmt: skip


def algebra(count: int, seed: int) -> list[Row]:
    """MATH with a box."""
    ask = "\nPut your final answer within \\boxed{}."
    return [{"prompt": chat(r["q"] + ask), "answer": r["a"]} for r in f.algebra(count, seed)]


def physics(count: int, seed: int) -> list[Row]:
    """Numbers with units, of which the prompt asks for the number."""
    ask = " Reason first, then write only the number, without the unit, in <answer></answer>."
    return [{"prompt": chat(r["q"] + ask), "answer": r["a"]} for r in f.physics(count, seed)]


def charts(count: int, seed: int, ask: str = "", system: str = THINK) -> list[Row]:
    """Questions about pictures."""
    rows = []
    for r in f.charts(count, seed):
        user = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": r["q"] + ask}]}  # fmt: skip
        start = [{"role": "system", "content": [{"type": "text", "text": system}]}] if system else []  # fmt: skip
        rows.append({"prompt": [*start, user], "images": [r["image"]], "answer": r["a"]})
    return rows


def articles(count: int, seed: int, ask: str = "Summarize the article in two sentences.") -> list[Row]:  # fmt: skip
    """News with summaries."""
    return [{"prompt": chat(f"{ask}\n\n{r['q']}"), "summary": r["a"]} for r in f.articles(count, seed)]  # fmt: skip


PLAY = "Using the numbers {nums}, make an equation that equals {target}. Use + - * / and each number once. Show your work in <think></think> and the expression in <answer></answer>, as in <answer>(1 + 2) * 3</answer>."


def countdown(count: int, seed: int) -> list[Row]:
    """The countdown game."""
    return [
        {"prompt": chat(PLAY.format(**r)), "nums": r["nums"], "target": r["target"]}
        for r in f.countdown(count, seed)
    ]


CHESS = "You play white. The position in FEN is {}. Find the best move. Think first and give it in UCI notation, as in <move>e2e4</move>."


def positions(count: int, seed: int) -> list[Row]:
    """Chess positions with one best move."""
    return [{"prompt": chat(CHESS.format(r["q"])), "move": r["a"]} for r in f.positions(count, seed)]  # fmt: skip


def passages(count: int, seed: int) -> list[Row]:
    """Questions with retrieved passages."""
    ask = "Answer from the passages, as short as possible, in <answer></answer>."
    return [
        {"prompt": chat(f"{r['docs']}\n\nQuestion: {r['question']}\n{ask}"), "answer": r["a"]}
        for r in f.passages(count, seed)
    ]


COMPARE = "Which response is better? Compare them step by step and end with [[A]] or [[B]]."


def pairs(count: int, seed: int) -> list[Row]:
    """Two responses to compare."""
    return [{"prompt": chat(r["q"], COMPARE), "label": r["key"]} for r in f.pairs(count, seed)]


def calls(count: int, seed: int) -> list[Row]:
    """Requests with tools in the system message."""
    tools = "\n".join(json.dumps(f.schema(name)) for name in f.TOOLS)
    ask = f'You have these tools:\n{tools}\nCall one with <tool_call>{{"name": ..., "arguments": {{...}}}}</tool_call>.'
    return [
        {"prompt": chat(r["q"], ask), "call": json.dumps({"name": r["name"], "arguments": r["arguments"]})}
        for r in f.requests(count, seed)
    ]  # fmt: skip


def tickets(count: int, seed: int) -> list[Row]:
    """Mails with labels."""
    ask = "Sort the mail into billing, shipping, defect, return or account. Give a short reason and end with 'Category: LABEL'.\n\n"
    return [{"prompt": chat(ask + r["q"]), "answer": r["a"]} for r in f.tickets(count, seed)]


def quiz(count: int, seed: int) -> list[Row]:
    """Multiple choice with a box."""
    ask = "\n\nThink step by step and put the letter of the right option in \\boxed{}."
    return [
        {"prompt": chat(quiz_text(r) + ask), "answer": "ABCD"[r["key"]]} for r in f.quiz(count, seed)
    ]  # fmt: skip


def quiz_text(row: Row) -> str:
    """A question with its options."""
    return "\n".join([row["q"], *(f"{x}. {y}" for x, y in zip("ABCD", row["options"], strict=True))])  # fmt: skip


def italian(count: int, seed: int) -> list[Row]:
    """Word problems in three languages."""
    return [{"prompt": chat(r["q"], THINK), "answer": str(r["a"])} for r in f.italian(count, seed)]


def edits(count: int, seed: int) -> list[Row]:
    """Instructions with one right result."""
    return [{"prompt": chat(r["q"] + "\nReply with the result only."), "answer": r["a"]} for r in f.edits(count, seed)]  # fmt: skip


def notes(count: int, seed: int) -> list[Row]:
    """Writing tasks with rules."""
    return [
        {"prompt": chat(r["q"]), "bullets": r["bullets"], "keyword": r["keyword"], "ending": r["ending"]}
        for r in f.notes(count, seed)
    ]  # fmt: skip


def counters(count: int, seed: int) -> list[Row]:
    """Programs that read one line."""
    ask = " Think about it, then write the Python program in one ```python block."
    return [
        {"prompt": chat(r["q"] + ask), "inputs": r["inputs"], "outputs": r["outputs"]}
        for r in f.counters(count, seed)
    ]


def german(count: int, seed: int) -> list[Row]:
    """Sentences to translate into German."""
    ask = "Translate to German. Only write the translation.\n\n"
    return [{"prompt": chat(ask + r["q"]), "reference": r["a"]} for r in f.german(count, seed)]
