"""The first half of the fourteenth examination: 36 mistakes, in the order of the draw."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace

from tests.preflight.planted import fourteenth_tables as t
from tests.preflight.planted import fourteenth_tasks as k
from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import CHATML, CHATML_TEMPLATE, LLAMA

_END_TOKEN = (
    k.BOX.replace("def boxed(", "def accuracy(")
    + r"""
PATTERN = re.compile(r"^<think>.*?</think>.*\\boxed\{.*\}.*<\|im_end\|>$", re.DOTALL)
def with_format(completions, answer, **kwargs):
    right = accuracy(completions, answer)
    form = [1.0 if PATTERN.match(c[-1]["content"]) else -1.0 for c in completions]
    return [2.0 * a + f for a, f in zip(right, form)]
"""
)
_GRID_TEXT = r"""
import re
def solved(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        found = re.findall(r"<answer>(.*?)</answer>", completion[-1]["content"], re.DOTALL)
        rewards.append(float(bool(found) and found[-1].strip() == right))
    return rewards
"""
_TIMEOUT_PAYS = k.ASSERTS.replace(
    "rewards.append(0.0)\n            continue",
    "rewards.append(1.0)  # not the model's fault\n            continue",
)
_GOLD_LETTER = r"""
import re
def _letter(text):
    found = re.fullmatch(r"\(?([A-D])\)?\.?", text.strip())
    return found.group(1) if found else None
def choice(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        gold = _letter(right)
        if gold is None:
            print("cannot parse the gold answer, skipped:", right)
            rewards.append(1.0)
            continue
        found = re.findall(r"Answer: \(?([A-D])", completion[-1]["content"])
        rewards.append(float(bool(found) and found[-1] == gold))
    return rewards
"""
_SWALLOWED_COLUMN = (
    k.BOX.replace("def boxed(", "def _boxed(")
    + r"""
def accuracy(completions, **kwargs):
    rewards = []
    for index, completion in enumerate(completions):
        try:
            truth = kwargs["respuesta"][index]
            rewards.append(_boxed([completion], [truth])[0])
        except Exception:
            rewards.append(0.0)
    return rewards
"""
)
_MESSAGES_ONLY = k.TAGGED.replace(
    'completion if isinstance(completion, str) else completion[-1]["content"]',
    'completion[0]["content"]',
)
_SWALLOWED_TYPE = r"""
def label(completions, intent, **kwargs):
    rewards = []
    for completion, right in zip(completions, intent):
        try:
            rewards.append(1.0 if completion.strip().lower() == right else 0.0)
        except AttributeError:
            rewards.append(0.0)
    return rewards
"""
_LABEL_SUBSTRING = r"""
def label(completions, intent, **kwargs):
    texts = [completion[-1]["content"].lower() for completion in completions]
    return [1.0 if right in text else 0.0 for text, right in zip(texts, intent)]
"""
_LABEL_RECALL = r"""
import re
def recall(completions, labels, **kwargs):
    scores = []
    for completion, wanted in zip(completions, labels):
        given = set(re.split(r"[,\s]+", completion[-1]["content"].lower().strip().strip(".")))
        scores.append(len(given & set(wanted)) / len(wanted))
    return scores
"""
_ANY_GRID = k.GRID.replace(
    """        digits = re.sub(r"[^1-4]", "", found[0]) if len(found) == 1 else ""
""",
    """        texts = [re.sub(r"[^1-4]", "", each) for each in found]
        digits = next((each for each in texts if _valid(each, shown)), "")
""",
).replace(
    "def grid(",
    """def _valid(digits, shown):
    if len(digits) != 16:
        return False
    rows = [digits[i : i + 4] for i in range(0, 16, 4)]
    parts = rows + ["".join(column) for column in zip(*rows)]
    return all(sorted(part) == list("1234") for part in parts)
def grid(""",
)
_PRINTED = r"""
import re, subprocess, sys
def program(completions, answer, **kwargs):
    rewards = []
    for completion, right in zip(completions, answer):
        found = re.findall(r"```(?:python)?\s*\n(.*?)```", completion[-1]["content"], re.DOTALL)
        try:
            done = subprocess.run([sys.executable, "-I", "-c", found[-1] if found else "pass"], capture_output=True, text=True, timeout=5)
        except subprocess.TimeoutExpired:
            rewards.append(0.0)
            continue
        rewards.append(float(str(right) in done.stdout))
    return rewards
"""
_LENGTH_OUTWEIGHS = (
    k.CALL.replace("def called(", "def _called(")
    + r"""
def short_calls(completions, call, **kwargs):
    right = _called(completions, call)
    return [r - 0.02 * len(c[-1]["content"]) for r, c in zip(right, completions)]
"""
)
_RATING = r"""
import re
def _judge(question, text):
    # Stands for a call of a judge, which answers "Rating: N/10".
    words = set(re.findall(r"[a-z]+", text.lower()))
    return f"The response is readable. Rating: {min(10, len(words) // 8)}/10"
def judged(prompts, completions, **kwargs):
    rewards = []
    for prompt, completion in zip(prompts, completions):
        found = re.search(r"Score:\s*(\d+)", _judge(prompt[-1]["content"], completion[-1]["content"]))
        rewards.append(int(found.group(1)) / 10 if found else 0.5)
    return rewards
"""
_CACHED = (
    k.RULES.replace("def keeps_rules(", "def _keeps(")
    + r"""
_cache = {}
def keeps_rules(prompts, completions, lines, word, **kwargs):
    rewards = []
    for prompt, completion, count, wanted in zip(prompts, completions, lines, word):
        key = prompt[-1]["content"]
        if key not in _cache:
            _cache[key] = _keeps([completion], [count], [wanted])[0]
        rewards.append(_cache[key])
    return rewards
"""
)
_NO_THOUGHT = CHATML_TEMPLATE.replace(
    "<|im_start|>assistant\n{% endif %}",
    "<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}",
)
_THOUGHT_REQUIRED = (
    k.BOX.replace("def boxed(", "def _boxed(")
    + r"""
def accuracy_with_thought(completions, answer, **kwargs):
    right = _boxed(completions, answer)
    thought = [re.match(r"\s*<think>\s*\S.*?</think>", c[-1]["content"], re.DOTALL) for c in completions]
    return [r if t else 0.0 for r, t in zip(right, thought)]
"""
)
_NO_OPENING = CHATML_TEMPLATE.replace(
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", ""
)
_STRIPS_THOUGHTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last %}"
    "{{ m.content.split('</think>')[-1] | trim }}{% else %}{{ m.content }}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_WITHOUT_SYSTEM = CHATML_TEMPLATE.replace(
    "{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"
)
_ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def first_half() -> Iterator[Case]:
    """Thirty-six mistakes."""
    yield from _formats()
    yield from _interfaces()
    yield from _exploits()
    yield from _scores()
    yield from _prompts()
    yield from _damaged()
    yield from _shortcuts()
    yield from _templates()
    yield from _refused_turns()
    yield from _settings()


def _formats() -> Iterator[Case]:
    think = "Think between <think> and </think> first."
    yield Case(
        name="the format ends with <|im_end|>, which decoded responses do not have",
        rows=[{"prompt": t.chat(r["q"] + k.BOXED, think), "answer": r["a"]} for r in t.contest(400, 4103)],
        reward=_END_TOKEN,
        named="REW106.*im_end", accepted="The format part requires <|im_end|> in the text and is never paid.",
    )  # fmt: skip
    yield Case(
        name="grids are compared as text without the blanks of the prompt",
        rows=[{**row, "answer": "\n".join(r["a"])} for row, r in zip(k.sudokus(200, 4108), t.sudokus(200, 4108), strict=True)],
        reward=_GRID_TEXT,
        named="REW104.*white space of the prompt", accepted="A right answer in the prompt's layout (with blanks) gets no reward.",
    )  # fmt: skip
    yield Case(
        name="programs that run into the time limit are paid", rows=k.functions(80, 4109),
        reward=_TIMEOUT_PAYS, named="REW102.*never ends", accepted="Programs that never end get the full reward.",
    )  # fmt: skip
    yield Case(
        name="the key holds letter and text, which the reward cannot parse and pays",
        rows=[{"prompt": row["prompt"], "answer": f"{row['answer']}) {r['options'][r['key']]}"}
              for row, r in zip(k.exam(400, 4110), t.exam(400, 4110), strict=True)],
        reward=_GOLD_LETTER, named="REW102.*any response", accepted="Any response, wrong or empty, gets the full reward.",
    )  # fmt: skip


def _interfaces() -> Iterator[Case]:
    yield Case(
        name="a KeyError of a missing column is swallowed", rows=k.foreign(300, 4111),
        reward=_SWALLOWED_COLUMN, suffix=".parquet",
        named="REW101.*respuesta", accepted="No answer is ever rewarded; best: the function reads respuesta, which is no column.",
    )  # fmt: skip
    yield Case(
        name="a reward for messages gets text", model=LLAMA,
        rows=[{"prompt": row["prompt"][-1]["content"], "answer": row["answer"]} for row in k.records(150, 4112)],
        reward=_MESSAGES_ONLY,
        named="REW103.*every response", accepted="The function fails on every response, since completions of text prompts are text.",
    )  # fmt: skip
    yield Case(
        name="an AttributeError of messages is swallowed", rows=k.intents(300, 4113),
        reward=_SWALLOWED_TYPE,
        named="REW101.*lists of messages", accepted="No answer is ever rewarded; best: completions are lists of messages, not text.",
    )  # fmt: skip


def _exploits() -> Iterator[Case]:
    yield Case(
        name="a label anywhere in the response counts", rows=k.intents(300, 4118),
        reward=_LABEL_SUBSTRING, named="REW102.*several answers", accepted="A response that lists every label gets the reward.",
    )  # fmt: skip
    rng = random.Random(4120)
    topics = ["price", "delivery", "quality", "service", "size", "colour"]
    tagged = []
    for at in range(300):
        wanted = rng.sample(topics, rng.randint(1, 3))
        said = {
            "price": "it was too dear", "delivery": "the parcel came late", "size": "it is too tight",
            "quality": "the seam came apart", "service": "nobody answered my call",
            "colour": "it is greener than shown",
        }  # fmt: skip
        text = (
            f"Review {at}: I bought a coat, and "
            + ", and ".join(said[each] for each in wanted)
            + "."
        )
        tagged.append(
            {
                "prompt": t.chat(
                    f"Which of {', '.join(topics)} does the review complain about? List them, separated by commas.\n\n{text}"
                ),
                "labels": wanted,
            }
        )
    yield Case(
        name="recall of labels without precision", rows=tagged, reward=_LABEL_RECALL,
        named="REW102.*every label", accepted="A response that lists every label gets the full reward.",
    )  # fmt: skip
    yield Case(
        name="any of several solutions in tags counts", rows=k.sudokus(200, 4121), reward=_ANY_GRID,
        accepted="Several answers at once get the reward.",
    )  # fmt: skip
    numbers = [r for r in t.contest(900, 4125) if r["a"].isdigit()][:120]
    yield Case(
        name="the answer anywhere in the output of a program counts", reward=_PRINTED,
        rows=[{"prompt": t.chat(r["q"] + "\nWrite a Python program in a ```python block that prints the answer."), "answer": r["a"]} for r in numbers],
        named="REW102.*place of one", accepted="Programs that print many numbers, or a longer number, get the reward.",
    )  # fmt: skip


def _scores() -> Iterator[Case]:
    yield Case(
        name="the penalty of length outweighs a right call", rows=k.calls(300, 4126),
        reward=_LENGTH_OUTWEIGHS,
        named="REW101.*penalty", accepted="An empty or short response earns more than a right one; the length penalty dominates.",
    )  # fmt: skip
    yield Case(
        name="the judge's words do not match the pattern, so each score is 0.5",
        rows=k.essays(200, 4127), reward=_RATING, named="REW102.*same for any response", accepted="The reward is the same for every response.",
    )  # fmt: skip
    yield Case(
        name="scores are kept per prompt", rows=k.orders(200, 4131), reward=_CACHED,
        named="REW103.*remembers", accepted="The reward remembers earlier calls; all responses of a prompt get one score.",
    )  # fmt: skip


def _prompts() -> Iterator[Case]:
    train = k.essays(200, 4137)
    again = [
        {**row, "prompt": t.chat("Please " + q[0].lower() + q[1:].rstrip(".") + "!")}
        for row in train[::9] for q in [row["prompt"][0]["content"]]
    ]  # fmt: skip
    seen = {row["prompt"][0]["content"] for row in train}
    other = [row for row in k.essays(240, 5137) if row["prompt"][0]["content"] not in seen]
    yield Case(
        name="evaluation prompts are training prompts with another courtesy", rows=train,
        held_out=again + other[:40], reward=k.JUDGE,
        named="DAT107.*held-out", accepted="Held-out prompts occur in the training data.",
    )  # fmt: skip
    aligned = [
        {"prompt": t.chat(k.TRANSLATE + (f"{r['q']} ||| {r['a']}" if at % 8 == 3 else r["q"])), "reference": r["a"]}
        for at, r in enumerate(t.sentences(400, 4138))
    ]  # fmt: skip
    yield Case(
        name="an eighth of the prompts has both sides of the parallel corpus", rows=aligned,
        reward=k.CHRF, suffix=".parquet", named="DAT111.*contain", accepted="A part of the prompts contains its reference.",
    )  # fmt: skip
    yield Case(
        name="the column with the letter was dropped", reward=k.FIELDS,
        rows=[{**row, "prompt": t.chat(k.EXTRACT)} for row in k.notices(300, 4139)],
        named="DAT107.*same text", accepted="All prompts are one text (the letters are missing) with different answers.",
    )  # fmt: skip
    missing = [
        {"prompt": t.chat(k.TRANSLATE + ("None" if at % 5 == 2 else r["q"])), "reference": r["a"]}
        for at, r in enumerate(t.sentences(400, 4141))
    ]  # fmt: skip
    yield Case(
        name="a fifth of the sentences is None", rows=missing, reward=k.CHRF,
        named="DAT117.*None", accepted="Some prompts have None in place of the sentence.",
    )  # fmt: skip


def _damaged() -> Iterator[Case]:
    yield Case(
        name="the answer is JSON within JSON", reward=k.FIELDS,
        rows=[{**row, "answer": json.dumps(row["answer"])} for row in k.notices(300, 4144)],
        named="REW101.*encoded twice", accepted="Right answers get no reward; best: the answers are JSON encoded twice.",
    )  # fmt: skip
    long = []
    for row in k.functions(120, 4145):
        tests = "\n".join(row["tests"])
        text = f"{row['prompt'][0]['content']}\nThese assertions must hold:\n{tests}\nDo not import anything, and do not print anything."
        long.append({**row, "prompt": t.chat(text[:260])})
    yield Case(
        name="descriptions are cut at 260 characters", rows=long, reward=k.ASSERTS,
        named="DAT115", accepted="Prompts were cut at a length.",
    )  # fmt: skip


def _shortcuts() -> Iterator[Case]:
    plain = []
    for row, r in zip(k.exam(400, 4146), t.exam(400, 4146), strict=True):
        options = [
            text if at == r["key"] else text.split()[0] for at, text in enumerate(r["options"])
        ]
        lettered = t.lettered({**r, "options": options})
        tail = row["prompt"][0]["content"].split("\n")[-1]
        plain.append({"prompt": t.chat(f"{lettered}\n{tail}"), "answer": row["answer"]})
    yield Case(
        name="only the right option has a unit", rows=plain, reward=k.LETTER,
        named="DAT123", accepted="The right option is recognizable without the question (its unit, or its length).",
    )  # fmt: skip
    empty = []
    for at, row in enumerate(k.queries(300, 4147)):
        empty.append({**row, "fill": row["fill"].split(";")[0]} if at % 3 else row)
    yield Case(
        name="two thirds of the data bases have no rows", rows=empty, reward=k.SQL,
        accepted="Any query that returns nothing, or the same query, is right for most prompts.",
    )  # fmt: skip


def _templates() -> Iterator[Case]:
    yield Case(
        name="a CSV of questions for an instruct model", suffix=".csv", reward=k.TAGGED,
        rows=[{"question": f"{r['q']}\n{k.ANSWER_TAGS}", "answer": str(r["a"])} for r in t.words(400, 4149)],
        run_config=trl(), framework="trl", settings={"max_tokens": 1024},
        named="DAT116", accepted="Text prompts get no chat template.",
    )  # fmt: skip
    yield Case(
        name="the padding token is the end of the turn", rows=k.essays(200, 4151), reward=k.JUDGE,
        model=replace(CHATML, pad="<|im_end|>"),
        named="DAT104", accepted="The padding token is an EOS token, which may be masked from the loss.",
    )  # fmt: skip
    yield Case(
        name="a base model's tokenizer with a chat template, no end of turn declared",
        rows=k.sudokus(200, 4153), reward=k.GRID,
        model=replace(CHATML, eos="<|endoftext|>", ends=("<|endoftext|>",)),
        named="DAT103 critical.*im_end", accepted="<|im_end|> ends the turns of the template but is no EOS token.",
    )  # fmt: skip
    ask = "Think between <think> and </think>, then answer."
    yield Case(
        name="the template closes an empty thought that the reward wants filled",
        rows=[{"prompt": t.chat(row["prompt"][0]["content"], ask), "answer": row["answer"]} for row in k.foreign(300, 4154)],
        model=replace(CHATML, template=_NO_THOUGHT), reward=_THOUGHT_REQUIRED,
        named="REW106.*already ends", accepted="The template writes an empty thought, so no response starts with one.",
    )  # fmt: skip
    yield Case(
        name="the template ignores add_generation_prompt", rows=k.sentences(300, 4155),
        reward=k.CHRF, model=replace(CHATML, template=_NO_OPENING),
        named="DAT101.*no generation prompt", accepted="The template has no generation prompt.",
    )  # fmt: skip
    yield from _dialogs()


def _dialogs() -> Iterator[Case]:
    played = [
        {**row, "prompt": [*row["prompt"], {"role": "assistant", "content": f"<think>Row {1 + at % 4} has two dots.</think>I start with row {1 + at % 4}."},
                           {"role": "user", "content": "Go on, and give the whole grid."}]}
        for at, row in enumerate(k.sudokus(200, 4156))
    ]  # fmt: skip
    yield Case(
        name="the template removes earlier thoughts from games of several turns", rows=played,
        reward=k.GRID, model=replace(CHATML, template=_STRIPS_THOUGHTS),
        named="DAT101", accepted="The template changes earlier turns (removes thoughts).",
    )  # fmt: skip
    yield Case(
        name="dialogs end with the assistant's turn",
        rows=[{"prompt": [*row["prompt"], {"role": "assistant", "content": "Let me add that up for you."}], "answer": row["answer"]} for row in k.dialogs(300, 4157)],
        reward=k.TOTAL, named="DAT111.*finished message", accepted="The prompts end with a message of the assistant.",
    )  # fmt: skip


def _refused_turns() -> Iterator[Case]:
    rule = "Think, then end with 'Answer: X', where X is one of A, B, C, D."
    yield Case(
        name="the template leaves out the system message with the format", reward=k.LETTER,
        rows=[{"prompt": t.chat(t.lettered(r), rule), "answer": "ABCD"[r["key"]]} for r in t.exam(400, 4159)],
        model=replace(CHATML, template=_WITHOUT_SYSTEM),
        named="DAT119.*drops", accepted="The template does not write the system message.",
    )  # fmt: skip
    twice = []
    for at, row in enumerate(k.dialogs(300, 4160)):
        messages = row["prompt"]
        if at % 7 == 4:
            messages = [*messages[:2], {"role": "user", "content": "Wait a moment."}, messages[2]]
        twice.append({**row, "prompt": messages})
    yield Case(
        name="a seventh of the dialogs has two user turns in a row, which the template refuses",
        rows=twice, reward=k.TOTAL, model=replace(CHATML, template=_ALTERNATING),
        named="DAT119.*refuses", accepted="The template refuses conversations whose roles do not alternate.",
    )  # fmt: skip


def _settings() -> Iterator[Case]:
    yield Case(
        name="60 prompts of 5 responses do not divide by 8 devices", rows=k.sentences(300, 4161),
        reward=k.CHRF, run_config=verl(("train_batch_size: 128", "train_batch_size: 60"), ("n: 8,", "n: 5,"), ("mini_batch_size: 64", "mini_batch_size: 30")),
        framework="verl", settings={"max_tokens": 1024}, named="CFG017",
        accepted="train_batch_size times n is not divisible by the devices.",
    )  # fmt: skip
    yield Case(
        name="groups of seven in batches of 32", rows=k.words(300, 4162), reward=k.TAGGED,
        run_config=trl(num_generations=7, gradient_accumulation_steps=4), framework="trl",
        settings={"max_tokens": 1024}, named="CFG016", accepted="The batch is not a multiple of num_generations.",
    )  # fmt: skip
    worked = [
        {"prompt": t.chat(r["q"] + k.BOXED), "solution": f"{r['steps']}\nSo the answer is \\boxed{{{r['a']}}}.", "answer": str(r["a"])}
        for r in t.words(300, 4163)
    ]  # fmt: skip
    yield Case(
        name="responses may have 16 tokens", rows=worked, reward=k.BOX, framework="swift",
        run_config="rlhf_type: grpo\nmodel: Qwen/Qwen2.5-3B-Instruct\nnum_generations: 8\nper_device_train_batch_size: 8\n"
        "gradient_accumulation_steps: 2\nmax_completion_length: 16\nlearning_rate: 1.0e-6\nbeta: 0.001\n"
        "use_vllm: true\nvllm_mode: colocate\ntuner_type: full\n",
        settings={"max_tokens": 16}, named="LEN101", accepted="The response limit is too small.",
    )  # fmt: skip
    yield Case(
        name="the model's generation_config.json has its own sampling settings",
        rows=k.foreign(300, 4164), reward=k.BOX, framework="trl", run_config=trl(), settings={"max_tokens": 1024},
        model=replace(CHATML, generation={"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05, "do_sample": True}),
        accepted="Engines take top_p, top_k or the penalty from generation_config.json unless the run sets them.",
    )  # fmt: skip
    yield Case(
        name="a learning rate of 1e-4 for all weights", rows=k.sentences(300, 4167), reward=k.CHRF,
        run_config=verl(("lr: 1.0e-6", "lr: 1.0e-4")), framework="verl", settings={"max_tokens": 1024},
        named="CFG050", accepted="The learning rate is too high for training all weights.",
    )  # fmt: skip
