"""Eight sound sets of the sixteenth examination."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.preflight.planted import fifteenth_rewards as w
from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import GEMMA, LLAMA
from tests.preflight.planted.tables import Row

_NAMED = r"""
import re
def _plain(text):
    words = re.sub(r"[^\w ]", " ", text.lower()).split()
    return " ".join(word for word in words if word not in ("a", "an", "the"))
def exact_match(completions, answers, **kwargs):
    rewards = []
    for completion, accepted in zip(completions, answers):
        found = re.findall(r"<answer>(.*?)</answer>", completion[-1]["content"], re.DOTALL)
        given = _plain(found[0]) if len(found) == 1 else ""
        rewards.append(1.0 if given and given in [_plain(each) for each in accepted] else 0.0)
    return rewards
"""
_CITED = r"""
import re
def cited(completions, passage, **kwargs):
    rewards = []
    for completion, right in zip(completions, passage):
        found = re.findall(r"Source:\s*\[(\d+)\]", completion[-1]["content"])
        rewards.append(1.0 if len(found) == 1 and int(found[0]) == int(right) else 0.0)
    return rewards
"""
_JSON_VERDICT = r"""
import json, re
def verdict(completions, label, **kwargs):
    rewards = []
    for completion, right in zip(completions, label):
        found = re.findall(r"\{[^{}]*\}", completion[-1]["content"])
        try:
            given = json.loads(found[0])["better"] if len(found) == 1 else None
        except (ValueError, KeyError, TypeError):
            given = None
        rewards.append(1.0 if isinstance(given, str) and given.strip().upper() == right else 0.0)
    return rewards
"""
_TAG_LABEL = r"""
import re
def intent_reward(completions, intent, **kwargs):
    rewards = []
    for completion, right in zip(completions, intent):
        found = re.findall(r"<label>(.*?)</label>", completion[-1]["content"], re.DOTALL)
        given = found[0].strip().lower().replace(" ", "_") if len(found) == 1 else ""
        rewards.append(1.0 if given == right else 0.0)
    return rewards
"""


def sixteenth_healthy() -> tuple[Case, ...]:
    """Eight sets without a mistake, in two halves of four."""
    return (*healthy_first(), *healthy_second())


def healthy_first() -> Iterator[Case]:
    """Four sound sets of the first half."""
    yield Case(
        name="word problems with their solutions", rows=w.school(400, 7101), reward=w.SCHOOL,
        model=LLAMA, framework="trl", run_config=trl(),
    )  # fmt: skip
    aliases = [
        {"prompt": row["prompt"], "answers": [row["answer"], *_shorter(row["answer"])]}
        for row in w.passages(240, 7103)
    ]
    yield Case(name="passages with several accepted names", rows=aliases, reward=_NAMED)
    ask = "Which passage answers the question? Explain it in one sentence, then end with 'Source: [N]'."
    cited: list[Row] = []
    for r in f.passages(240, 7105):
        number = next(n for n, doc in enumerate(r["q"][0]) if r["a"] in doc)
        if sum(r["a"] in doc for doc in r["q"][0]) == 1:
            text = f"{r['docs']}\n\nQuestion: {r['question']}\n{ask}"
            cited.append({"prompt": t.chat(text), "passage": number + 1})
    yield Case(name="passages to cite", rows=cited, reward=_CITED, suffix=".parquet")
    yield Case(
        name="passages with short answers, scored by words", rows=w.passages(240, 7107),
        reward=w.F1, framework="verl", run_config=verl(), model=GEMMA,
    )  # fmt: skip


def _shorter(answer: str) -> list[str]:
    """The last name of a person; nothing for other answers."""
    return [answer.split()[1]] if re.fullmatch(r"[A-Z]\w+ [A-Z]\w+", answer) and answer != "Grey Water" and not answer.startswith("Lesser") else []  # fmt: skip


def healthy_second() -> Iterator[Case]:
    """Four sound sets of the second half."""
    yield Case(
        name="algebra in a box, four responses", rows=w.algebra(300, 7102), reward=w.MATH,
        framework="trl", run_config=trl(num_generations=4),
    )  # fmt: skip
    ask = 'Which response is right? Reason first, then end with {"better": "A"} or {"better": "B"}.'
    judged = [{"prompt": t.chat(f"{r['q']}\n\n{ask}"), "label": r["key"]} for r in f.pairs(300, 7104)]  # fmt: skip
    yield Case(name="two responses and a verdict in JSON", rows=judged, reward=_JSON_VERDICT)
    sort = f"Sort the message into one of: {', '.join(t.INTENTS)}. Think first, then give the label as <label>...</label>.\n\n"
    yield Case(
        name="messages to sort with thoughts", model=LLAMA, reward=_TAG_LABEL,
        rows=[{"prompt": t.chat(sort + r["q"]), "intent": r["a"]} for r in t.intents(300, 7106)],
    )  # fmt: skip
    yield Case(
        name="programs that read numbers, with a verl config", rows=k.programs(160, 7108),
        reward=k.STDIN, framework="verl", run_config=verl(),
    )  # fmt: skip
