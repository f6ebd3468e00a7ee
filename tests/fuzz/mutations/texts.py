"""Changes to text files by their structure: documents, lines, cells, assignments, words."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from tests.fuzz.mutations import trees

Mutation = Callable[[random.Random, bytes], bytes]


def json_document(rng: random.Random, sound: bytes) -> bytes:
    """One JSON document with changed values."""
    return _json(rng, trees.changed(rng, json.loads(sound)))


def json_lines(rng: random.Random, sound: bytes) -> bytes:
    """JSON lines: some with changed values, some in another order or twice."""
    lines = sound.splitlines()
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        try:
            lines[at] = _json(rng, trees.changed(rng, json.loads(lines[at])))
        except (ValueError, RecursionError):
            lines[at] = lines[at][: len(lines[at]) // 2]
    return b"\n".join(_disordered(rng, lines)) + rng.choice((b"\n", b"", b"\r\n", b"\n\n"))


def csv_cells(rng: random.Random, sound: bytes) -> bytes:
    """A table with changed cells, headers, delimiters and quotes."""
    rows = [line.split(b",") for line in sound.splitlines()]
    for _ in range(rng.randint(1, 6)):
        row = rng.choice(rows)
        if row:
            row[rng.randrange(len(row))] = _cell(rng)
        if rng.random() < 0.2:
            row.append(_cell(rng))
    rows[0] = _disordered(rng, rows[0])
    joint = rng.choice((b",", b",", b",", b";", b"\t"))
    return b"\n".join(joint.join(row) for row in _disordered(rng, rows)) + b"\n"


def toml_assignments(rng: random.Random, sound: bytes) -> bytes:
    """TOML with other values, keys and tables; most of it still parses."""
    lines = sound.decode().splitlines()
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        key, equals, value = lines[at].partition("=")
        changed = rng.choice(
            (
                f"{key}= {_toml_value(rng)}",
                f"{_toml_key(rng)} ={value or ' 1'}" if equals else f"[{_toml_key(rng)}]",
                f"{key.strip()}.{_toml_key(rng)} = {_toml_value(rng)}",
                "",
            )
        )
        lines[at] = changed
    return "\n".join(_disordered(rng, lines)).encode("utf-8", "replace") + b"\n"


def yaml_document(rng: random.Random, sound: bytes) -> bytes:
    """YAML with changed values, or with what only YAML has: tags, aliases, odd indentation."""
    import yaml

    if rng.random() < 0.6:
        tree = trees.changed(rng, yaml.safe_load(sound))
        return yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace")
    lines = sound.decode().splitlines()
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        lines[at] = rng.choice(_YAML_LINES)(lines[at])
    return "\n".join(lines).encode()


_YAML_LINES: tuple[Callable[[str], str], ...] = (
    lambda line: f"\t{line}",
    lambda line: f"  {line}",
    lambda line: f"{line} !!python/object/apply:os.system [exit]",
    lambda line: line.replace(": ", ": &a ", 1),
    lambda line: f"{line}\nb: *a",
    lambda _: "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b]",
    lambda line: f"<<: {{a: 1}}\n{line}",
    lambda line: f"? {line}",
    lambda line: line.partition(":")[0] + ": |\n   x\n  y",
    lambda line: line.partition(":")[0] + ": 1:60:61",
    lambda line: line.partition(":")[0] + ": 2001-99-99",
    lambda line: line.partition(":")[0] + ": 0b_",
    lambda _: "[" * 300,
    lambda line: f"--- \n{line}\n...",
)


def words(rng: random.Random, sound: bytes) -> bytes:
    """Lines of a console with other numbers, broken and joined lines, and control sequences."""
    lines = sound.splitlines(keepends=True)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(lines))
        lines[at] = rng.choice(_LINE_CHANGES)(rng, lines[at])
    return b"".join(_disordered(rng, lines))


def _other_numbers(rng: random.Random, line: bytes) -> bytes:
    return re.sub(rb"\d+", lambda _: rng.choice(_NUMBERS), line, count=rng.randint(1, 3))


def _punctuated(rng: random.Random, line: bytes) -> bytes:
    old, new = rng.sample((b":", b",", b"=", b"|", b"{", b"}", b"'", b" - ", b"\t", b"["), 2)
    return line.replace(old, new, rng.randint(1, 5))


def _interrupted(rng: random.Random, line: bytes) -> bytes:
    at = rng.randint(0, len(line))
    return (
        line[:at]
        + rng.choice((b"\n", b"\r", b"\x1b[0m", b"\x1b]0;x", b"\x08", b" 50%|##"))
        + (line[at:])
    )


def _stretched(rng: random.Random, line: bytes) -> bytes:
    at = rng.randint(0, len(line))
    return line[:at] + line[at : at + 20] * rng.choice((2, 100, 3000)) + line[at:]


_LINE_CHANGES = (_other_numbers, _other_numbers, _punctuated, _interrupted, _stretched)
_NUMBERS = (b"0", b"-1", b"nan", b"inf", b"1e999", b"9" * 30, b"9" * 5000, b"", b"1_0",
            b"0x1f", b"1.5.2", b"\xd9\xa3", b"True", b"None", b"array([1.5, nan])",
            b"tensor(0.5)")  # fmt: skip


def _cell(rng: random.Random) -> bytes:
    value = trees.odd_value(rng)
    text = value if isinstance(value, str) else str(value)[:6000]
    return (
        rng.choice(("{}", '"{}"', '"{}', "{},", " {} "))
        .replace("{}", text)
        .encode("utf-8", "replace")
    )


def _toml_key(rng: random.Random) -> str:
    return rng.choice(
        ("x", '""', "a.b.c", "seed", "kind", "steps", '"a b"', "map", "task", "-", "1")
    )


def _toml_value(rng: random.Random) -> str:
    return rng.choice(("", "nan", "-inf", "1e999", "true", "[]", "{}", '"x"', "[[1], [2]]",
                       "{a = {b = 1}}", "1979-05-27T07:32:00Z", "07:32:00", "9" * 400, "0x_1",
                       '"\\ud800"', "'''", "[" * 500, '["a", 1]', "-1", "0", "1e-300", '""',
                       '"' + "x" * 3000 + '"', "{x = 1, x = 2}",
                       "9223372036854775808"))  # fmt: skip


def _json(rng: random.Random, tree: Any) -> bytes:
    text = json.dumps(tree, ensure_ascii=rng.random() < 0.5)
    return text.encode("utf-8", "surrogatepass")


def _disordered(rng: random.Random, items: list[Any]) -> list[Any]:
    """Usually as it was; else without one item, with one twice, or with two exchanged."""
    items = list(items)
    kind, at = rng.random(), rng.randrange(len(items))
    if kind < 0.1:
        del items[at]
    elif kind < 0.2:
        items.insert(rng.randrange(len(items)), items[at])
    elif kind < 0.3:
        other = rng.randrange(len(items))
        items[at], items[other] = items[other], items[at]
    return items
