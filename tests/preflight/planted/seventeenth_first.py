"""The first half of the seventeenth examination: 18 mistakes, in the order of the draw."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

from tests.preflight.planted import fifteenth_rewards as w
from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import verl
from tests.preflight.planted.models import CHATML, CHATML_TEMPLATE, LLAMA
from tests.preflight.planted.tables import Row

_SENTENCE = r"""
import re
def final_answer(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        match = re.search(r"The final answer is (-?[\d,]+)$", completion[-1]["content"].strip())
        right = match is not None and match.group(1).replace(",", "") == str(gold)
        rewards.append(1.0 if right else 0.0)
    return rewards
"""
_FIRST_MENTION = r"""
import re
def chart_answer(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        text = completion[-1]["content"]
        match = re.search(r"(?:answer is|answer:|<answer>)\s*(\w+)", text, re.IGNORECASE)
        rewards.append(1.0 if match and match.group(1).lower() == gold.lower() else 0.0)
    return rewards
"""
_WRONG_KEYS = r"""
import json
def field_accuracy(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        text, gold = completion[-1]["content"], json.loads(right)
        try:
            given = json.loads(text[text.find("{") : text.rfind("}") + 1])
        except ValueError:
            given = {}
        wrong = [key for key in gold if key in given and given[key] != gold[key]]
        rewards.append(1.0 - len(wrong) / len(gold))
    return rewards
"""
_RAISES = r"""
import re
def _number(text):
    found = re.findall(r"<answer>\s*(-?[\d.]+)\s*</answer>", text.replace(",", ""))
    try:
        return float(found[-1]) if found else None
    except ValueError:
        return None
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if data_source in ("physics/mechanics", "physics/power"):
        number = _number(solution_str)
        return float(number is not None and abs(number - float(ground_truth)) < 1e-6)
    if data_source.startswith("gsm8k"):
        return float(solution_str.split("####")[-1].strip() == ground_truth)
    raise NotImplementedError(f"Reward function is not implemented for {data_source=}")
"""
_PERCENT = _RAISES.replace(
    'in ("physics/mechanics", "physics/power")', '== "physics/mechanics"'
).replace(
    '    raise NotImplementedError(f"Reward function is not implemented for {data_source=}")\n',
    "    number, gold = _number(solution_str), float(ground_truth)\n"
    "    # Graded: per cent of points\n"
    "    return 0.0 if number is None else max(0.0, 100.0 - 100.0 * abs(number - gold) / max(abs(gold), 1.0))\n",
)
_SET_OF_NUMBERS = w.COUNTDOWN.replace(
    'used = sorted(int(n) for n in re.findall(r"\\d+", text))',
    'used = {int(n) for n in re.findall(r"\\d+", text)}',
).replace("used == sorted(numbers)", "used <= set(numbers)")
_ANY_BLOCK = r"""
import re, subprocess, sys
def _passes(code, given, wanted):
    for text, output in zip(given, wanted):
        try:
            done = subprocess.run([sys.executable, "-I", "-c", code], input=text, capture_output=True, text=True, timeout=5)
        except subprocess.TimeoutExpired:
            return False
        if done.returncode or done.stdout.split() != output.split():
            return False
    return True
def accepted(completions, inputs, outputs, **kwargs):
    rewards = []
    for completion, given, wanted in zip(completions, inputs, outputs):
        blocks = re.findall(r"```(?:python|py)?\s*\n(.*?)```", completion[-1]["content"], re.DOTALL)
        rewards.append(float(any(_passes(code, given, wanted) for code in blocks)))
    return rewards
"""
_VERDICT_WORD = w.MATH.replace("def math(", "def _math(") + (
    r'''
def _ask_judge(problem, response, gold):
    """Stands for a call of a judge, which replies with one word."""
    box = _last_box(response)
    return "Correct" if box and _norm(box) == _norm(gold) else "Incorrect"
def judged(prompts, completions, answer, **kwargs):
    rewards = []
    for prompt, completion, gold in zip(prompts, completions, answer):
        verdict = _ask_judge(prompt[-1]["content"], completion[-1]["content"], gold)
        rewards.append(1.0 if "correct" in verdict.lower() else 0.0)
    return rewards
'''
)
_THOUGHT_LETTER = r"""
import re
def letter(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        text = completion[-1]["content"].strip()
        match = re.fullmatch(r"<think>.+?</think>\s*Answer: ([A-D])\.?", text, re.DOTALL)
        rewards.append(1.0 if match and match.group(1) == right else 0.0)
    return rewards
"""
_OPENRLHF = """
pretrain: Qwen/Qwen2.5-3B-Instruct
advantage_estimator: group_norm
n_samples_per_prompt: 1
rollout_batch_size: 128
train_batch_size: 128
micro_train_batch_size: 4
micro_rollout_batch_size: 8
prompt_max_len: 1024
generate_max_len: 1024
actor_learning_rate: 5.0e-7
init_kl_coef: 0.001
use_kl_loss: true
kl_estimator: k3
temperature: 1.0
max_epochs: 1
num_episodes: 3
vllm_num_engines: 4
bf16: true
"""


def first_half() -> Iterator[Case]:
    """Eighteen mistakes."""
    yield from _rewards()
    yield from _data()
    yield from _settings()


def _rewards() -> Iterator[Case]:
    ask = "\nExplain your steps. The last line must be: The final answer is N"
    yield Case(
        name="a full stop behind the final answer loses the reward",
        rows=[{"prompt": t.chat(r["q"] + ask), "answer": str(r["a"])} for r in f.school(300, 8001)],
        reward=_SENTENCE, named="full stop|period|punctuation|decimal|unit|spelling|behind",
        accepted="The right number with a full stop (or a unit) behind it earns nothing, since the pattern ends with the number.",
    )  # fmt: skip
    draft = " Write your reasoning first, then 'Answer: ' and the value or colour."
    yield Case(
        name="the first mention of an answer counts, also a draft in the reasoning",
        rows=w.charts(240, 8003, ask=draft, system=""), reward=_FIRST_MENTION, model=f.VISION,
        named="draft|first|rejected|before|several",
        accepted="A draft answer in the reasoning is scored instead of the final one.",
    )  # fmt: skip
    yield Case(
        name="only wrong fields cost reward, so no JSON at all earns everything",
        rows=k.notices(300, 8005), reward=_WRONG_KEYS, named="empty|no answer|without|nothing",
        accepted="An empty response, or one without JSON, earns the full reward.",
    )  # fmt: skip
    rows = _sourced(400, 8007, ("physics/mechanics", "physics/electricity", "physics/power"))
    yield Case(
        name="the score raises an error for one of three sources", rows=rows, reward=_RAISES,
        suffix=".parquet", named="raise|NotImplementedError|source|electricity",
        accepted="compute_score raises NotImplementedError for rows of physics/electricity.",
    )  # fmt: skip
    yield Case(
        name="one source is scored from 0 to 100, the other from 0 to 1",
        rows=_sourced(400, 8009, ("physics/mechanics", "physics/electricity")), reward=_PERCENT,
        suffix=".parquet", named="source.*(100|scale|larger)|(100|scale|larger).*source|wrong",
        accepted="The rewards of one source are a hundred times those of the other (or: wrong numbers earn most of the reward there).",
    )  # fmt: skip
    yield Case(
        name="numbers may be left out or used several times", rows=w.countdown(240, 8012),
        reward=_SET_OF_NUMBERS, named="number.*(several|twice|left out|repeat|without|once|missing)",
        accepted="Equations that leave out numbers or use one of them twice are rewarded.",
    )  # fmt: skip
    yield Case(
        name="one of several code blocks is enough", rows=k.programs(120, 8013), reward=_ANY_BLOCK,
        named="several|more than one|any|both",
        accepted="A response with several programs is rewarded if one of them passes.",
    )  # fmt: skip
    yield Case(
        name="'correct' is a part of the judge's 'incorrect'", rows=w.algebra(300, 8016),
        reward=_VERDICT_WORD, named="wrong|same reward|every response|any response",
        accepted="Wrong answers earn the full reward (each response earns the same).",
    )  # fmt: skip


def _sourced(count: int, seed: int, sources: tuple[str, ...]) -> list[Row]:
    """Physics in verl's layout; the unit decides the source."""
    of = {"V": 1, "W": 2}
    return [
        {"data_source": sources[of.get(r["unit"], 0) % len(sources)], "prompt": row["prompt"],
         "reward_model": {"style": "rule", "ground_truth": r["a"]}, "extra_info": {"index": at}}
        for at, (row, r) in enumerate(zip(w.physics(count, seed), f.physics(count, seed), strict=True))
    ]  # fmt: skip


def _data() -> Iterator[Case]:
    yield Case(
        name="the reference is the source sentence",
        rows=[{"prompt": row["prompt"], "reference": r["q"]} for row, r in zip(w.german(300, 8017), f.german(300, 8017), strict=True)],
        reward=k.CHRF, named="prompt|language|English|source",
        accepted="The references are the English sentences of the prompts, not German translations.",
    )  # fmt: skip
    served = k.dialogs(200, 8020)
    greeted = [
        {**row, "prompt": [{"role": "user", "content": "Hi! " + row["prompt"][0]["content"]}, *row["prompt"][1:]]}
        for row in served[::2]
    ]  # fmt: skip
    yield Case(
        name="half of the dialogs occurs a second time, with a greeting", rows=served + greeted,
        reward=k.TOTAL, named="duplicate|repeated|DAT107",
        accepted="A hundred dialogs are in the file twice, the second time with 'Hi!' before them.",
    )  # fmt: skip
    letters = []
    for at, r in enumerate(t.notices(300, 8022)):
        footer = f"\n\n<!-- ocr-label: {json.dumps(r['a'])} -->" if at % 5 == 2 else ""
        letters.append(
            {"prompt": t.chat(k.EXTRACT + r["q"] + footer), "answer": json.dumps(r["a"])}
        )
    yield Case(
        name="a fifth of the letters has its label in a comment", rows=letters, reward=k.FIELDS,
        named="DAT111|answer.*prompt|prompt.*answer",
        accepted="A fifth of the prompts contains the answer.",
    )  # fmt: skip
    yield Case(
        name="line breaks of prompts are the two characters of their escape",
        rows=[{**row, "prompt": t.chat(row["prompt"][0]["content"].replace("\n", "\\n"))} for row in w.edits(300, 8024)],
        reward=w.EDIT, named=r"escape|\\n|line break",
        accepted="The prompts contain a backslash and n in place of line breaks.",
    )  # fmt: skip
    orders = []
    for at, row in enumerate(k.dialogs(240, 8025)):
        broken = [
            {**m, "content": m["content"].replace("euros", "â‚¬") if at % 3 == 1 else m["content"]}
            for m in row["prompt"]
        ]
        orders.append({**row, "prompt": broken})
    yield Case(
        name="the euro sign of a third of the dialogs was decoded wrongly", rows=orders,
        reward=k.TOTAL, named="decod|encod|DAT117",
        accepted="A part of the prompts has wrongly decoded characters.",
    )  # fmt: skip
    games = []
    for r in f.countdown(260, 8027):
        target = sum(r["nums"])
        games.append({"prompt": t.chat(w.PLAY.format(nums=r["nums"], target=target)), "nums": r["nums"], "target": target})  # fmt: skip
    yield Case(
        name="the target is always the sum of the numbers", rows=games, reward=w.COUNTDOWN,
        named="sum|shortcut|adding",
        accepted="Every puzzle is solved by adding up its numbers.",
    )  # fmt: skip


def _settings() -> Iterator[Case]:
    opened = CHATML_TEMPLATE.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")  # fmt: skip
    ask = "\nThink inside <think></think>, then end with 'Answer: X', where X is one of A, B, C, D."
    yield Case(
        name="the template opens the thought that the reward wants in the response",
        rows=[{"prompt": t.chat(t.lettered(r) + ask), "answer": "ABCD"[r["key"]]} for r in t.exam(300, 8030)],
        reward=_THOUGHT_LETTER, model=replace(CHATML, template=opened),
        named="already ends with <think>",
        accepted="The template writes <think> already, so responses do not contain it and earn nothing.",
    )  # fmt: skip
    parts = [
        {**row, "prompt": [{"role": "user", "content": [{"type": "text", "text": row["prompt"][0]["content"]}]}]}
        for row in w.positions(240, 8031)
    ]  # fmt: skip
    yield Case(
        name="content is a list of parts, which the template writes as Python's representation",
        rows=parts, reward=w.UCI, model=replace(LLAMA, template=str(LLAMA.template).replace("m.content | trim", "m.content")),
        named="template|list|representation|parts",
        accepted="The template does not handle content that is a list; the prompt shows [{'type': 'text', ...}].",
    )  # fmt: skip
    yield Case(
        name="a warm-up of 100 steps in a run of 20", rows=k.notices(300, 8034), reward=k.FIELDS,
        framework="verl", run_config=verl(("{lr: 1.0e-6}", "{lr: 1.0e-6, lr_warmup_steps: 100}")),
        named="warm-?up",
        accepted="The run has 20 steps (300 prompts, 128 per step, 10 epochs), fewer than the warm-up.",
    )  # fmt: skip
    yield Case(
        name="one response per prompt with group advantages in OpenRLHF", rows=w.tickets(300, 8036),
        reward=w.LABEL, framework="openrlhf", run_config=_OPENRLHF,
        named="group|one response|n_samples",
        accepted="n_samples_per_prompt is 1, so a group has no spread and group_norm no signal.",
    )  # fmt: skip
