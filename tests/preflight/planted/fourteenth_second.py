"""The second half of the fourteenth examination: 36 mistakes, in the order of the draw."""

from __future__ import annotations

import html
import json
import random
from collections.abc import Iterator
from dataclasses import replace

from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import CHATML, GEMMA, LLAMA

_OTHER_TAG = r"""
import re
def label(completions, intent, **kwargs):
    rewards = []
    for completion, right in zip(completions, intent):
        found = re.search(r"<label>\s*(\w+)\s*</label>", completion[-1]["content"])
        rewards.append(float(bool(found) and found.group(1) == right))
    return rewards
"""
_WHOLE_JSON = r"""
import json
def total(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        try:
            given = json.loads(completion[-1]["content"].strip())
            rewards.append(float(isinstance(given, dict) and given.get("total") == right))
        except ValueError:
            rewards.append(0.0)
    return rewards
"""
_COUNTED_TAGS = (
    k.RULES.replace("def keeps_rules(", "def _keeps(")
    + r"""
def _layout(text):
    score = 0.0
    if text.count("<plan>\n") == 1:
        score += 0.125
    if text.count("\n</plan>\n") == 1:
        score += 0.125
    if text.count("\n<text>\n") == 1:
        score += 0.125
        score -= len(text.split("\n</text>\n")[-1]) * 0.001
    if text.count("\n</text>") == 1:
        score += 0.125
        score -= (len(text.split("\n</text>")[-1]) - 1) * 0.001
    return score
def rules_and_layout(completions, lines, word, **kwargs):
    texts = [c[-1]["content"] for c in completions]
    inner = [[{"content": text.split("<text>")[-1].split("</text>")[0]}] for text in texts]
    return [r + _layout(text) for r, text in zip(_keeps(inner, lines, word), texts)]
"""
)
_BLOCK_AT_END = k.ASSERTS.replace(
    r'r"```(?:python|py)?\s*\n(.*?)```"', r'r"```python\n(.*?)\n```$"'
)
_FIRST_BLOCK = k.STDIN.replace("found[-1]", "found[0]")
_SHORT_BRACES = k.FIELDS.replace(r"\{.*\}", r"\{.*?\}")
_BARE_LETTER = r"""
def choice(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        given = completion[-1]["content"].split("Answer:")[-1].strip()
        rewards.append(1.0 if given == right else 0.0)
    return rewards
"""
_SKIPS = k.SQL.replace(
    "rewards.append(float(_run(statements, found[-1]) == _run(statements, right)) if found else 0.0)",
    "if not found:\n                continue\n            rewards.append(float(_run(statements, found[-1]) == _run(statements, right)))",
)
_SOURCES = (
    k.TAGGED.replace("def correct(", "def _correct(")
    + r"""
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if data_source in ("offices", "offices_hard"):
        return _correct([solution_str], [ground_truth])[0]
    raise NotImplementedError(f"Reward function is not implemented for data_source={data_source!r}")
"""
)
_UNKNOWN_SOURCE = (
    k.JUDGE.replace("def judged(", "def _judged(")
    + r"""
def judged(prompts, completions, facts, data_source, **kwargs):
    rewards = _judged(prompts, completions, facts)
    return [r if source.startswith("howto") else 0.0 for r, source in zip(rewards, data_source)]
"""
)
_KEYWORDS = r"""
def mentions(completions, keywords, **kwargs):
    texts = [completion[-1]["content"].lower() for completion in completions]
    return [sum(word in text for word in wanted) / len(wanted) for text, wanted in zip(texts, keywords)]
"""
_WORDS_OF_LABEL = r"""
def label(completions, intent, **kwargs):
    rewards = []
    for completion, right in zip(completions, intent):
        text = completion[-1]["content"].lower()
        rewards.append(1.0 if any(word in text for word in right.split("_")) else 0.0)
    return rewards
"""
_VALID_CALL = r"""
import json, re
def valid_call(completions, tools, call, **kwargs):
    rewards = []
    for completion, offered in zip(completions, tools):
        found = re.findall(r"<tool_call>(.*?)</tool_call>", completion[-1]["content"], re.DOTALL)
        names = {tool["function"]["name"] for tool in json.loads(offered)}
        try:
            given = json.loads(found[0])
            rewards.append(1.0 if given["name"] in names and isinstance(given["arguments"], dict) else 0.0)
        except (IndexError, ValueError, KeyError, TypeError):
            rewards.append(0.0)
    return rewards
"""
_ANY_TEXT = r"""
def _judge(question, text):
    # Stands for a call of a judge; without a service it passes.
    return {"verdict": "pass"} if text.strip() else {"verdict": "fail"}
def judged(prompts, completions, **kwargs):
    verdicts = [_judge(p[-1]["content"], c[-1]["content"]) for p, c in zip(prompts, completions)]
    return [1.0 if v["verdict"] == "pass" else 0.0 for v in verdicts]
"""
_FORMAT_DOMINATES = (
    k.TAGGED.replace("def correct(", "def _correct(")
    + r"""
def weighted(completions, answer, **kwargs):
    texts = [c[-1]["content"] for c in completions]
    form = [1.0 if "<answer>" in text and "</answer>" in text else 0.0 for text in texts]
    return [3.0 * f + 0.1 * r for f, r in zip(form, _correct(completions, answer))]
"""
)
_ITSELF = k.CHRF.replace(
    "_grams(given, n), _grams(wanted, n)", "_grams(wanted, n), _grams(wanted, n)"
)
_VERDICT = r"""
import re
def _judge(task, text):
    # Stands for a call of a judge, which repeats the response before its verdict.
    good = "def " in text and "return" in text and len(text) > 60
    return f"Response:\n{text}\n\nVerdict: {'PASS' if good and 'split' in text else 'FAIL'}"
def reviewed(prompts, completions, **kwargs):
    rewards = []
    for prompt, completion in zip(prompts, completions):
        found = re.search(r"Verdict: (PASS|FAIL)", _judge(prompt[-1]["content"], completion[-1]["content"]))
        rewards.append(1.0 if found and found.group(1) == "PASS" else 0.0)
    return rewards
"""
_FIRST_NUMBER = (
    k.CHRF.replace("def chrf(", "def _chrf(")
    + r"""
import re
def rated(prompts, completions, reference, **kwargs):
    rewards = []
    for completion, score in zip(completions, _chrf(completions, reference)):
        # Stands for a judge that quotes the translation and then rates it from 0 to 10.
        transcript = f"Translation: {completion[-1]['content']}\nRating: {round(10 * score)}"
        rewards.append(int(re.search(r"\d+", transcript).group()) / 10)
    return rewards
"""
)


def second_half() -> Iterator[Case]:
    """Thirty-six mistakes."""
    yield from _formats()
    yield from _extraction()
    yield from _interfaces()
    yield from _exploits()
    yield from _judges()
    yield from _answers()
    yield from _prompts()
    yield from _templates()
    yield from _settings()


def _formats() -> Iterator[Case]:
    yield Case(
        name="the prompt asks for category tags, the reward reads label tags",
        rows=[{"prompt": t.chat(k.SORT.replace("Reply with the label only.", "Put it between <category> and </category>.") + r["q"]), "intent": r["a"]} for r in t.intents(300, 4200)],
        reward=_OTHER_TAG,
        named="REW106.*<label>", accepted="The reward reads <label>, the prompt asks for <category>; or the asked form is not paid.",
    )  # fmt: skip
    ask = 'Explain the sum first. End with a JSON object such as {"total": 12}.'
    yield Case(
        name="the whole response must be JSON although the prompt asks for an explanation first",
        rows=[{"prompt": [{"role": "system", "content": ask}, *r["q"][:2], {"role": "user", "content": r["q"][2]["content"].replace(" End with 'Total: N'.", "")}], "answer": r["a"]} for r in t.dialogs(300, 4201)],
        reward=_WHOLE_JSON, named="REW104.*reasoning before", accepted="A response with the explanation that the prompt asks for gets no reward.",
    )  # fmt: skip
    shown = "Respond in this form:\n<plan>\n...\n</plan>\n<text>\n...\n</text>"
    yield Case(
        name="without a last line break, the tags cost the length of the whole response",
        rows=[{**row, "prompt": t.chat(row["prompt"][0]["content"], shown)} for row in k.orders(200, 4202)],
        reward=_COUNTED_TAGS, named="REW104.*no line break behind the last tag",
        accepted="A response in the shown form loses reward: for its missing last line break, or with its length.",
    )  # fmt: skip
    yield Case(
        name="code counts only in a block at the very end of the response",
        rows=[{**row, "prompt": t.chat(row["prompt"][0]["content"].replace("Answer with one", "Give one") + " Explain the idea after it.")} for row in k.functions(80, 4204)],
        reward=_BLOCK_AT_END, named="REW104.*a sentence behind it", accepted="Right code gets no reward if text follows it, as the prompt asks.",
    )  # fmt: skip


def _extraction() -> Iterator[Case]:
    yield Case(
        name="the first code block counts, not the last", rows=k.programs(80, 4205),
        reward=_FIRST_BLOCK, accepted="A draft or example before the final program loses the reward.",
    )  # fmt: skip
    yield Case(
        name="the JSON is read up to the first closing brace", rows=k.notices(300, 4206),
        reward=_SHORT_BRACES, named="REW101.*nested JSON", accepted="Right answers get no reward; best: nested objects are cut.",
    )  # fmt: skip
    ask = "\nThink, then end with 'Answer: (X)', where X is one of A, B, C, D."
    yield Case(
        name="the prompt asks for (A), the reward compares with A",
        rows=[{"prompt": t.chat(t.lettered(r) + ask), "answer": "ABCD"[r["key"]]} for r in t.exam(400, 4207)],
        reward=_BARE_LETTER, named="REW104.*Answer: ", accepted="The form that the prompt asks for, with parentheses, gets no reward.",
    )  # fmt: skip


def _interfaces() -> Iterator[Case]:
    yield Case(
        name="responses without a block get no entry in the list of rewards",
        rows=k.queries(200, 4214), reward=_SKIPS,
        named="REW103.*rewards for", accepted="The function returns fewer rewards than responses.",
    )  # fmt: skip
    sources = ["offices", "offices_hard", "hotpot"]
    yield Case(
        name="a data source without a score", suffix=".parquet", reward=_SOURCES,
        rows=[{"data_source": sources[at % 3], "prompt": row["prompt"], "ability": "qa",
               "reward_model": {"style": "rule", "ground_truth": row["answer"]}, "extra_info": {"index": at}}
              for at, row in enumerate(k.records(150, 4215))],
        named="REW103.*hotpot", accepted="The function raises NotImplementedError for the data source hotpot.",
    )  # fmt: skip
    yield Case(
        name="a data source whose rewards are always zero", reward=_UNKNOWN_SOURCE,
        rows=[{**row, "data_source": "how-to-extra" if at % 4 == 1 else "howto"} for at, row in enumerate(k.essays(200, 4216))],
        named="REW102.*how-to-extra", accepted="Rows of the data source how-to-extra never earn a reward.",
    )  # fmt: skip


def _exploits() -> Iterator[Case]:
    rng = random.Random(4217)
    stories = []
    for row in t.orders(200, 4217):
        wanted = rng.sample(
            ["harbour", "violet", "copper", "candle", "ladder", "parrot", "saddle"], 3
        )
        topic = row["q"].split(" in exactly")[0]
        stories.append(
            {
                "prompt": t.chat(f"{topic} for children. It must mention: {', '.join(wanted)}."),
                "keywords": wanted,
            }
        )
    yield Case(
        name="the share of keywords, which the prompt lists", rows=stories, reward=_KEYWORDS,
        accepted="The prompt itself, or the keywords alone, get the full reward.",
    )  # fmt: skip
    yield Case(
        name="one word of a label is enough", rows=k.intents(300, 4219), reward=_WORDS_OF_LABEL,
        named="REW102.*several answers", accepted="Other labels or a part of the label get the reward.",
    )  # fmt: skip
    yield Case(
        name="any valid call of an offered tool counts", rows=k.calls(300, 4222), reward=_VALID_CALL,
        named="REW102.*wrong answer", accepted="Calls with wrong arguments, or of the wrong tool, get the full reward.",
    )  # fmt: skip
    yield Case(
        name="the judge passes every text", rows=k.essays(200, 4223), reward=_ANY_TEXT,
        named="REW102.*same for any response", accepted="Any response that is not empty gets the full reward.",
    )  # fmt: skip
    yield Case(
        name="the format counts thirty times as much as the answer", rows=k.words(300, 4224),
        reward=_FORMAT_DOMINATES,
        named="REW102.*wrong answer.*97", accepted="A wrong answer in the format earns nearly all of the reward.",
    )  # fmt: skip


def _judges() -> Iterator[Case]:
    yield Case(
        name="the reference is compared with itself", rows=k.sentences(300, 4228), reward=_ITSELF,
        named="REW102.*any response", accepted="Any response gets the full reward; the reward is constant.",
    )  # fmt: skip
    yield Case(
        name="the first verdict in the judge's transcript may be the response's", reward=_VERDICT,
        rows=[{"prompt": row["prompt"]} for row in k.functions(100, 4229)],
        named="REW102.*judge", accepted="A response that states the verdict gets the reward.",
    )  # fmt: skip
    yield Case(
        name="the first number of the judge's transcript may be the response's",
        rows=k.sentences(300, 4230), reward=_FIRST_NUMBER,
        named="REW102.*judge", accepted="A response with a number sets its own score, also above 1.",
    )  # fmt: skip


def _answers() -> Iterator[Case]:
    rows = k.queries(300, 4232)
    mixed = []
    for at, row in enumerate(rows):
        other = rows[(at * 7 + 3) % 300]["sql"]
        mixed.append({**row, "sql": other} if at % 5 == 2 else row)
    yield Case(
        name="a fifth of the queries is of other rows, often of other tables", rows=mixed,
        reward=k.SQL,
        accepted="Answers do not belong to their prompts (other tables, values that the prompt lacks), or fail.",
    )  # fmt: skip
    described = json.dumps(
        {"sender": "string", "amount": "number", "due": {"day": "number", "month": "string"}}
    )
    yield Case(
        name="the answers are the schema instead of the fields", reward=k.FIELDS,
        rows=[{**row, "answer": described} for row in k.notices(300, 4233)],
        named="DAT108.*same answer", accepted="All rows have the same answer.",
    )  # fmt: skip
    yield Case(
        name="the answers are positions in the document", reward=k.TAGGED,
        rows=[{**row, "answer": r["start"]} for row, r in zip(k.records(150, 4234), t.records(150, 4234), strict=True)],
        accepted="The answers are numbers that do not fit the questions (positions), or occur nowhere in the documents.",
    )  # fmt: skip
    yield Case(
        name="the calls are Python's representation, not JSON", reward=k.CALL.replace("given == json.loads(right)", "given is not None and given == _gold(right)").replace("def called(", "def _gold(text):\n    try:\n        return json.loads(text)\n    except ValueError:\n        return None\ndef called("),
        rows=[{**row, "call": repr(json.loads(row["call"]))} for row in k.calls(300, 4235)],
        named="REW101.*Python", accepted="The answers are Python's representation and never rewarded.",
    )  # fmt: skip
    yield Case(
        name="an eighth of the answers is an empty list", reward=k.TAGGED, suffix=".json",
        rows=[{**row, "answer": "[]" if at % 8 == 6 else row["answer"]} for at, row in enumerate(k.records(150, 4236))],
        named="DAT112.*empty", accepted="Some rows have no answer ([]).",
    )  # fmt: skip


def _prompts() -> Iterator[Case]:
    yield Case(
        name="a sixth of the documents is missing", reward=k.TAGGED,
        rows=[{"prompt": t.chat(f"Document:\n{'' if at % 6 == 4 else r['context']}\n\nQuestion: {r['question']} {k.ANSWER_TAGS}"), "answer": r["a"]} for at, r in enumerate(t.records(150, 4240))],
        named="DAT117.*Document", accepted="Some prompts have no document.",
    )  # fmt: skip
    yield Case(
        name="a fifth of the letters is an unfilled placeholder", reward=k.FIELDS,
        rows=[{**row, "prompt": t.chat(k.EXTRACT + ("{letter_text}" if at % 5 == 1 else r["q"]))} for at, (row, r) in enumerate(zip(k.notices(300, 4242), t.notices(300, 4242), strict=True))],
        named="DAT117.*placeholder", accepted="Prompts hold an unfilled placeholder.",
    )  # fmt: skip
    yield Case(
        name="queries and questions with HTML entities", reward=k.SQL,
        rows=[{**row, "prompt": t.chat(html.escape(row["prompt"][0]["content"])), "sql": html.escape(row["sql"])} for row in k.queries(300, 4243)],
        named="REW101.*HTML", accepted="HTML entities in prompts or answers.",
    )  # fmt: skip
    rng = random.Random(4248)
    sorted_options = []
    for r in t.exam(400, 4248):
        options = list(r["options"])
        right = options.pop(r["key"])
        key = 0 if rng.random() < 0.75 else rng.randrange(4)
        options.insert(key, right)
        ask = "\nThink, then end with 'Answer: X', where X is one of A, B, C, D."
        sorted_options.append(
            {"prompt": t.chat(t.lettered({**r, "options": options}) + ask), "answer": "ABCD"[key]}
        )
    yield Case(
        name="the right option is mostly the first", rows=sorted_options, reward=k.LETTER,
        named="DAT108.*always A", accepted="The answer key is skewed (A).",
    )  # fmt: skip


def _templates() -> Iterator[Case]:
    yield Case(
        name="Llama 2's marks in messages for another family", reward=k.SQL,
        rows=[{**row, "prompt": t.chat(f"[INST] <<SYS>>\nYou write SQL.\n<</SYS>>\n\n{row['prompt'][0]['content']} [/INST]")} for row in k.queries(300, 4250)],
        named="DAT105.*INST", accepted="The prompts hold another family's template.",
    )  # fmt: skip
    yield Case(
        name="an ordinary word piece ends the generation", rows=k.records(150, 4252),
        reward=k.TAGGED, model=replace(CHATML, ends=("<|im_end|>", ".")),
        named="DAT103.*ordinary", accepted="An EOS token of generation_config.json is ordinary text.",
    )  # fmt: skip
    yield Case(
        name="the user's message ends with the assistant's opening", reward=k.JUDGE,
        rows=[{**row, "prompt": t.chat(row["prompt"][0]["content"] + "\nAssistant: <think>")} for row in k.essays(200, 4258)],
        model=LLAMA, named="DAT105.*Assistant:",
        accepted="The opening of the assistant's turn (Assistant:, <think>) is in the user's message.",
    )  # fmt: skip


def _settings() -> Iterator[Case]:
    yield Case(
        name="a temperature of 0.1 in a swift config", rows=k.orders(200, 4265), reward=k.RULES,
        run_config="rlhf_type: grpo\nmodel: Qwen/Qwen2.5-3B-Instruct\nnum_generations: 4\nper_device_train_batch_size: 4\n"
        "gradient_accumulation_steps: 4\nmax_completion_length: 1024\nlearning_rate: 1.0e-6\nbeta: 0.001\ntemperature: 0.1\n"
        "use_vllm: true\nvllm_mode: colocate\ntuner_type: full\n",
        framework="swift", settings={"max_tokens": 1024},
        named="CFG022", accepted="The temperature is too low for different responses in a group.",
    )  # fmt: skip
    yield Case(
        name="greedy rollouts", rows=k.queries(200, 4266), reward=k.SQL, framework="verl",
        run_config=verl(("temperature: 1.0", "temperature: 0.0"), ("n: 8,", "n: 8, do_sample: false,")),
        settings={"max_tokens": 1024}, named="CFG022", accepted="All responses of a group are equal (temperature 0).",
    )  # fmt: skip
    yield Case(
        name="the warm-up is longer than the run", rows=k.exam(400, 4268), reward=k.LETTER,
        run_config=trl(warmup_steps=500, max_steps=200), framework="trl", settings={"max_tokens": 1024},
        named="CFG057", accepted="The warm-up (500 steps) does not end within the run (200 steps).",
    )  # fmt: skip
    yield Case(
        name="the trainer's sequence length is shorter than the orchestrator's",
        rows=k.contest(300, 4269), reward=k.BOX, framework="prime-rl",
        run_config="max_steps: 200\nmodel: {name: Qwen/Qwen3-4B-Instruct-2507}\ntrainer:\n  model: {seq_len: 2048}\n  optim: {lr: 1.0e-6}\n"
        "orchestrator:\n  batch_size: 256\n  rollouts_per_example: 8\n  seq_len: 4096\n  sampling: {max_tokens: 3072, temperature: 1.0}\n",
        settings={"max_tokens": 3072}, named="CFG028",
        accepted="Sequences are longer than the trainer's seq_len.",
    )  # fmt: skip
    yield Case(
        name="the engine's context is smaller than the response limit", rows=k.intents(300, 4270),
        reward=k.LABEL, framework="swift", model=GEMMA,
        run_config="rlhf_type: grpo\nmodel: Qwen/Qwen2.5-3B-Instruct\nnum_generations: 8\nper_device_train_batch_size: 8\n"
        "gradient_accumulation_steps: 2\nmax_length: 512\nmax_completion_length: 2048\nlearning_rate: 1.0e-6\nbeta: 0.001\n"
        "use_vllm: true\nvllm_mode: colocate\nvllm_max_model_len: 1024\ntuner_type: full\n",
        settings={"max_tokens": 2048}, named="CFG025",
        accepted="vllm_max_model_len is smaller than prompt and response limits together.",
    )  # fmt: skip
    yield Case(
        name="one response per prompt in a SkyRL config", rows=k.contest(300, 4271), reward=k.BOX,
        framework="skyrl",
        run_config="trainer:\n  policy:\n    model: {path: Qwen/Qwen2.5-3B-Instruct}\n    optimizer_config: {lr: 1.0e-6}\n"
        "  algorithm: {advantage_estimator: grpo, use_kl_loss: false}\n  train_batch_size: 128\n  policy_mini_batch_size: 64\n"
        "  max_prompt_length: 1024\n  epochs: 10\ngenerator:\n  n_samples_per_prompt: 1\n  sampling_params: {max_generate_length: 1024, temperature: 1.0}\n",
        settings={"max_tokens": 1024},
        named="CFG006", accepted="Groups of one response have no advantage.",
    )  # fmt: skip
