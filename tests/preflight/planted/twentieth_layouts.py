"""Sound sets of the twentieth examination: tools, dialogs, and layouts of rows, models and configs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import BASE, CHATML, GEMMA, LLAMA, Model
from tests.preflight.planted.nineteenth_tables import chat
from tests.preflight.planted.tables import Row
from tests.preflight.planted.twentieth_layout_rewards import (
    ASYNC,
    BASE_TAGS,
    CALLS,
    CHECKLIST,
    CLAUSE,
    CURRICULUM,
    NO_TOOL,
    NONE_FOR_OTHERS,
    ROLE,
    SWITCH,
    TIMETABLE,
    TURNS,
)
from tests.preflight.planted.twentieth_models import OLD_LLAMA
from tests.preflight.planted.twentieth_texts import rows

_NAMES = ("Agnes", "Bilal", "Chloe", "Deniz", "Ewa", "Frode", "Gita", "Hugo", "Ines", "Jarek", "Kiran", "Lotte")  # fmt: skip
_CITIES = ("Basel", "Turin", "Malaga", "Ostend", "Split", "Tromso", "Leipzig", "Cardiff", "Nice", "Lublin")  # fmt: skip
_ITEMS = ("milk", "candles", "rice", "batteries", "soap", "olives", "paper", "nails", "coffee", "ribbon")  # fmt: skip
_TOOLS = [
    {"name": "book_train", "description": "Book a train", "parameters": {"type": "object", "properties": {"origin": {"type": "string"}, "target": {"type": "string"}, "seats": {"type": "integer"}}, "required": ["origin", "target", "seats"]}},
    {"name": "add_item", "description": "Put an item on the shopping list", "parameters": {"type": "object", "properties": {"item": {"type": "string"}, "count": {"type": "integer"}}, "required": ["item", "count"]}},
    {"name": "send_note", "description": "Send a short note", "parameters": {"type": "object", "properties": {"to": {"type": "string"}, "text": {"type": "string"}}, "required": ["to", "text"]}},
]  # fmt: skip


def _errand(rng: random.Random, kind: int) -> tuple[str, dict[str, object]]:
    origin, target = rng.sample(_CITIES, 2)
    if kind == 0:
        seats = rng.randint(1, 6)
        return f"book {seats} seat(s) on a train from {origin} to {target}", {"name": "book_train", "arguments": {"origin": origin, "target": target, "seats": seats}}  # fmt: skip
    if kind == 1:
        item, count = rng.choice(_ITEMS), rng.randint(1, 40)
        return f"put {count} x {item} on the list", {"name": "add_item", "arguments": {"item": item, "count": count}}  # fmt: skip
    who, text = rng.choice(_NAMES), f"Meet me in {origin}"
    return f'send {who} the note "{text}"', {"name": "send_note", "arguments": {"to": who, "text": text}}  # fmt: skip


def _parallel(rng: random.Random, at: int) -> Row:
    errands = [_errand(rng, kind) for kind in rng.choices(range(3), k=rng.randint(1, 3))]
    text = f"I am {rng.choice(_NAMES)}. Please {', and '.join(each for each, _ in errands)}."
    system = (
        "You may call tools. Write one JSON object with the keys name and arguments per call, each within <tool_call></tool_call>; the order does not matter. Tools:\n"
        + "\n".join(map(json.dumps, _TOOLS))
    )
    return {
        "data_source": "errands", "prompt": chat(text, system), "ability": "tools",
        "reward_model": {"style": "rule", "ground_truth": json.dumps([call for _, call in errands])},
        "extra_info": {"index": at, "split": "train", "need_tools_kwargs": False},
    }  # fmt: skip


def _fitting(rng: random.Random, at: int) -> Row:
    if at % 5 == 2:
        text, call = rng.choice((f"translate '{rng.choice(_ITEMS)}' into Dutch", f"tell me how old the town of {rng.choice(_CITIES)} is", f"play a song that {rng.choice(_NAMES)} likes", f"water the plants in {rng.choice(_CITIES)}")), None  # fmt: skip
    else:
        text, call = _errand(rng, rng.randrange(3))
    ask = 'Choose a tool for the request. Think, then write the call as JSON on the last line, such as {"name": "...", "arguments": {...}}. If no tool fits, the last line is NO_TOOL.'
    return {
        "prompt": chat(f"{rng.choice(_NAMES)} asks: {text}.", f"{ask}\n\nTools: {json.dumps(_TOOLS)}"),
        "call": json.dumps(call) if call else "NO_TOOL",
    }  # fmt: skip


_ROLES = (
    ("Captain Roderick", "a whaler of 1851 who distrusts steam and swears by the albatross"), ("Mother Ilka", "a herbalist in a mountain village who answers with proverbs"),
    ("Unit 77", "a robot butler that counts everything and cannot lie"), ("Baron Fennec", "a vain noble fox who speaks of himself in the third person"), ("Sister Odile", "a strict librarian of a monastery in 1320"),
)  # fmt: skip


def _role(rng: random.Random, _: int) -> Row:
    name, nature = rng.choice(_ROLES)
    who, city, item = rng.choice(_NAMES), rng.choice(_CITIES), rng.choice(_ITEMS)
    first = rng.choice((f"Good evening, I am {who} from {city}.", f"Hello! They told me in {city} to look for you.", f"{who} sends me. Do you have a moment?"))  # fmt: skip
    reply = rng.choice(("Come in, then, and wipe your boots.", "A visitor! That is rare at this hour.", "Speak, I am listening."))  # fmt: skip
    last = rng.choice((f"I lost my {item} on the way. What should I do?", f"What do you think of people who trade in {item}?", f"Would you travel to {city} with me?", f"Tell me a story about {item}."))  # fmt: skip
    return {
        "prompt": [
            {"role": "system", "content": f"You are {name}, {nature}. Stay in character. Reply in 40 to 150 words."},
            {"role": "user", "content": first}, {"role": "assistant", "content": reply}, {"role": "user", "content": last},
        ],
        "persona": f"{name}, {nature}",
    }  # fmt: skip


def _advice(rng: random.Random, _: int) -> Row:
    who, city, item, people = rng.choice(_NAMES), rng.choice(_CITIES), rng.choice(_ITEMS), rng.randint(5, 90)  # fmt: skip
    topic, points = rng.choice((
        (f"plan a day trip to {city} for {people} pupils", ["names a way to travel", "mentions food or breaks", "plans for bad weather", f"fits a group of {people}"]),
        (f"write an ad for {item} from {city}", ["names the product", "has a call to action", "mentions the origin", "avoids superlatives"]),
        (f"explain to {who}, aged {people % 9 + 5}, why {item} can run out", ["uses words for a child", "gives an example", "explains demand", "is kind"]),
        (f"prepare {who} for an interview at a shop in {city}", ["suggests questions to ask", "mentions punctuality", "advises on clothes", "stays under 200 words"]),
    ))  # fmt: skip
    return {"prompt": chat(f"Please {topic}."), "rubric": points}


def _sum(rng: random.Random, *, digits: int = 3) -> tuple[str, int]:
    low, high = 10 ** (digits - 1), 10**digits - 1
    a, b = rng.randint(low, high), rng.randint(low, high)
    c = rng.randint(low, a)
    who, item, city = rng.choice(_NAMES), rng.choice(_ITEMS), rng.choice(_CITIES)
    return rng.choice((
        (f"{who} ships {a} and then {b} packs of {item} to {city}; {c} come back. How many stay there?", a + b - c),
        (f"A shop in {city} has {a} packs of {item}, buys {b} and buys {c} more. How many packs is that?", a + b + c),
    ))  # fmt: skip


def _mixed(rng: random.Random, at: int) -> Row:
    if at % 2:
        text, result = _sum(rng)
        return {"prompt": chat(f"{text} Think, then write the number into \\boxed{{}}."), "task": "math", "answer": str(result)}  # fmt: skip
    towns, ways = rng.sample(_CITIES, 3), rng.sample(range(30, 900), 3)
    text = f"{rng.choice(_NAMES)} lives {ways[0]} km from {towns[0]}, {ways[1]} km from {towns[1]} and {ways[2]} km from {towns[2]}. Which town is nearest?"
    return {"prompt": chat(f"{text} Think, then write 'Town: ' and its name."), "task": "geography", "answer": towns[ways.index(min(ways))]}  # fmt: skip


def _timetable(rng: random.Random, _: int) -> Row:
    a, b = rng.sample(_CITIES, 2)
    times = sorted(rng.sample(range(5 * 60, 23 * 60), 6))
    need = rng.randint(times[0] + 1, times[-1])
    arrives = max(time for time in times if time <= need)
    listed = "\n".join(f"{number} {time // 60:02d}:{time % 60:02d}" for number, time in zip(rng.sample(range(100, 999), 6), times, strict=True))  # fmt: skip
    number = next(line.split()[0] for line in listed.splitlines() if line.endswith(f"{arrives // 60:02d}:{arrives % 60:02d}"))  # fmt: skip
    text = f"Trains {a} to {b} with their arrival:\n{listed}\n{rng.choice(_NAMES)} must be in {b} by {need // 60:02d}:{need % 60:02d}. Which is the latest train that fits?"
    return {"prompt": chat(f"{text} Explain, then end with [[number of the train]]."), "train": int(number)}  # fmt: skip


def _lesson(level: int) -> list[Row]:
    made = rows(100, 9570 + level, lambda rng, _: _graded(rng, level))
    return [
        {"data_source": "ladder", "prompt": row["prompt"], "ability": "math", "reward_model": {"style": "rule", "ground_truth": row["answer"]}, "extra_info": {"split": "train", "difficulty": level}}
        for row in made
    ]  # fmt: skip


def _graded(rng: random.Random, level: int) -> Row:
    text, result = _sum(rng, digits=level + 1)
    return {"prompt": chat(f"{text} Work step by step, then write '#### ' and the number."), "answer": str(result)}  # fmt: skip


def _switched() -> list[Row]:
    made = rows(200, 9581, lambda rng, _: dict(zip(("prompt", "answer"), _sum(rng), strict=True)))
    return [
        {"prompt": chat(f"{row['prompt']} Put the number into \\boxed{{}}. {switch}"), "answer": str(row["answer"]), "mode": switch}
        for row in made for switch in ("/think", "/no_think")
    ]  # fmt: skip


def _turns(rng: random.Random, _: int) -> Row:
    who, item, city = rng.choice(_NAMES), rng.choice(_ITEMS), rng.choice(_CITIES)
    count, price, more = rng.randint(2, 60), rng.randint(2, 40), rng.randint(2, 30)
    return {
        "prompt": [
            {"role": "user", "content": f"Hello, {who} from {city} here. I need {count} packs of {item}."},
            {"role": "assistant", "content": f"Gladly. One pack costs {price} euros."},
            {"role": "user", "content": f"Then please add {more} packs. What do I pay in all? Reason first and end with 'Total: <euros>'."},
        ],
        "total": (count + more) * price,
    }  # fmt: skip


_HANDBOOK = "Handbook of the public library\n" + "\n".join(
    f"§{at} {text}" for at, text in enumerate((
        "Cards are issued to residents who are at least six years old and show a valid document.", "Children below fourteen need the signature of a parent.", "Books may be kept for twenty-eight days, films for seven.", "A loan is extended twice unless another reader waits.",
        "A late book costs twenty cents a day, at most eight euros.", "Lost items are paid at their present price, plus five euros for the work.", "Rare prints stay in the reading room and are handled with gloves.", "Food is not allowed; water in closed bottles is.",
        "Dogs wait outside, except guide dogs.", "Rooms are booked for three hours at most, one week ahead.", "Telephones are silent in the reading room.", "Photographs without flash are allowed for private use.", "Bags larger than a sheet of paper go into a locker.",
        "The internet may be used for ninety minutes a day.", "Copies cost ten cents, in color thirty cents.", "Readers who disturb others are asked to leave; a ban ends after six months.",
    ), 1)
)  # fmt: skip
_MATTERS = {2: "a girl of {n} asks for a card without her mother", 4: "{w} wants to extend a novel for the third time", 5: "{w} brings a book back {n} days late", 6: "{w} dropped book no. {n} into the river", 7: "{w} wants to take the rare print no. {n} home", 8: "{w} eats soup at table {n}", 9: "{w} brings a dachshund to room {n}", 10: "{w} wants room {n} for a whole day", 11: "{w}'s telephone rings at seat {n}", 12: "{w} takes pictures of page {n} with flash", 13: "{w} carries a rucksack to shelf {n}", 14: "{w} has been online at desk {n} since the morning", 15: "{w} makes {n} color copies", 16: "{w} shouts at the readers of table {n}"}  # fmt: skip


def _clause(rng: random.Random, _: int) -> Row:
    number, matter = rng.choice(list(_MATTERS.items()))
    text = matter.format(w=rng.choice(_NAMES), n=rng.randint(7, 13))
    return {"prompt": chat(f"Case: {text} ({rng.choice(_CITIES)} branch). Which paragraph applies? Explain, then end with 'Paragraph: §' and the number.", _HANDBOOK), "paragraph": number}  # fmt: skip


def _zero(rng: random.Random, _: int) -> Row:
    text, result = _sum(rng)
    return {"prompt": f"A conversation between User and Assistant. The Assistant first thinks about the reasoning and then answers. Reasoning and answer are enclosed within <think> </think> and <answer> </answer> tags. User: {text} Assistant: <think>", "answer": str(result)}  # fmt: skip


_SFT_END = Model(
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|turn_end|>"),
    eos="<|turn_end|>", pad="<|endoftext|>", ends=("<|turn_end|>",),
    template=str(CHATML.template).replace("<|im_end|>", "<|turn_end|>"),
)  # fmt: skip
_SWIFT = """
rlhf_type: grpo
model: Qwen/Qwen2.5-3B-Instruct
dataset: train.jsonl
external_plugins: rewards.py
reward_funcs: [timetable]
num_generations: 8
per_device_train_batch_size: 8
gradient_accumulation_steps: 4
learning_rate: 1.0e-6
max_length: 2048
max_completion_length: 1024
temperature: 1.0
beta: 0.001
num_train_epochs: 2
torch_dtype: bfloat16
"""


def layout_sets() -> Iterator[Case]:
    """Twelve sets with tools, dialogs, and unusual layouts."""
    yield Case(name="parallel calls in any order", rows=rows(300, 9561, _parallel), reward=CALLS, suffix=".parquet", framework="verl", run_config=verl())  # fmt: skip
    yield Case(name="a fifth of the requests fits no tool", rows=rows(300, 9562, _fitting), reward=NO_TOOL, framework="trl", run_config=trl())  # fmt: skip
    yield Case(name="roles to play with a judge's score of ten", rows=rows(300, 9563, _role), reward=ROLE)  # fmt: skip
    yield Case(name="a judge checks each row's points", rows=rows(250, 9564, _advice), reward=CHECKLIST, model=GEMMA)  # fmt: skip
    yield Case(name="None for the rows of other tasks", rows=rows(300, 9565, _mixed), reward=NONE_FOR_OTHERS, framework="trl", run_config=trl())  # fmt: skip
    yield Case(name="an asynchronous reward", rows=rows(300, 9566, _mixed), reward=ASYNC, framework="trl", run_config=trl())  # fmt: skip
    yield Case(name="a curriculum that is not shuffled", rows=[row for level in range(1, 5) for row in _lesson(level)], reward=CURRICULUM, suffix=".parquet", framework="verl", run_config=verl(("truncation: error", "truncation: error\n  shuffle: false")))  # fmt: skip
    yield Case(name="each question with and without thoughts", rows=_switched(), reward=SWITCH)  # fmt: skip
    yield Case(name="timetables with a swift config", rows=rows(300, 9567, _timetable), reward=TIMETABLE, framework="ms-swift", run_config=_SWIFT, model=_SFT_END)  # fmt: skip
    yield Case(name="orders of three turns for Llama 2's tokenizer", rows=rows(300, 9568, _turns), reward=TURNS, model=OLD_LLAMA)  # fmt: skip
    yield Case(name="a long handbook before each case", rows=rows(300, 9569, _clause), reward=CLAUSE, model=LLAMA, framework="trl", run_config=trl(max_prompt_length=2048))  # fmt: skip
    yield Case(name="R1-Zero's text template for a base model", rows=rows(300, 9570, _zero), reward=BASE_TAGS, model=BASE)  # fmt: skip
