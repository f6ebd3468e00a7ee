"""Sound sets of the twentieth examination: puzzles and code."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

from tests.preflight.planted.cases import Case
from tests.preflight.planted.fourteenth_configs import trl, verl
from tests.preflight.planted.models import BASE, CHATML, GEMMA, LLAMA
from tests.preflight.planted.nineteenth_tables import chat
from tests.preflight.planted.tables import Row
from tests.preflight.planted.twentieth_puzzle_rewards import (
    ACROSTIC,
    BODY,
    CRON,
    GRID,
    KNIGHTS,
    LEMMA,
    LOGIC_GRID,
    MAZE,
    PATCH,
    PATTERN,
    QUERY,
    WINNING,
)
from tests.preflight.planted.twentieth_texts import rows

_NAMES = ("Abel", "Bianca", "Casper", "Dora", "Edwin", "Flora", "Gerd", "Helga", "Ivo", "Judit", "Kamal", "Liv", "Milos", "Nora", "Otto", "Pia")  # fmt: skip


def _knights(rng: random.Random, _: int) -> Row:
    while True:
        people, said = rng.sample(_NAMES, 3), []
        for _speaker in people:
            kind, one, two = rng.choice(("is", "same", "either")), *rng.sample(range(3), 2)
            said.append((kind, one, two, rng.random() < 0.5))
        fits = [world for world in product((True, False), repeat=3)
                if all(world[at] == _true(each, world) for at, each in enumerate(said))]  # fmt: skip
        if len(fits) == 1:
            break
    lines = []
    for who, (kind, one, two, good) in zip(people, said, strict=True):
        a, b, role = people[one], people[two], "a knight" if good else "a knave"
        lines.append(f'{who} says: "' + {"is": f"{a} is {role}", "same": f"{a} and {b} are of the same kind", "either": f"{a} is {role} or {b} is {role}"}[kind] + '."')  # fmt: skip
    text = "On an island, knights always tell the truth and knaves always lie. " + " ".join(lines) + " Who is a knight and who is a knave?"  # fmt: skip
    gold = ", ".join(f"({at}) {who} is a {'knight' if knight else 'knave'}" for at, (who, knight) in enumerate(zip(people, fits[0], strict=True), 1))  # fmt: skip
    system = "You first think in <think> </think> tags and then answer in <answer> </answer> tags, for example <answer> (1) Zoey is a knight, (2) Oliver is a knave </answer>."
    return {
        "data_source": "kk_logic", "prompt": chat(text, system), "ability": "logic",
        "reward_model": {"style": "rule", "ground_truth": gold}, "extra_info": {"names": people, "split": "train"},
    }  # fmt: skip


def _true(said: tuple[str, int, int, bool], world: tuple[bool, ...]) -> bool:
    kind, one, two, good = said
    if kind == "is":
        return world[one] == good
    if kind == "same":
        return world[one] == world[two]
    return world[one] == good or world[two] == good


def _maze(rng: random.Random, _: int) -> Row:
    while True:
        size = rng.randint(5, 7)
        grid = [["#" if rng.random() < 0.3 else "." for _ in range(size)] for _ in range(size)]
        start, goal = (0, rng.randrange(size)), (size - 1, rng.randrange(size))
        grid[start[0]][start[1]], grid[goal[0]][goal[1]] = "S", "G"
        if _reaches(grid, start, goal):
            break
    maze = "\n".join("".join(line) for line in grid)
    return {
        "prompt": chat(f"Walk from S to G in this maze. '#' is a wall, '.' is free.\n\n{maze}\n\nThink first, then write the moves as letters U, D, L, R without separators in <path></path>."),
        "maze": maze,
    }  # fmt: skip


def _reaches(grid: list[list[str]], start: tuple[int, int], goal: tuple[int, int]) -> bool:
    seen, edge, size = {start}, [start], len(grid)
    while edge:
        row, column = edge.pop()
        for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            place = (row + down, column + right)
            if all(0 <= n < size for n in place) and grid[place[0]][place[1]] != "#" and place not in seen:  # fmt: skip
                seen.add(place)
                edge.append(place)
    return goal in seen


_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def _tictactoe(rng: random.Random, _: int) -> Row:
    while True:
        cells = list("XXXOOO...") if rng.random() < 0.7 else list("XXOO.....")
        rng.shuffle(cells)
        wins = [at for at in range(9) if cells[at] == "." and any(at in line and sum(cells[c] == "X" for c in line) == 2 for line in _LINES)]  # fmt: skip
        over = any(len({cells[c] for c in line}) == 1 and cells[line[0]] != "." for line in _LINES)
        if wins and not over:
            break
    board = "\n".join(" ".join(cells[at : at + 3]) for at in (0, 3, 6))
    return {
        "prompt": chat(f"Tic-tac-toe, X to move:\n\n{board}\n\nThe cells have the numbers 1 to 9, row by row. Find a move that wins at once; any such move counts. End with 'Move: ' and the number."),
        "moves": [at + 1 for at in wins],
    }  # fmt: skip


_PETS, _DRINKS = (
    ("a parrot", "a hamster", "a lizard", "a poodle"),
    ("tea", "cocoa", "cider", "milk"),
)


def _logic(rng: random.Random, _: int) -> Row:
    people, pets, drinks = (rng.sample(each, 3) for each in (_NAMES, _PETS, _DRINKS))
    worlds = [(p, d) for p in permutations(range(3)) for d in permutations(range(3))]
    p, d = rng.choice(worlds)
    clues: list[tuple[str, int, int]] = []
    fits = worlds
    while len(fits) > 1:
        clue = (rng.choice(("not pet", "not drink", "both")), rng.randrange(3), rng.randrange(3))
        left = [world for world in fits if _holds(clue, *world)]
        if _holds(clue, p, d) and len(left) < len(fits):
            clues.append(clue)
            fits = left
    lines = [
        {"not pet": f"{people[a]} does not have {pets[b]}.", "not drink": f"{people[a]} does not drink {drinks[b]}.", "both": f"The owner of {pets[a]} drinks {drinks[b]}."}[kind]
        for kind, a, b in clues
    ]  # fmt: skip
    gold = {who: {"pet": pets[p[at]].removeprefix("a "), "drink": drinks[d[at]]} for at, who in enumerate(people)}  # fmt: skip
    text = f"{', '.join(people)} each have another pet ({', '.join(pets)}) and another drink ({', '.join(drinks)}). {' '.join(lines)}"
    ask = 'Solve the puzzle. Write the solution as JSON after your reasoning, in ```json fences, such as {"Ann": {"pet": "cat", "drink": "water"}, ...}.'
    return {"prompt": chat(f"{text}\n{ask}"), "solution": json.dumps(gold)}


def _holds(clue: tuple[str, int, int], pets: tuple[int, ...], drinks: tuple[int, ...]) -> bool:
    kind, one, two = clue
    if kind == "not pet":
        return pets[one] != two
    if kind == "not drink":
        return drinks[one] != two
    return drinks[pets.index(one)] == two


def _grid(rng: random.Random, at: int) -> Row:
    def drawn() -> list[list[int]]:
        high, wide = rng.randint(2, 4), rng.randint(2, 4)
        return [[rng.choice((0, 0, rng.randint(1, 9))) for _ in range(wide)] for _ in range(high)]

    old, new = rng.sample(range(1, 10), 2)
    change = (
        lambda g: [line[::-1] for line in g],
        lambda g: g[::-1],
        lambda g: [list(line) for line in zip(*g, strict=True)],
        lambda g: [[new if c else 0 for c in line] for line in g],
        lambda g: [line + line[::-1] for line in g],
        lambda g: [[old if c == 0 else c for c in line] for line in g],
    )[at % 6]
    while True:
        grids = [drawn() for _ in range(3)]
        if all(change(grid) != grid for grid in grids) and grids[2] not in grids[:2]:
            break
    shown = "\n\n".join(f"Input: {json.dumps(grid)}\nOutput: {json.dumps(change(grid))}" for grid in grids[:2])  # fmt: skip
    return {
        "prompt": chat(f"Find the rule that turns each input grid into its output grid.\n\n{shown}\n\nInput: {json.dumps(grids[2])}\nThink about the rule, then write the output grid as a JSON list of lists between <output> and </output>."),
        "grid": change(grids[2]),
    }  # fmt: skip


_POEMS = ("amber", "bloom", "cedar", "dusk", "ember", "frost", "grove", "haven", "ivory", "jade", "lark", "maple", "north", "ocean", "pearl", "quiet", "raven", "storm", "tulip", "umber", "vale", "wren", "yarn", "zeal", "harvest", "lantern", "meadow", "sparrow")  # fmt: skip
_TOPICS = ("a long winter", "the sea at night", "an old train", "first love", "a city in summer", "bread", "a lost letter", "the moon", "a quiet garden", "friendship")  # fmt: skip


def _acrostic(rng: random.Random, _: int) -> Row:
    word, topic = rng.choice(_POEMS), rng.choice(_TOPICS)
    return {
        "prompt": chat(f"Write an acrostic about {topic} for the word {word.upper()}: {len(word)} lines of four to twelve words, whose first letters spell the word. Write nothing but the poem."),
        "word": word,
    }  # fmt: skip


_BUGS = (
    ("    return min({a}, limit + 1)", "    return min({a}, limit)", "a large {a} gives one more than the limit"),
    ("    return {a} / len({b})", "    return {a} / max(len({b}), 1)", "an empty {b} raises ZeroDivisionError"),
    ("    for item in {b}[1:]:\n        {a} += item", "    for item in {b}:\n        {a} += item", "the first item of {b} is ignored"),
    ("    {b}.sort()\n    return {b}[0]", "    return min({b})", "the caller's {b} are reordered"),
    ("    return {a}.split(',')", "    return [part.strip() for part in {a}.split(',')]", "parts of {a} keep blanks"),
    ("    return {b} or None", "    return list({b})", "an empty {b} becomes None"),
)  # fmt: skip


def _patch(rng: random.Random, at: int) -> Row:
    old, new, issue = _BUGS[at % len(_BUGS)]
    a, b = rng.choice(("total", "amount", "value", "text", "score")), rng.choice(("prices", "entries", "weights", "tags", "orders"))  # fmt: skip
    name = f"{rng.choice(('compute', 'load', 'merge', 'clean', 'check'))}_{rng.choice(_POEMS)}"
    old, new, issue = (each.format(a=a, b=b) for each in (old, new, issue))
    path = f"src/{rng.choice(_POEMS)}/{rng.choice(('utils', 'core', 'io', 'helpers'))}.py"
    head = f"import logging\n\nlogger = logging.getLogger(__name__)\n\n\ndef {name}({a}, {b}, limit=10):\n    logger.debug('called')\n"
    return {
        "prompt": chat(f"Issue: `{name}`: {issue}.\n\n### {path}\n{head}{old}\n\nThink, then fix it with one edit in this form:\n```\n### {path}\n<<<<<<< SEARCH\nold lines\n=======\nnew lines\n>>>>>>> REPLACE\n```"),
        "path": path, "code": f"{head}{old}\n", "fixed": f"{head}{new}\n",
    }  # fmt: skip


def _query(rng: random.Random, at: int) -> Row:
    kind, thing = rng.choice((("author", "book"), ("team", "player"), ("owner", "boat"), ("school", "course"), ("band", "album")))  # fmt: skip
    people = rng.sample(_NAMES, 5)
    script = f"CREATE TABLE {kind}(id INTEGER PRIMARY KEY, name TEXT);\nCREATE TABLE {thing}(id INTEGER PRIMARY KEY, {kind}_id INTEGER, title TEXT, points INTEGER);\n"
    script += "".join(f"INSERT INTO {kind} VALUES ({n}, '{who}');\n" for n, who in enumerate(people, 1))  # fmt: skip
    for n in range(1, 15):
        script += f"INSERT INTO {thing} VALUES ({n}, {rng.randint(1, 4)}, '{rng.choice(_POEMS).title()} {n}', {rng.randint(1, 60)});\n"
    limit, join = rng.randint(8, 40), f"FROM {thing} JOIN {kind} ON {thing}.{kind}_id = {kind}.id"
    question, gold = (
        (f"What are the titles of the {thing}s with more than {limit} points, and the names of their {kind}s?", f"SELECT title, name {join} WHERE points > {limit}"),
        (f"How many {thing}s does each {kind} have that has at least one? Give name and number.", f"SELECT name, COUNT(*) {join} GROUP BY {kind}.id"),
        (f"Which {kind}s have no {thing}? Give their names.", f"SELECT name FROM {kind} WHERE id NOT IN (SELECT {kind}_id FROM {thing})"),
        (f"What is the sum of points of the {thing}s of {people[rng.randrange(3)]}, counting only those with more than {limit % 12} points?", ""),
    )[at % 4]  # fmt: skip
    if not gold:
        who = question.split("s of ")[-1].split(",")[0]
        gold = f"SELECT SUM(points) {join} WHERE name = '{who}' AND points > {limit % 12}"
    schema = "\n".join(script.splitlines()[:2])
    return {
        "prompt": chat(f"SQLite schema:\n{schema}\n\nQuestion: {question}\nThink, then write one query in a ```sql block."),
        "database": script, "query": gold,
    }  # fmt: skip


def _pattern(rng: random.Random, at: int) -> Row:
    letters, low = "".join(rng.sample("ABCDEFGHKLMNPRSTUVWXYZ", 2)), rng.randint(2, 5)
    digits = ["".join(rng.choices("0123456789", k=low)) for _ in range(3)]
    gold, good, bad = (
        (f"^{letters}\\d{{{low}}}$", [letters + d for d in digits], [letters + digits[0] + "7", letters.lower() + digits[1], letters + "x" * low, digits[2]]),
        (f"^\\d{{{low}}}-[{letters}]$", [f"{d}-{rng.choice(letters)}" for d in digits], [f"{digits[0]}-Q", f"{digits[1]}{letters[0]}", f"{digits[2]}1-{letters[0]}", f"-{letters[1]}"]),
        (f"^{letters[0]}+{letters[1]}{{{low}}}$", [letters[0] * n + letters[1] * low for n in (1, 2, 3)], [letters[1] * low, letters[0] * 2, letters[0] + letters[1] * (low + 1), letters[1] + letters[0]]),
    )[at % 3]  # fmt: skip
    return {
        "prompt": chat(f"Write a Python regular expression that matches all of {json.dumps(good)} and none of {json.dumps(bad)}. Explain it, then write it alone between <regex> and </regex>."),
        "match": good, "reject": bad, "pattern": gold,
    }  # fmt: skip


def _body(rng: random.Random, at: int) -> Row:
    word, n = rng.choice(_POEMS), rng.randint(2, 19)
    doc, body, test = (
        (f"Return the sum of the values that are greater than {n}.", f"    return sum(v for v in values if v > {n})", [([1, n, n + 1, n + 5], 2 * n + 6), ([], 0), ([n + 2], n + 2)]),
        (f"Return the values at the places that are multiples of {n}.", f"    return values[::{n}]", [(list(range(50)), list(range(0, 50, n))), ([], []), ([4], [4])]),
        (f"Return how many values leave the remainder 1 when divided by {n}.", f"    return sum(v % {n} == 1 for v in values)", [([1, n + 1, n, 2 * n + 1], 3), ([], 0), ([0], 0)]),
        (f"Return the values in reverse order, each multiplied by {n}.", f"    return [v * {n} for v in reversed(values)]", [([1, 2], [2 * n, n]), ([], []), ([3], [3 * n])]),
    )[at % 4]  # fmt: skip
    name = f"{word}_{at}"
    tests = "\n".join(f"assert {name}({given}) == {wanted}" for given, wanted in test)
    return {"prompt": f'from typing import List\n\n\ndef {name}(values: List[int]):\n    """{doc}"""\n', "canonical_solution": f"{body}\n", "test": tests, "entry_point": name}  # fmt: skip


_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


def _cron(rng: random.Random, at: int) -> Row:
    minute, hour, day, date = rng.randint(0, 59), rng.randint(0, 23), rng.randint(0, 6), rng.randint(1, 28)  # fmt: skip
    step = rng.choice((5, 10, 15, 20, 30))
    when, gold = (
        (f"every {_DAYS[day]} at {hour:02d}:{minute:02d}", f"{minute} {hour} * * {day}"),
        (f"on day {date} of every month at {hour:02d}:{minute:02d}", f"{minute} {hour} {date} * *"),
        (f"every {step} minutes, but only on {_DAYS[day]}s from {hour % 12}:00 to {hour % 12 + 5}:59", f"*/{step} {hour % 12}-{hour % 12 + 5} * * {day}"),
        (f"at minute {minute} of every hour in {('January', 'May', 'October')[at % 3]}", f"{minute} * * {(1, 5, 10)[at % 3]} *"),
    )[at % 4]  # fmt: skip
    return {"prompt": chat(f"Write a crontab schedule (five fields, numbers only, Sunday is 0) for a job that runs {when}. Explain the fields, then write the schedule in backticks on a line 'Schedule: `...`'."), "schedule": gold}  # fmt: skip


_LEMMAS = {
    "Nat.add_comm": "{a} + {b} = {b} + {a}", "Nat.mul_comm": "{a} * {b} = {b} * {a}", "Nat.add_assoc": "{a} + {b} + {c} = {a} + ({b} + {c})", "Nat.mul_assoc": "{a} * {b} * {c} = {a} * ({b} * {c})",
    "Nat.left_distrib": "{a} * ({b} + {c}) = {a} * {b} + {a} * {c}", "Nat.right_distrib": "({a} + {b}) * {c} = {a} * {c} + {b} * {c}", "Nat.le_add_right": "{a} ≤ {a} + {b}", "Nat.le_add_left": "{a} ≤ {b} + {a}",
    "Nat.add_sub_cancel": "{a} + {b} - {b} = {a}", "Nat.zero_add": "0 + {a} = {a}", "Nat.mul_one": "{a} * 1 = {a}", "Nat.le_refl": "{a} ≤ {a}", "Nat.succ_ne_zero": "Nat.succ {a} ≠ 0", "Nat.mul_zero": "{a} * 0 = 0",
}  # fmt: skip


def _lemma(rng: random.Random, _: int) -> Row:
    name, goal = rng.choice(list(_LEMMAS.items()))
    a, b, c = rng.sample("abcdkmnpqrstuvxyz", 3)
    others = rng.sample([each for each in _LEMMAS if each != name], 3)
    listed = sorted([name, *others], key=lambda _each: rng.random())
    return {
        "prompt": chat(f"Lean 4 proof state:\n\n{a} {b} {c} : ℕ\n⊢ {goal.format(a=a, b=b, c=c)}\n\nWhich of the lemmas {', '.join(listed)} closes the goal? Reason, then write the tactic in a ```lean block: exact <lemma> ..."),
        "lemma": name,
    }  # fmt: skip


def puzzle_sets() -> Iterator[Case]:
    """Twelve sets of puzzles and code."""
    thinks = str(CHATML.template).replace("assistant\n{% endif %}", "assistant\n{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}")  # fmt: skip
    yield Case(name="knights and knaves with Logic-RL's scale", rows=rows(300, 9541, _knights), reward=KNIGHTS, suffix=".parquet", framework="verl", run_config=verl(), model=replace(CHATML, template=thinks))  # fmt: skip
    yield Case(name="mazes to walk", rows=rows(240, 9542, _maze), reward=MAZE)
    yield Case(name="tic-tac-toe, any winning move", rows=rows(300, 9543, _tictactoe), reward=WINNING, model=LLAMA)  # fmt: skip
    yield Case(name="logic grids as JSON", rows=rows(240, 9544, _logic), reward=LOGIC_GRID, framework="trl", run_config=trl())  # fmt: skip
    yield Case(name="grids after two examples", rows=rows(240, 9545, _grid), reward=GRID, suffix=".parquet")  # fmt: skip
    yield Case(name="acrostics without an answer", rows=rows(200, 9546, _acrostic), reward=ACROSTIC, model=GEMMA)  # fmt: skip
    yield Case(name="patches by similarity", rows=rows(240, 9547, _patch), reward=PATCH, framework="trl", run_config=trl())  # fmt: skip
    yield Case(name="joins of two tables with a schema", rows=rows(240, 9548, _query), reward=QUERY, suffix=".parquet")  # fmt: skip
    yield Case(
        name="regular expressions from examples", rows=rows(240, 9549, _pattern), reward=PATTERN
    )
    yield Case(name="function bodies of a base model", rows=rows(80, 9550, _body), reward=BODY, model=BASE)  # fmt: skip
    yield Case(name="crontab schedules", rows=rows(300, 9551, _cron), reward=CRON, model=LLAMA, framework="trl", run_config=trl())  # fmt: skip
    yield Case(name="lemmas that close a Lean goal", rows=rows(300, 9552, _lemma), reward=LEMMA)
