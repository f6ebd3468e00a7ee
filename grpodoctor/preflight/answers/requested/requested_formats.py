"""Answer formats that the prompts themselves ask for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

MAX_FORMATS = 40
"""Formats to try; each costs a few calls of the reward function."""
_ANSWER = "{answer}"
_FILLER = "I think."
_MAX_PART = 4000
"""Characters at the beginning and at the end of a prompt, where instructions are."""
_QUOTED = re.compile(
    r"(?<!\w)'([^'\n]{1,60})'(?!\w)|\"([^\"\n]{1,60})\"|`([^`\n]{1,60})`|\u201c([^\u201d\n]{1,60})\u201d|"
    r"\u201e([^\u201c\u201d\n]{1,60})[\u201c\u201d]|\u2018([^\u2019\n]{1,60})\u2019|\u300c([^\u300d\n]{1,60})\u300d|\u300e([^\u300f\n]{1,60})\u300f|"
    r"\u00ab([^\u00bb\n]{1,60})\u00bb|\*\*([^*\n]{1,60})\*\*"
)
"""Text in quotation marks, backticks or bold type."""
_BRACKETED = r"<[^<>\n]{1,40}>|\[[^\[\]\n]{0,40}\]|\{[^{}\n]{0,40}\}|\([^()\n]{1,40}\)"
_BLANK = re.compile(rf"{_BRACKETED}|\.{{3,}}|\u2026|_{{2,}}")
"""A place for the answer: brackets with a name in them, dots, or a line."""
_SEPARATOR = r"[:\uff1a=]|->|=>|\u2192"
_LABEL = re.compile(rf".*(?:{_SEPARATOR}|\b(?:is|est|ist|es)\b|\u662f|\u4e3a)\s*", re.DOTALL)
"""A label up to its last separator."""
_NAME = re.compile(r"\$?(?:[A-Z]{2,}\w*|[A-Z])[.!]?")
"""A capital letter or a word in capitals, which stands for the answer."""
_PLACE = re.compile(
    rf"(?P<sign>[ ]?(?:{_SEPARATOR}|\||[-\u2013\u2014](?=[ ]))[ ]?|[ ]is[ ])"
    rf"(?P<blank>{_BRACKETED}|\.{{3,}}|\u2026|_{{2,}}|\$?[A-Z][A-Z_]*\b|"
    r"(?:the|your|an?) (?:\w+ )?(?:answer|number|result|value|word|letter|name|option|choice)\b|"
    r"(?P<example>\d+\b))?"
)
"""A sign, and behind it a place for the answer, an example or nothing."""
_LAST_WORDS = re.compile(r"(?:[^\W\d_][\w-]{0,30}[ ]){0,3}[^\W\d_][\w-]{0,30}$")
_LABEL_LETTERS = 130
_RUN = re.compile(r"([#@%&*=~^|$<>\[\](){}])\1+")
"""A mark of two or more equal signs, such as [[, ### or >>>."""
_MIRRORED = str.maketrans("<>[](){}", "><][)(}{")
_TAG = re.compile(r"(?P<open>[<\[])(?P<name>[A-Za-z][\w-]*)[>\]]")
_OBJECT = re.compile(r"\{[^{}]*\"\w+\"\s*:[^{}]*\}")
_KEY = re.compile(r"\"(\w+)\"\s*:")
_ANSWER_KEY = re.compile(r"answer|result|final|label|value|output|prediction|choice", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_LANGUAGE = re.compile(
    r"\b(sql|json|bash|cpp|c\+\+|java|javascript|typescript|rust|go|yaml|latex|html|regex)\b",
    re.IGNORECASE,
)
_PRINTING = re.compile(
    r"\b(?:program|script|code|python)\b[^.\n]{0,80}\b(?:prints?|outputs?)\b", re.IGNORECASE
)
"""A program that computes the answer and writes it."""
_MAX_TAGS = 4
_LINE = re.compile(
    rf"^[ \t]*(?P<label>[^\W\d_][\w ]{{0,30}}(?:{_SEPARATOR})[ ]?)[ \t]*"
    rf"(?:{_BRACKETED}|\.{{3,}}|\u2026|_{{2,}}|\$?[A-Z][A-Z_]*|\d+)\.?[ \t]*$",
    re.MULTILINE,
)
"""A line of a layout: a label, and a place for its content."""
_SHOWN_LABEL = re.compile(
    rf"([^\W\d_][\w ]{{0,30}}[:\uff1a=])\s*(?:{_BRACKETED}|\.{{3,}}|\u2026|_{{2,}}|"
    r"\$?[A-Z][A-Z_]*)?\.?$"
)
"""A quoted label with nothing or a place for the answer behind it."""
_SHOWN_PLACE = re.compile(
    r"([^\W\d_][\w ]{0,30}[:\uff1a=])\s*([(\[])(?:X|N|Y|LETTER|NUMBER)([)\]])\.?"
)
"""A quoted label with a name in brackets behind it."""
_RATING = re.compile(r"confiden|probabil|score|rating|certain|percent", re.IGNORECASE)
_RATING_FILLERS = ("50", "0.9")
"""A rating of 100, and one of 1."""
_OF_ONE = re.compile(
    r"(?<![\w.])0(?:\.0+)?\s?(?:to|and|-|\u2013|\u2026|\.\.+)\s?1(?:\.0+)?(?!\w|\.\d)|\[0, ?1\]"
)
_ASKS_FOR_REASONS = re.compile(
    r"\b(?:explain|reason(?:ing)?|think|show (?:your|the|all) (?:work|steps)|step[ -]by[ -]step|"
    r"justify)\b",
    re.IGNORECASE,
)
"""Instructions to write more than the answer."""
WRAPPED = ("({answer})", "[{answer}]", "[[{answer}]]", "**{answer}**", "${answer}$", '"{answer}"')
"""Signs around an answer that prompts describe by their names."""


OF_THOUGHTS = frozenset({"think", "thinking", "reasoning", "thought", "scratchpad"})
"""Names of tags around the reasoning."""
_MAX_SHOWN = 4
"""Times that a prompt shows the tag for the answer, with an example or two."""
_SHOWN_TAGS = re.compile(
    r"<([A-Za-z][\w-]{0,30})>(?:[^<>\n]{0,40}|\s*(?:\.{3}|\u2026|\[[^\]\n]{0,40}\])\s*)</\1>"
)
"""A pair of tags around a short place for its content, also "<a> and </a>"."""

_PAIR = re.compile(
    r"(?P<gap>[ \t]*\n?[ \t]*)<(?P<name>[A-Za-z][\w-]{0,30})>(?P<before>\s*)"
    r"(?P<content>[^<>\s][^<>\n]{0,80}?)(?P<after>\s*)</(?P=name)>"
)
"""A pair of tags with a place for its content, and the white space before and in it."""
_SIDE_BY_SIDE = re.compile(
    r"<([A-Za-z][\w-]{0,30})>\s*[^<>\s][^<>\n]{0,80}?\s*</\1>"
    r"(?:[ \t]*\n?[ \t]*<([A-Za-z][\w-]{0,30})>\s*[^<>\s][^<>\n]{0,80}?\s*</\2>)"
)
"""Two pairs of tags next to each other, such as <think> ... </think> <answer> ... </answer>."""


def ask_for_reasons(prompts: Sequence[str]) -> bool:
    """Whether most prompts ask for reasoning before the answer."""
    return sum(bool(_ASKS_FOR_REASONS.search(text)) for text in prompts) > len(prompts) / 2


def requested_formats(prompts: Sequence[str]) -> tuple[str, ...]:
    """Answer formats, with `{answer}` in each, that more than half of the prompts ask for.

    They are read from what a prompt quotes or writes with a place for the answer: labels, tags,
    JSON objects and code fences. Some of them are guesses: try which of them earns a reward.
    """
    counts: Counter[str] = Counter()
    for prompt in prompts:
        counts.update(dict.fromkeys(_formats_in(prompt), 1))
    asked = [form for form, count in counts.items() if count > len(prompts) / 2]
    return tuple(asked[:MAX_FORMATS])


def quoted_labels(prompts: Sequence[str]) -> tuple[str, ...]:
    """Formats of labels with a colon or an equals sign that more than half of the prompts quote.

    Unlike `requested_formats`, these are no guesses: `'Total: N'` or `"Answer ="`.
    """
    counts: Counter[str] = Counter()
    for prompt in prompts:
        samples = (
            next(filter(None, match.groups()), "").strip() for match in _QUOTED.finditer(prompt)
        )
        labels = (_SHOWN_LABEL.match(sample) for sample in samples)
        counts.update({f"{label[1]} {_ANSWER}" for label in labels if label})
    return tuple(form for form, count in counts.items() if count > len(prompts) / 2)


def quoted_places(prompts: Sequence[str]) -> tuple[str, ...]:
    """Formats of quoted labels with a name in brackets, such as 'Answer: (X)'.

    The brackets belong to the response: the name alone stands for the answer.
    """
    counts: Counter[str] = Counter()
    for prompt in prompts:
        samples = (
            next(filter(None, match.groups()), "").strip() for match in _QUOTED.finditer(prompt)
        )
        places = (_SHOWN_PLACE.fullmatch(sample) for sample in samples)
        counts.update({f"{p[1]} {p[2]}{_ANSWER}{p[3]}" for p in places if p})
    return tuple(form for form, count in counts.items() if count > len(prompts) / 2)


def requested_tags(prompts: Sequence[str]) -> tuple[str, ...]:
    """Names of the tags in angle brackets that more than half of the prompts ask for."""
    counts: Counter[str] = Counter()
    for prompt in prompts:
        names = {name for opening, name in _tags_of(prompt) if opening == "<"}
        counts.update(names)
    asked = [name for name, count in counts.items() if count > len(prompts) / 2]
    return tuple(sorted(asked)[:_MAX_TAGS])


def shown_tag(prompts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The tag for the answer that more than half of the prompts show, with its spellings.

    A place for the content is between the tags, as in "<label>...</label>" or "between <label> and
    </label>". Unlike `requested_formats`, this is no guess. Empty if there is none.
    """
    counts: Counter[str] = Counter()
    for prompt in prompts:
        # Tags that repeat are data, such as the cells of a table in HTML.
        shown = Counter(_SHOWN_TAGS.findall(prompt))
        counts.update(name for name, count in shown.items() if count <= _MAX_SHOWN)
    names = [name for name, count in counts.items() if count > len(prompts) / 2][:_MAX_TAGS]
    if not names or (target := _target(names)) in OF_THOUGHTS:
        return {}
    parts = (f"<{name}>{_ANSWER if name == target else _FILLER}</{name}>" for name in names)
    return {f"<{target}>": (f"<{target}>{_ANSWER}</{target}>", "\n".join(parts))}


def tag_layout(prompts: Sequence[str]) -> tuple[str, ...]:
    """Names of the tags in angle brackets, in the order of more than half of the prompts.

    Empty unless the last of them is the one for the answer.
    """
    orders = Counter(
        tuple(name for opening, name in _tags_of(prompt) if opening == "<") for prompt in prompts
    )
    names, count = orders.most_common(1)[0] if orders else ((), 0)
    is_usual = count > len(prompts) / 2 and 1 < len(names) <= _MAX_TAGS
    return names if is_usual and _target(names) == names[-1] else ()


def _formats_in(prompt: str) -> Iterator[str]:
    if len(prompt) > 2 * _MAX_PART:
        prompt = f"{prompt[:_MAX_PART]}\n{prompt[-_MAX_PART:]}"
    yield from _in_tags(prompt)
    yield from _in_layouts(prompt)
    yield from _in_objects(prompt)
    for match in _QUOTED.finditer(prompt):
        sample = next(filter(None, match.groups()), "").strip()
        for form in _from_sample(sample) if sample else ():
            yield form
            if match[0].startswith("**"):
                yield f"**{sample}**" + form.removeprefix(sample)
    yield from _from_labels(prompt)
    yield from _from_marks(prompt)
    if _PRINTING.search(prompt):
        yield f"```python\nprint({_ANSWER})\n```"
    for language in dict.fromkeys(_LANGUAGE.findall(prompt)):
        yield f"```{language.lower()}\n{_ANSWER}\n```"


def _from_sample(sample: str) -> Iterator[str]:
    """Formats of a quoted sample such as `Final: X`, `[[A]]`, `The answer is …` or `RESULT`."""
    blanks = list(_BLANK.finditer(sample))
    if blanks:
        start, end = blanks[-1].span()
        yield sample[:start] + _ANSWER + sample[end:]
        if sample[start] in "<[{(":
            yield sample[: start + 1] + _ANSWER + sample[end - 1 :]
        return
    label = _LABEL.match(sample)
    if label:
        complete = label.end() < len(sample) or sample[label.end() - 1] in "\uff1a \u662f\u4e3a"
        yield label[0] + ("" if complete else " ") + _ANSWER
        return
    words = sample.split(" ")
    if len(words) > 1 and _NAME.fullmatch(words[-1]):
        yield " ".join([*words[:-1], _ANSWER])
        return
    yield f"{sample} {_ANSWER}"
    yield f"{sample}: {_ANSWER}"


def _from_labels(prompt: str) -> Iterator[str]:
    """Formats of labels without quotation marks, with each number of words before the sign."""
    for match in _PLACE.finditer(prompt):
        before = prompt[max(match.start() - _LABEL_LETTERS, 0) : match.start()]
        label = _LAST_WORDS.search(before)
        words, sign, blank = label[0].split(" ") if label else [], match["sign"], match["blank"]
        is_marked = bool(blank) and not match["example"]
        if not words or not (is_marked or (words[-1][0].isupper() and sign.strip(" -|="))):
            continue
        is_tight = sign.endswith((" ", "\uff1a", "|")) or sign == "="
        sign = sign if is_tight else f"{sign} "
        for size in range(1, len(words) + 1):
            form = " ".join(words[-size:]) + sign + _ANSWER
            yield form
            if is_marked and blank[0] in "<[{(":
                yield form.replace(_ANSWER, blank[0] + _ANSWER + blank[-1])
        opening = before[label.start() - 1 : label.start()] if label else ""
        closing = prompt[match.end() : match.end() + 1]
        if opening and opening in "([{<" and closing == opening.translate(_MIRRORED):
            yield opening + " ".join(words) + sign + _ANSWER + closing


def _from_marks(prompt: str) -> Iterator[str]:
    """Formats of marks of several equal signs, before the answer or around it."""
    marks = list(dict.fromkeys(match[0] for match in _RUN.finditer(prompt)))
    for mark in marks[:_MAX_TAGS]:
        closing = mark.translate(_MIRRORED)
        if prompt.count(mark) > 1 if closing == mark else closing in marks:
            yield mark + _ANSWER + closing
        yield f"{mark} {_ANSWER}"


def _in_layouts(prompt: str) -> Iterator[str]:
    """The format of a layout of several labelled lines."""
    labels = [match["label"] for match in _LINE.finditer(prompt)][:_MAX_TAGS]
    if len(labels) < 2:
        return
    target = _target(labels)
    yield "\n".join(
        label + (_ANSWER if label == target else _filler(label, prompt)) for label in labels
    )


def _target(names: Sequence[str]) -> str:
    """The part of a layout that holds the answer: by its name, or the last that is no rating."""
    named = [name for name in names if _ANSWER_KEY.search(name)]
    others = [name for name in names if not _RATING.search(name)]
    return (named or others or list(names))[-1]


def _filler(name: str, prompt: str) -> str:
    """The content of another part than the answer; a rating on the scale that the prompt names."""
    return _RATING_FILLERS[bool(_OF_ONE.search(prompt))] if _RATING.search(name) else _FILLER


def _in_tags(prompt: str) -> Iterator[str]:
    """Formats of pairs of tags: as shown, alone, and in the order in which the prompt names them.

    The white space between tags that are shown side by side may be what the reward requires.
    """
    yield from _shown_layouts(prompt)
    chosen = _tags_of(prompt)[:_MAX_TAGS]
    for opening, name in chosen:
        yield _tagged(opening, name, _ANSWER)
        yield _tagged(opening, name, f"\n{_ANSWER}\n")
    if len(chosen) < 2:
        return
    target = _target([name for _, name in chosen])
    for breaks in ("", "\n"):
        contents = (_ANSWER if name == target else _filler(name, prompt) for _, name in chosen)
        parts = zip(chosen, contents, strict=True)
        yield "\n".join(_tagged(*tag, breaks + content + breaks) for tag, content in parts)


def _shown_layouts(prompt: str) -> Iterator[str]:
    """Layouts of several tags side by side, with the white space that the prompt shows."""
    for shown in _SIDE_BY_SIDE.finditer(prompt):
        pairs = [*_PAIR.finditer(shown[0])]
        names = [pair["name"] for pair in pairs]
        target = _target(names)
        if names[-1] != target or len(set(names)) < len(names):
            continue
        form = ""
        for pair in pairs:
            content = _ANSWER if pair["name"] == target else _filler(pair["name"], prompt)
            form += f"{pair['gap']}<{pair['name']}>{pair['before']}{content}{pair['after']}"
            form += f"</{pair['name']}>"
        yield form


def _tags_of(prompt: str) -> list[tuple[str, str]]:
    """The tags that a prompt closes or calls a tag: opening bracket and name."""
    tags = dict.fromkeys(
        (match["open"], match["name"])
        for match in _TAG.finditer(prompt)
        if _closing(match["open"], match["name"]) in prompt
        or re.match(r"[^\w\n]*(?:tags?|\u6807\u7b7e)\b", prompt[match.end() :])
    )
    return list(tags)


def _tagged(opening: str, name: str, content: str) -> str:
    return f"{opening}{name}{'>' if opening == '<' else ']'}{content}{_closing(opening, name)}"


def _closing(opening: str, name: str) -> str:
    return f"</{name}>" if opening == "<" else f"[/{name}]"


def _in_objects(prompt: str) -> Iterator[str]:
    """Formats of JSON objects, shown or described by a quoted key."""
    for match in _OBJECT.finditer(prompt):
        yield from _objects(_KEY.findall(match[0]), prompt)
    if "json" in prompt.casefold():
        quoted = (next(filter(None, match.groups()), "") for match in _QUOTED.finditer(prompt))
        keys = [text for text in dict.fromkeys(quoted) if _IDENTIFIER.fullmatch(text)]
        yield from _objects(keys[:_MAX_TAGS], prompt)


def _objects(keys: Sequence[str], prompt: str) -> Iterator[str]:
    if not keys:
        return
    target = _target(keys)
    for value in (_ANSWER, f'"{_ANSWER}"'):
        pairs = (
            f'"{key}": ' + (value if key == target else _json_filler(key, prompt)) for key in keys
        )
        yield "{" + ", ".join(pairs) + "}"


def _json_filler(key: str, prompt: str) -> str:
    filler = _filler(key, prompt)
    return f'"{filler}"' if filler == _FILLER else filler
