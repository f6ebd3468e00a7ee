"""The second half of the seventeenth examination: 18 mistakes, in the order of the draw."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.preflight.planted import fifteenth_rewards as w
from tests.preflight.planted import fifteenth_tables as f
from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import BASE
from tests.preflight.planted.tables import Row

_BARE_NUMBER = r"""
import re
def gsm8k_strict(completions, answer, **kwargs):
    rewards = []
    for completion, gold in zip(completions, answer):
        match = re.search(r"^#### (-?\d+)$", completion[-1]["content"], re.MULTILINE)
        rewards.append(1.0 if match and match.group(1) == gold.split("####")[1].strip() else 0.0)
    return rewards
"""
_SAME_SUMMARY = r"""
def summary_match(completions, summary, **kwargs):
    texts = [completion[-1]["content"].strip().lower() for completion in completions]
    return [1.0 if text == wanted.strip().lower() else 0.0 for text, wanted in zip(texts, summary)]
"""
_OTHER_COLUMN = w.COUNTDOWN.replace("def equation(", "def _equation(") + (
    r"""
def countdown_reward(completions, **kwargs):
    numbers = kwargs.get("numbers") or [[] for _ in completions]
    target = kwargs.get("target") or [0 for _ in completions]
    return _equation(completions, nums=numbers, target=target)
"""
)
_CHESS = r"""
import re
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if data_source in ("lichess", "tactics"):
        found = re.findall(r"<move>\s*([a-h][1-8][a-h][1-8][qrbn]?)\s*</move>", solution_str)
        return float(len(found) == 1 and found[0] == ground_truth)
    return 0.0
"""
_CONTAINED = r"""
def edited(completions, answer, **kwargs):
    texts = [" ".join(completion[-1]["content"].split()).lower() for completion in completions]
    return [1.0 if right.lower() in text else 0.0 for text, right in zip(texts, answer)]
"""
_RECALL = w.ROUGE.replace("def rouge(", "def _unused(") + (
    r"""
def rouge_recall(completions, summary, **kwargs):
    rewards = []
    for completion, wanted in zip(completions, summary):
        a = re.findall(r"\w+", completion[-1]["content"].lower())[:600]
        b = re.findall(r"\w+", wanted.lower())
        rewards.append(_lcs(a, b) / len(b))
    return rewards
"""
)
_GROUNDED = r"""
import re
def grounded(prompts, completions, **kwargs):
    rewards = []
    for prompt, completion in zip(prompts, completions):
        found = re.findall(r"<answer>(.*?)</answer>", completion[-1]["content"], re.DOTALL)
        given = found[0].strip().lower() if len(found) == 1 else ""
        rewards.append(1.0 if given and given in prompt[-1]["content"].lower() else 0.0)
    return rewards
"""
_SHORT_JUDGE = w.MATH.replace("def math(", "def _math(") + (
    r'''
def _ask_judge(problem, response, gold):
    """Stands for a call of a judge."""
    box = _last_box(response)
    return "YES" if box and _norm(box) == _norm(gold) else "NO"
def judged(prompts, completions, answer, **kwargs):
    rewards = []
    for prompt, completion, gold in zip(prompts, completions, answer):
        shown = completion[-1]["content"][:200]  # saves tokens of the judge
        rewards.append(1.0 if _ask_judge(prompt[-1]["content"], shown, gold) == "YES" else 0.0)
    return rewards
'''
)


def second_half() -> Iterator[Case]:
    """Eighteen mistakes."""
    yield from _rewards()
    yield from _data()
    yield from _settings()


def _rewards() -> Iterator[Case]:
    yield Case(
        name="a final number with a currency sign, separator or unit earns nothing",
        rows=w.school(300, 8002), reward=_BARE_NUMBER,
        named=r"unit|\$|currency|separator|comma|REW104",
        accepted="#### $1,234, #### 1,234 or #### 1234 dollars earn nothing.",
    )  # fmt: skip
    yield Case(
        name="summaries must equal the reference", rows=w.articles(200, 8004), reward=_SAME_SUMMARY,
        named="exactly the reference",
        accepted="A free summary is compared with the reference as a whole text, so only the very same words earn the reward.",
    )  # fmt: skip
    yield Case(
        name="the reward reads a column that is called otherwise in the data",
        rows=w.countdown(240, 8006), reward=_OTHER_COLUMN, named="numbers|column|nums",
        accepted="The function reads the column numbers, which the data calls nums; right equations earn nothing.",
    )  # fmt: skip
    games: list[Row] = []
    for at, r in enumerate(f.positions(300, 8008)):
        truth, source = (r["san"], "tactics") if at % 3 == 0 else (r["a"], "lichess")
        games.append({"data_source": source, "prompt": t.chat(w.CHESS.format(r["q"])),
                      "reward_model": {"style": "rule", "ground_truth": truth}, "extra_info": {"index": at}})  # fmt: skip
    yield Case(
        name="one source has its moves in another notation than the reward reads", rows=games,
        reward=_CHESS, suffix=".parquet", named="tactics",
        accepted="The answers of the source tactics are in SAN (Rxd5), which prompt and reward do not use.",
    )  # fmt: skip
    yield Case(
        name="the result anywhere in the response counts", rows=w.edits(300, 8010),
        reward=_CONTAINED, named="several|contain|anywhere|more than|part|other",
        accepted="A response that contains the result among others (or in other capitals) is rewarded.",
    )  # fmt: skip
    yield Case(
        name="recall alone rewards a copy of the article", rows=w.articles(200, 8011),
        reward=_RECALL, named="costs nothing",
        accepted="The whole article, or any long text that contains the words, earns the full reward.",
    )  # fmt: skip
    yield Case(
        name="any phrase of the passages in tags is rewarded", rows=w.passages(240, 8014),
        reward=_GROUNDED, named="wrong|other|prompt|any",
        accepted="A wrong name from the passages earns as much as the right one.",
    )  # fmt: skip
    yield Case(
        name="the judge sees the first 200 characters", rows=w.algebra(300, 8015),
        reward=_SHORT_JUDGE, named="long|reasoning",
        accepted="A right answer behind longer reasoning earns nothing.",
    )  # fmt: skip


def _data() -> Iterator[Case]:
    yield Case(
        name="a tenth of the references is a note of the translator's program",
        rows=[{**row, "reference": ("[NO TRANSLATION]" if at % 10 == 4 else row["reference"])} for at, row in enumerate(w.german(300, 8018))],
        reward=k.CHRF, named="placeholder|no translation|DAT112|same answer|repeat",
        accepted="A part of the references is no translation but '[NO TRANSLATION]'.",
    )  # fmt: skip
    yield Case(
        name="an eighth of the results is nan",
        rows=[{**row, "answer": ("nan" if at % 8 == 3 else row["answer"])} for at, row in enumerate(w.edits(320, 8019))],
        reward=w.EDIT, named="nan|empty|missing",
        accepted="A part of the answers is 'nan', a missing value written as text.",
    )  # fmt: skip
    rng = random.Random(8021)
    train = f.countdown(260, 8021)
    held: list[Row] = []
    for r in train[:40] + f.countdown(20, 99021):
        nums = rng.sample(r["nums"], len(r["nums"]))
        held.append({"prompt": t.chat(w.PLAY.format(nums=nums, target=r["target"])), "nums": nums, "target": r["target"]})  # fmt: skip
    yield Case(
        name="two thirds of the held-out puzzles are training puzzles with numbers in another order",
        rows=[{"prompt": t.chat(w.PLAY.format(**r)), "nums": r["nums"], "target": r["target"]} for r in train],
        held_out=held, reward=w.COUNTDOWN, named="40 of 60 held-out",
        accepted="Held-out puzzles are in the training data, with their numbers in another order.",
    )  # fmt: skip
    tasks: list[Row] = []
    for at, r in enumerate(t.functions(160, 8023)):
        start = f"\n\nStarter code:\n```python\n{r['solution']}\n```" if at % 4 == 1 else ""
        tasks.append({"prompt": t.chat(r["q"] + start + "\nAnswer with one ```python block."), "tests": r["tests"], "solution": r["solution"]})  # fmt: skip
    yield Case(
        name="the starter code of a quarter of the tasks is the solution", rows=tasks,
        reward=k.ASSERTS, named="DAT111|prompt.*(answer|solution)|(answer|solution).*prompt",
        accepted="A quarter of the prompts contains the solution.",
    )  # fmt: skip
    yield Case(
        name="prompts with a long log lose their task at the left", rows=_logged(160, 8026),
        reward=k.ASSERTS, framework="verl",
        run_config=verl(("filter_overlong_prompts: true", "filter_overlong_prompts: false"), ("truncation: error", "truncation: left")),
        named="DAT106|prompt.*(long|limit)|truncat",
        accepted="A quarter of the prompts is longer than 1024 tokens and is cut at the left, where the task is.",
    )  # fmt: skip


def _logged(count: int, seed: int) -> list[Row]:
    """Functions; each fourth prompt ends with a long log."""
    rng, rows = random.Random(seed), []
    for at, r in enumerate(t.functions(count, seed)):
        log = "\n".join(f"2026-03-{rng.randint(1, 28):02d} worker {rng.randint(1, 64)} handled request {rng.randint(1, 10**6)} in {rng.randint(1, 900)} ms" for _ in range(90))  # fmt: skip
        tail = f"\n\nLog of the last calls:\n{log}" if at % 4 == 3 else ""
        rows.append({"prompt": t.chat(r["q"] + " Answer with one ```python block." + tail), "tests": r["tests"]})  # fmt: skip
    return rows


def _settings() -> Iterator[Case]:
    yield Case(
        name="messages for a base model without a chat template", rows=w.tickets(300, 8028),
        reward=w.LABEL, model=BASE, named="template",
        accepted="The tokenizer has no chat template, which messages require.",
    )  # fmt: skip
    alpaca = "Below is an instruction that describes a task. Write a response that completes it.\n\n### Instruction:\n{}\n\n### Response:\n"
    yield Case(
        name="the user's message holds the Alpaca template",
        rows=[{**row, "prompt": t.chat(alpaca.format(row["prompt"][0]["content"]))} for row in w.articles(200, 8029)],
        reward=w.ROUGE, named="template|Response:|assistant's opening",
        accepted="The messages contain a second prompt template (### Instruction / ### Response).",
    )  # fmt: skip
    ask = "Sort the mail into billing, shipping, defect, return or account. billing: charges and invoices. shipping: parcels and delivery. defect: broken goods. return: goods to send back. account: logins and profiles. Write one sentence that explains the choice and end with 'Category: LABEL'.\n\n"
    yield Case(
        name="prompts may have 48 tokens", reward=w.LABEL, framework="trl",
        rows=[{"prompt": t.chat(ask + r["q"]), "answer": r["a"]} for r in f.tickets(300, 8032)],
        run_config=trl(max_prompt_length=48), named="prompt.*(long|limit|cut)|max_prompt_length",
        accepted="max_prompt_length of 48 is less than nearly all prompts have; their labels are cut.",
    )  # fmt: skip
    yield Case(
        name="32 tokens for JSON of three fields", rows=k.notices(300, 8033), reward=k.FIELDS,
        framework="trl", run_config=trl(max_completion_length=32),
        named="LEN101|max_completion_length|longer than|limit",
        accepted="The answers have more than 32 tokens, so each right response is cut.",
    )  # fmt: skip
    yield Case(
        name="the engine's batch of tokens is smaller than one prompt with its response",
        rows=k.programs(160, 8035), reward=k.STDIN, framework="verl",
        run_config=verl(("n: 8, ", "n: 8, enable_chunked_prefill: false, max_num_batched_tokens: 1024, ")),
        named="max_num_batched_tokens|batched",
        accepted="vLLM refuses max_num_batched_tokens of 1024 without chunked prefill when the context is 2048.",
    )  # fmt: skip
