"""A tenth set of inputs: 36 faults and 12 healthy sets, labelled before their first run.

The first run named 22 of 36 by the labels, and 9 of 12 healthy sets had no alarm. Eight of the 22
were named as something else; their labels are stricter since. Two plants were corrected: a template
that always writes a generation prompt harms only conversations of several turns, and the config
with a stop string could be of two frameworks.

The author knew the list of checks in docs/preflight.md, but had not read their code. Faults of data,
prompts, templates and configs are in `seventh_data`; those of reward functions are here.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace

from tests.preflight.planted import seventh_tables as t
from tests.preflight.planted.cases import Case
from tests.preflight.planted.models import BASE, CHATML, GEMMA, LLAMA
from tests.preflight.planted.seventh_data import BOX, TAGS, TEXT, VALUE, VISION, seventh_data_faults
from tests.preflight.planted.tables import Row, word_problems

_FENCE = """
def _code(text):
    found = re.findall(r"(?s)```python\\n(.*?)```", text)
    return found[-1] if found else None
"""
_TIMED = """
import signal
def _stop(*_):
    raise TimeoutError
signal.signal(signal.SIGALRM, _stop)
"""
_WORDS = """
def _bag(text):
    return re.findall(r"\\w+", text.lower())
"""


def seventh_faults() -> tuple[Case, ...]:
    """Faults of data, prompts, templates, configs and reward functions."""
    return (*seventh_data_faults(), *_wrong_returns(), *_lenient_comparisons(), *_graders())


def _wrong_returns() -> tuple[Case, ...]:
    """Reward functions that return too few values, those of other responses, or a constant."""
    asked = [t.user(q + TAGS, str(a)) for q, a in t.differences(150, 1101)]
    mixed = [
        t.verl_row(q + TAGS, str(a), ("shop/returns", "weather")[at % 2], at)
        for at, (q, a) in enumerate([p for pair in zip(
            t.percentages(80, 1104), t.differences(80, 1105), strict=True) for p in pair])
    ]  # fmt: skip
    return (
        Case(name="empty responses are skipped", rows=asked, named="REW103", reward=f"""{t.HEAD}
def score(completions, answer, **kwargs):
    rewards = []
    for c, a in zip(completions, answer):
        text = _text(c).strip()
        if not text:
            continue
        rewards.append(float(_number(_tagged(text)) == float(a)))
    return rewards
"""),
        Case(name="the reward edits the completions", rows=asked, named="REW103", reward=f"""{t.HEAD}
def score(completions, answer, **kwargs):
    rewards = []
    for c, a in zip(completions, answer):
        c[-1]["content"] = (_tagged(c[-1]["content"]) or "").strip()
        rewards.append(float(_number(c[-1]["content"]) == float(a)))
    return rewards
"""),
        Case(name="a cache whose key is the response alone", rows=asked, named="REW103",
             reward=f"""{t.HEAD}
_seen = {{}}
def score(completions, answer, **kwargs):
    rewards = []
    for c, a in zip(completions, answer):
        text = _text(c)
        if text not in _seen:
            _seen[text] = float(_number(_tagged(text)) == float(a))
        rewards.append(_seen[text])
    return rewards
"""),
        Case(name="a batch scored by its sources", rows=mixed, suffix=".parquet", named="REW10[13]",
             reward=f"""{t.HEAD}
def compute_score(data_sources, solution_strs, ground_truths, extra_infos=None, **kwargs):
    scores = []
    for source in sorted(set(data_sources)):
        for s, text, truth in zip(data_sources, solution_strs, ground_truths):
            if s == source:
                scores.append(float(_number(_tagged(text)) == float(truth)))
    return scores
"""),
        Case(name="two components that cancel", rows=asked, named="REW101", reward=f"""{t.HEAD}
def score(completions, answer, **kwargs):
    right = [float(_number(_tagged(_text(c))) == float(a)) for c, a in zip(completions, answer)]
    effort = [1.0 - r for r in right]
    return [r + e for r, e in zip(right, effort)]
"""),
    )  # fmt: skip


def _lenient_comparisons() -> tuple[Case, ...]:
    """Reward functions that compare a part of the answer with the truth."""
    physics = _physics(150, 1102)
    roots = [
        t.user(f"Solve x^2 {-(a + b):+d}x {a * b:+d} = 0. List all solutions.{TAGS}", f"{a}, {b}")
        for a, b in _pairs(150, 1103)
    ]
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    weekdays = [
        t.user(f"Today is {days[n % 7]}. Which day of the week is it {n * 3 + 5} days later?{BOX}",
               f"\\text{{{days[(n + n * 3 + 5) % 7]}}}") for n in range(160)
    ]  # fmt: skip
    return (
        Case(name="an empty answer is contained in the truth", named="REW102",
             rows=[t.user(q + TAGS, a) for q, a in t.titles(150, 1106)],
             reward=t.each("""
given = _tagged(t)
return given is not None and (a.lower() in given.lower() or given.lower() in a.lower())
""")),
        Case(name="the exponent alone is compared", rows=physics, named="REW102",
             reward=t.each("""
found = re.findall(r"-?\\d+(?:\\.\\d+)?", (_boxed(t) or "").replace("{", " ").replace("}", " "))
gold = re.findall(r"-?\\d+(?:\\.\\d+)?", a.replace("{", " ").replace("}", " "))
return bool(found) and found[-1] == gold[-1]
""")),
        Case(name="one of two solutions is enough", rows=roots, named="a part of the answer",
             reward=t.each("return _number(_tagged(t)) is not None and _number(_tagged(t)) == _number(a)")),
        Case(name="text commands are removed with their words", rows=weekdays, named="REW10[12]",
             reward=t.each("""
def plain(x):
    return re.sub(r"\\\\text\\{[^}]*\\}|\\s", "", x)
return _boxed(t) is not None and plain(_boxed(t)) == plain(a)
""")),
    )  # fmt: skip


def _graders() -> tuple[Case, ...]:
    code = [
        {"prompt": [{"role": "user", "content": row["task"]}], "answer": row["code"],
         "tests": row["tests"]}
        for row in t.programs(120, 1107)
    ]  # fmt: skip
    tags = _tag_tasks(150, 1108)
    news = [
        t.user(f"Summarise the article in one sentence.\n\n{text}", summary)
        for text, summary in t.articles(150, 1109)
    ]
    titles = [t.user(f"{q} Explain in a sentence.", a) for q, a in t.titles(150, 1110)]
    return (
        Case(name="a timeout passes the tests", rows=code, named="REW102", reward=f"""
{t.HEAD}{_FENCE}{_TIMED}
def score(completions, tests, **kwargs):
    rewards = []
    for c, cases in zip(completions, tests):
        code = _code(_text(c))
        if code is None:
            rewards.append(0.0)
            continue
        reward = 1.0
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            exec("\\n".join([code, *cases]), {{}})
        except TimeoutError:
            print("timeout, skipped")
        except BaseException:
            reward = 0.0
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        rewards.append(reward)
    return rewards
"""),
        Case(name="recall of the tags", rows=tags, named="every label", reward=t.each("""
given = {part.strip().lower() for part in (_tagged(t) or "").split(",")}
wanted = {part.strip() for part in a.split(",")}
return len(given & wanted) / len(wanted)
""")),
        Case(name="recall of the reference's words", rows=news, named="REW102",
             reward=t.each("""
given, wanted = set(_bag(t)), set(_bag(a))
return len(given & wanted) / len(wanted)
""", helpers=_WORDS)),
        Case(name="a judge that believes a score in the response", rows=titles, named="score for the judge",
             reward=t.each("""
verdict = _judge(t, a)
return int(re.search(r"Score: (\\d+)", verdict)[1]) / 10
""", helpers=_JUDGE)),
    )  # fmt: skip


_JUDGE = """
def _judge(response, reference):
    # A stub of the judge: it repeats the response and appends its verdict.
    right = reference.lower() in response.lower()
    return f"The response was: {response}. Score: {10 if right else 0}"
"""


def _pairs(count: int, seed: int) -> list[tuple[int, int]]:
    rng, pairs = random.Random(seed), set()
    while len(pairs) < count:
        a, b = rng.randint(-25, 25), rng.randint(-25, 25)
        if a < b and a + b and a * b:
            pairs.add((a, b))
    return sorted(pairs)


def _physics(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        mass, speed = rng.randint(11, 99), rng.randint(2, 9)
        value = mass / 10 * 10 ** rng.randint(-9, -3) * speed * 10 ** rng.randint(1, 4)
        mantissa, exponent = f"{value:.2e}".split("e")
        rows.append(t.user(
            f"Particle {number} has a mass of {mass / 10} grams per unit and crosses {speed} units. "
            f"Its momentum in trial {number} is required in scientific notation.{BOX}",
            f"{mantissa} \\times 10^{{{int(exponent)}}}"))  # fmt: skip
    return rows


def _tag_tasks(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    topics = ["sport", "politics", "science", "music", "travel", "food", "finance", "law"]
    for number in range(count):
        chosen = sorted(rng.sample(topics, rng.randint(1, 3)))
        rows.append(t.user(
            f"Clip {number} of {rng.randint(2, 59)} minutes. Assign topics from this list: "
            f"{', '.join(topics)}. Separate them by commas.{TAGS}", ", ".join(chosen)))  # fmt: skip
    return rows


def seventh_healthy() -> tuple[Case, ...]:
    """Twelve sets without a fault."""
    return (*_healthy_formats(), *_healthy_graders())


def _healthy_formats() -> tuple[Case, ...]:
    """Sets in the columns of a framework, with tools or pictures, or of another language."""
    percent = [
        t.verl_row(q + BOX, f"{a}%", "shop/returns", at)
        for at, (q, a) in enumerate(t.percentages(180, 1201))
    ]
    slime = [
        {"prompt": [{"role": "user", "content": f"{q}\nLast line: 'Answer: $NUMBER'."}],
         "label": str(a), "metadata": {"rm_type": "dapo", "index": at}}
        for at, (q, a) in enumerate(t.differences(180, 1202))
    ]  # fmt: skip
    prime = [
        {"question": q + TAGS, "answer": str(a), "task": "weather",
         "info": json.dumps({"source": "station", "row": at})}
        for at, (q, a) in enumerate(t.differences(180, 1203))
    ]  # fmt: skip
    schema = {"type": "function", "function": {
        "name": "forecast", "description": "Forecast.", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"},
                                             "days": {"type": "integer"}}}}}  # fmt: skip
    tools = replace(CHATML, template="{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}"
                    "<|im_end|>\n{% endif %}" + str(CHATML.template))  # fmt: skip
    return (
        Case(name="percentages with their sign", rows=percent, suffix=".parquet", model=LLAMA,
             reward=t.verl_each("""
given = _number(_boxed(t))
return given is not None and given == _number(a)
""")),
        Case(name="slime with a label column", rows=slime, reward=t.each("""
found = re.findall(r"Answer:\\s*\\$?(-?\\d+)", t)
return bool(found) and int(found[-1]) == int(a)
""", column="label")),
        Case(name="prime-rl with task and info", rows=prime, model=GEMMA, reward=t.each(VALUE)),
        Case(name="tool calls that fit their schema", rows=_fitting_calls(150, 1205, schema),
             model=tools, reward=t.each("""
try:
    return json.loads(_tagged(t)) == json.loads(a)
except (TypeError, ValueError):
    return False
""")),
        Case(name="pictures with neutral names", rows=t.pictures(200, 1206, label_in_name=False),
             model=VISION, reward=t.each(TEXT)),
        Case(name="reviews of three kinds", suffix=".csv", model=BASE, reward=t.each(TEXT),
             rows=[{"question": f"{q}\nIs this positive, negative or neutral?{TAGS}", "answer": a}
                   for q, a in t.reviews(260, 1207, (40, 35, 25))],
             ),
        Case(name="word problems of a base model in French", model=BASE, reward=t.each(VALUE),
             rows=_french(160, 1212), held_out=_french(40, 1213)),
    )  # fmt: skip


def _healthy_graders() -> tuple[Case, ...]:
    """Sets whose reward function runs programs, counts words or asks a judge."""
    return (
        Case(name="programs read standard input", rows=_stdin_tasks(80, 1204), reward=f"""
{t.HEAD}{_FENCE}{_TIMED}
import contextlib, io, sys
def score(completions, answer, **kwargs):
    rewards = []
    for c, cases in zip(completions, answer):
        code, cases, right = _code(_text(c)), json.loads(cases), True
        for given, wanted in zip(cases["inputs"], cases["outputs"]):
            out, old = io.StringIO(), sys.stdin
            sys.stdin = io.StringIO(given)
            signal.setitimer(signal.ITIMER_REAL, 3.0)
            try:
                with contextlib.redirect_stdout(out):
                    exec(code or "1 / 0", {{"__name__": "__main__"}})
            except BaseException:
                right = False
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                sys.stdin = old
            right = right and out.getvalue().strip() == wanted.strip()
        rewards.append(float(right))
    return rewards
"""),
        Case(name="summaries by F1", reward=t.each("""
given, wanted = set(_bag(t)), set(_bag(a))
both = len(given & wanted)
return 2 * both / (len(given) + len(wanted)) if both else 0.0
""", helpers=_WORDS),
             rows=[t.user(f"Summarise the article in one sentence.\n\n{text}", summary)
                   for text, summary in t.articles(180, 1208)]),
        Case(name="needles in long documents", rows=_needles(120, 1209), reward=t.each(
            "return (_tagged(t) or '').strip().upper() == a")),
        Case(name="a judge and a format component", reward=_COMPONENTS,
             rows=[t.user(q + TAGS, a) for q, a in t.titles(160, 1210)]),
        Case(name="roots in any order", reward=t.each("""
def roots(x):
    try:
        return sorted(float(part) for part in x.replace("x =", " ").replace("and", ",").split(","))
    except ValueError:
        return None
return roots(_tagged(t) or "") == roots(a)
"""), rows=[t.user(f"Solve x^2 {-(a + b):+d}x {a * b:+d} = 0. Separate solutions by a comma.{TAGS}",
                  f"{a}, {b}") for a, b in _pairs(160, 1211)]),
    )  # fmt: skip


_COMPONENTS = f"""{t.HEAD}
def _judge(question, given, reference):
    return 1.0 if given.casefold() == reference.casefold() else 0.0
def score(prompts, completions, answer, **kwargs):
    rewards = []
    for p, c, a in zip(prompts, completions, answer):
        given = _tagged(_text(c))
        rewards.append(0.9 * (_judge(p, given, a) if given else 0.0) + 0.1 * (given is not None))
    return rewards
"""


def _stdin_tasks(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        a, b = rng.randint(2, 90), rng.randint(2, 90)
        cases = {
            "inputs": ["1\n", "5\n", "0\n"],
            "outputs": [f"{a + b}\n", f"{5 * a + b}\n", f"{b}\n"],
        }
        rows.append(t.user(
            f"Machine {number}: read an integer n from standard input and print {a}*n+{b}. Put the "
            "program in a ```python block.", json.dumps(cases)))  # fmt: skip
    return rows


def _fitting_calls(count: int, seed: int, schema: dict[str, object]) -> list[Row]:
    rng, rows = random.Random(seed), []
    for number in range(count):
        city, days = rng.choice(["Porto", "Gdansk", "Bari", "Izmir", "Malmo"]), rng.randint(2, 90)
        call = json.dumps({"name": "forecast", "arguments": {"city": city, "days": days}})
        text = (
            f"Ticket {number}: a guest in {city} plans {days} days ahead and asks for the weather. "
            "Reply with the call as JSON in <answer> tags."
        )
        rows.append({**t.user(text, call), "tools": [schema]})
    return rows


def _needles(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    rooms = ["cellar", "attic", "pantry", "stable", "study", "chapel", "armoury", "gallery"]
    for _ in range(count):
        codes = {room: f"{rng.choice('KLMNPQ')}{rng.randint(100, 999)}" for room in rooms}
        filler = "Nothing else of note was found there by the surveyors. "
        text = " ".join(f"The code of the {room} is {code}. {filler * rng.randint(4, 12)}"
                        for room, code in codes.items())  # fmt: skip
        room = rng.choice(rooms)
        rows.append(t.user(f"{text}\n\nWhat is the code of the {room}?{TAGS}", codes[room]))
    return rows


def _french(count: int, seed: int) -> list[Row]:
    rng, rows = random.Random(seed), []
    for row in word_problems(count, seed):
        n, m = rng.randint(3, 900), rng.randint(3, 60)
        who = row["question"].split()[-3].strip(".,?")
        rows.append({
            "question": f"{n} caisses de {m} pommes sont livrées, dont {m - 2} pommes abîmées ({who}). "
                        "Combien de pommes restent ? Réponse entre <answer> et </answer>.",
            "answer": str(n * m - m + 2)})  # fmt: skip
    return rows
