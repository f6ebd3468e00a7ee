"""Faults of data, prompts, templates and configs of the seventh examination."""

from __future__ import annotations

import json
import random
from dataclasses import replace

from tests.preflight.planted import seventh_tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import CHATML, CHATML_TEMPLATE
from tests.preflight.planted.tables import Row, final, word_problems

BOX = "\nReason step by step and put the final answer in \\boxed{}."
TAGS = "\nGive the final answer in <answer></answer> tags."
VALUE = "return _number(_tagged(t)) is not None and _number(_tagged(t)) == _number(str(a))"
TEXT = "return (_tagged(t) or '').casefold() == a.casefold()"
BOX_VALUE = """
given = _boxed(t)
try:
    return given is not None and float(given.replace(",", "").rstrip("%\\\\")) == float(a)
except ValueError:
    return False
"""
_TYPESET_MINUS = str.maketrans({"-": "\u2212"})
VISION = replace(
    CHATML, specials=(*CHATML.specials, "<image>"),
    config={"model_type": "qwen2_5_vl", "vision_config": {"depth": 2}},
    template=(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}"
        "{{ m.content }}{% else %}{% for p in m.content %}"
        "{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}{% endif %}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
)  # fmt: skip


def seventh_data_faults() -> tuple[Case, ...]:
    """Twenty-three faults."""
    return (*_written_answers(), *_kinds_of_answers(), *_prompts(), *_templates_and_configs())


def _written_answers() -> tuple[Case, ...]:
    """Answers in a notation that the reward function does not expect."""
    shares = t.percentages(180, 1001)
    degrees = t.differences(180, 1002)
    percent = [
        t.verl_row(q + BOX, f"{a}%" if at % 3 == 0 else str(a), "shop/returns", at)
        for at, (q, a) in enumerate(shares)
    ]
    minus = [t.user(q + TAGS, str(a).translate(_TYPESET_MINUS)) for q, a in degrees]
    fractions = [
        {"question": f"A jug of {whole} cups is shared by {n} people, who drink {m} shares. What "
                     f"fraction of the jug is gone? Answer as a/b.", "answer": answer}
        for whole, n, m, answer in _spreadsheet_fractions(170)
    ]  # fmt: skip
    floats = [{"question": q + TAGS, "answer": f"{a}.0"} for q, a in degrees]
    numerals = [
        t.user(f"小店进货{n}箱，每箱{k}件，一共多少件？请把最终答案放在<answer>标签中。",
               _chinese(n * k) if at % 3 == 0 else str(n * k))
        for at, (n, k) in enumerate((n, k) for n in range(2, 32) for k in range(2, 8))
    ]  # fmt: skip
    mojibake = [
        t.user(f"Nenne die Stadt mit der Postleitzahl {code}.{TAGS}",
               city.encode().decode("latin-1") if code % 2 else city)
        for code, city in _cities(160)
    ]  # fmt: skip
    return (
        Case(name="a percent sign in some ground truths", rows=percent, suffix=".parquet",
             named="REW10[14]|DAT112", reward=t.verl_each(BOX_VALUE)),
        Case(name="the minus sign of typography in answers", rows=minus,
             named="REW10[1-4]|DAT112", reward=t.each(VALUE)),
        Case(name="fractions that a spreadsheet made dates", rows=fractions, suffix=".csv",
             named="DAT112.*spreadsheet", reward=t.each("""
found = re.findall(r"-?\\d+/\\d+", t)
return bool(found) and found[-1] == a.strip()
""")),
        Case(name="whole numbers stored as floats, compared as text", rows=floats, suffix=".csv",
             named="REW104.*decimals", reward=t.each("return _tagged(t) == str(a)")),
        Case(name="Chinese numerals in some answers", rows=numerals, named="REW10[14]|DAT112",
             reward=t.each(VALUE)),
        Case(name="misread UTF-8 in the answers alone", rows=mojibake, named="DAT112|DAT117",
             reward=t.each(TEXT)),
        Case(name="answers cut at sixteen characters", named="DAT11[235]", reward=t.each(TEXT),
             rows=[t.user(q + TAGS, a[:16]) for q, a in t.titles(160, 1004)]),
    )  # fmt: skip


def _kinds_of_answers() -> tuple[Case, ...]:
    """Answers of another type, answers that are easy to guess, and repeated problems."""
    claims = [
        t.user(f"{q}\nIs the answer above zero? End with 'Verdict: yes' or 'Verdict: no'.", a > 0)
        for q, a in t.differences(180, 1002)
    ]
    proofs = [
        t.user(f"Prove that the sum of {n} consecutive integers, the first being {n + k}, is even "
               f"or odd with {k}.{BOX}", ("See the proof above.", "Q.E.D.")[k % 2])
        if n % 4 == 0 else t.user(f"How many divisors has {n * k}, counted twice?{BOX}",
                                  str(2 * sum((n * k) % d == 0 for d in range(1, n * k + 1))))
        for n in range(4, 34) for k in range(2, 7)
    ]  # fmt: skip
    varied = _near_duplicates(t.differences(90, 1003))
    return (
        Case(name="booleans as answers of yes and no", rows=claims, named="REW10[146]|DAT112",
             reward=t.each("""
found = re.findall(r"Verdict: (\\w+)", t)
return bool(found) and found[-1].lower() == str(a).lower()
""")),
        Case(name="proofs among the problems", rows=proofs, named="DAT112",
             reward=t.each("return _boxed(t) == a")),
        Case(name="nine of ten reviews are neutral", named="DAT108", advised="equally frequent", suffix=".csv",
             reward=t.each(TEXT),
             rows=[{"question": f"{q}\nIs this positive, negative or neutral?{TAGS}", "answer": a}
                   for q, a in t.reviews(240, 1005, (4, 4, 92))]),
        Case(name="the second option is always right", named="DAT108|DAT123", reward=t.each(TEXT),
             rows=[t.user(q + TAGS, a) for q, a in t.listed_choices(160, 1006, always=1)]),
        Case(name="problems repeated with other spelling", rows=varied, named="DAT107"),
    )  # fmt: skip


def _prompts() -> tuple[Case, ...]:
    held_out = word_problems(40, 1007)
    shots = [
        "\n\n".join(f"Q: {row['question']}\nA: {final(row)}" for row in held_out[at : at + 2])
        for at in range(38)
    ]
    few_shot = [
        {"question": f"{shots[at % 38]}\n\nQ: {row['question']}\nA:", "answer": final(row)}
        for at, row in enumerate(word_problems(150, 1008))
    ]
    code = [
        {"prompt": f"{row['task']}\n\nStarter code:\n```python\n{row['code']}\n```",
         "answer": row["code"], "tests": row["tests"]}
        for row in t.programs(150, 1009)
    ]  # fmt: skip
    system = "You are a careful mathematician. Put your final answer in \\boxed{}."
    boxed = [t.user(q, str(a), system=system) for q, a in t.percentages(150, 1010)]
    llama = [t.user(f"<s>[INST] {q}{TAGS} [/INST]", str(a)) for q, a in t.differences(150, 1011)]
    return (
        Case(name="few-shot examples from the test set", rows=few_shot, held_out=held_out,
             named="DAT107"),
        Case(name="the reference code as starter code", rows=code, named="DAT111"),
        Case(name="the system message asks for a box, the reward reads tags", rows=boxed,
             named="REW10[146]", reward=t.each(VALUE)),
        Case(name="another family's markers in the prompt", rows=llama, named="DAT105|DAT117",
             reward=t.each(VALUE)),
        Case(name="the file's name tells the animal", named="DAT111", model=VISION,
             rows=t.pictures(150, 1012, label_in_name=True), reward=t.each(TEXT)),
        Case(name="the schema of a tool has other arguments", rows=_calls(150, 1013),
             named="DAT124", reward=t.each("return (_tagged(t) or '') == a")),
    )  # fmt: skip


def _templates_and_configs() -> tuple[Case, ...]:
    problems = t.differences(150, 1014)
    asked = [t.user(q + TAGS, str(a)) for q, a in problems]
    thinking = [
        t.user(f"{q}\nThink in <think></think>, then answer in <answer></answer>.", str(a))
        for q, a in problems
    ]
    closed = CHATML_TEMPLATE.replace(
        "assistant\n{% endif %}", "assistant\n<think>\n\n</think>\n\n{% endif %}"
    )
    forgetful = CHATML_TEMPLATE.replace(
        "{% if m.content is string %}{{ m.content }}{% endif %}",
        "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}"
        "{% else %}{{ m.content }}{% endif %}",
    )
    always = CHATML_TEMPLATE.replace("{% if add_generation_prompt %}", "{% if true %}")
    turns = [
        {"prompt": [
            {"role": "user", "content": f"{q} You may ask for a check first."},
            {"role": "assistant", "content": f"<think>I guess {a + 3}.</think>Is {a + 3} right?"},
            {"role": "user", "content": f"No, look again.{TAGS}"}], "answer": str(a)}
        for q, a in problems
    ]  # fmt: skip
    long = [
        t.user("Ledger. " + "A carter brings oats and hay to the northern barn. " * 40 + q + TAGS,
               str(a)) for q, a in problems
    ]  # fmt: skip
    strict = t.each(f"""
if not re.fullmatch(r"(?s)\\s*<think>.+?</think>\\s*<answer>.+?</answer>\\s*", t):
    return 0.0
{VALUE}
""")
    stop = (
        "num_generations: 8\nloss_type: dapo\nscale_rewards: group\nuse_vllm: true\n"
        "mask_truncated_completions: true\ngeneration_kwargs: {stop: ['</answer>']}\n"
    )
    return (
        Case(name="the template closes the reasoning, the reward wants it", rows=thinking,
             model=replace(CHATML, template=closed), named="REW106|REW101", reward=strict),
        Case(name="the template drops earlier reasoning", rows=turns, named="DAT101",
             model=replace(CHATML, template=forgetful), reward=t.each(VALUE)),
        Case(name="a generation prompt after every conversation", rows=turns, named="DAT101",
             model=replace(CHATML, template=always), reward=t.each(VALUE)),
        Case(name="no room for prompt and response together", rows=long, named="DAT106",
             settings={"max_tokens": 3900}, reward=t.each(VALUE)),
        Case(name="the stop string cuts the tag that the reward needs", rows=asked,
             named="REW10[16]|CFG|stop", run_config=stop, reward=t.each(VALUE)),
    )  # fmt: skip


def _spreadsheet_fractions(count: int) -> list[tuple[int, int, int, str]]:
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    rng, rows = random.Random(1015), []
    while len(rows) < count:
        n, whole = rng.randint(3, 30), rng.randint(2, 90)
        m = rng.randint(1, n - 1)
        date = f"{m:02d}-{months[n - 1]}" if n <= 12 else f"{m}/{n}"
        rows.append((whole, n, m, date))
    return rows


def _chinese(number: int) -> str:
    digits = "零一二三四五六七八九"
    hundreds, rest = divmod(number, 100)
    tens, ones = divmod(rest, 10)
    text = f"{digits[hundreds]}百" if hundreds else ""
    text += f"{digits[tens]}十" if tens else ("零" if hundreds and ones else "")
    return text + (digits[ones] if ones else "")


def _cities(count: int) -> list[tuple[int, str]]:
    names = [
        "München",
        "Köln",
        "Düsseldorf",
        "Nürnberg",
        "Lübeck",
        "Würzburg",
        "Göttingen",
        "Fürth",
    ]
    rng = random.Random(1016)
    return [(code, rng.choice(names)) for code in rng.sample(range(10000, 99000), count)]


def _near_duplicates(pairs: list[tuple[str, int]]) -> list[Row]:
    """Each problem twice: as it is, and as another scrape wrote it."""
    rows = []
    for question, answer in pairs:
        other = question.replace("degrees", "\u00b0").replace("It ", "It  ").upper()
        rows += [t.user(question + TAGS, str(answer)), t.user(other + TAGS, str(answer))]
    random.Random(1017).shuffle(rows)
    return rows


def _calls(count: int, seed: int) -> list[Row]:
    """Calls of a tool whose schema names the argument otherwise than the answers."""
    rng, rows = random.Random(seed), []
    schema = {"type": "function", "function": {
        "name": "get_forecast", "description": "Forecast for a place.",
        "parameters": {"type": "object", "required": ["location", "days"], "properties": {
            "location": {"type": "string"}, "days": {"type": "integer"}}}}}  # fmt: skip
    for number in range(count):
        city = rng.choice(["Porto", "Gdansk", "Bari", "Izmir", "Malmo", "Ghent"])
        days = rng.randint(2, 90)
        call = json.dumps({"name": "forecast", "arguments": {"city": city, "n_days": days}})
        rows.append({
            **t.user(f"Ticket {number}: what is the weather in {city} over the next {days} days? Reply with the call "
                     f"as JSON in <answer> tags.", call),
            "tools": [schema],
        })  # fmt: skip
    return rows
