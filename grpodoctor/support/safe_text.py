"""Hostile text made harmless: for terminals, Markdown, HTML and JSON.

Text that came from a model, a log or a file name may hold markup, terminal sequences, control
characters and bidirectional overrides. Everything a report shows passes through here. For rich,
`plain` text goes into `rich.text.Text` objects, which read no markup.
"""

from __future__ import annotations

import html as html_module
import re

import orjson

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # control sequences: colours, cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links and device strings
    r"|\x1b[ -/]*[0-~]?"  # every other escape
    r"|\x9b[0-?]*[ -/]*[@-~]?"  # a control sequence begun by one byte
)
_HIDDEN_CLASS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 (but tab and newline), DEL, C1
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # bidi
    "\ud800-\udfff"  # lone surrogates, as in file names that are not UTF-8
    "\U000e0000-\U000e007f"  # tags
)
_HIDDEN = re.compile(f"[{_HIDDEN_CLASS}]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~$])")
_MARKDOWN_START = re.compile(r"^(\d*)([-+=.])")


def clean_text(text: str) -> str:
    """Replace lone surrogates, which a tokenizer may leave and UTF-8 cannot hold, by `?`."""
    return text.encode("utf-8", "replace").decode()


def plain(text: str, *, limit: int | None = None, lines: bool = False) -> str:
    """Text without anything that acts on a terminal or hides from the reader.

    Args:
        text: any text.
        limit: cut to that many characters, the last an ellipsis.
        lines: keep line breaks and tabs; else they become single spaces.
    """
    head = text if limit is None else text[: 4 * limit + 64]
    visible = _HIDDEN.sub("", _SEQUENCE.sub("", head.replace("\r\n", "\n")))
    if not lines:
        visible = " ".join(visible.split())
    if limit is not None and (len(visible) > limit or len(head) < len(text)):
        visible = visible[: max(0, limit - 1)] + "…"
    return visible


def html(text: str, *, limit: int | None = None, lines: bool = False) -> str:
    """Text for an HTML element or a quoted attribute."""
    return html_module.escape(plain(text, limit=limit, lines=lines), quote=True)


def markdown(text: str, *, limit: int | None = None) -> str:
    """Text for a line of Markdown or a table cell: no markup, no link, no mention."""
    bare = _MARKDOWN.sub(r"\\\1", plain(text, limit=limit))
    bare = html_module.escape(bare, quote=False)
    bare = bare.replace("://", "&#58;//").replace("@", "&#64;").replace("www.", "www&#46;")
    return _MARKDOWN_START.sub(r"\1\\\2", bare)


def code_span(text: str, *, limit: int | None = None) -> str:
    """Text as a Markdown code span, safe inside a table cell."""
    bare = plain(text, limit=limit)
    longest = max((len(ticks) for ticks in re.findall("`+", bare)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{bare.replace('|', chr(92) + '|')}{pad}{fence}" if bare else ""


def json_bytes(data: object, *, indent: bool = False) -> bytes:
    """JSON with every invisible character spelled out, so that printing it is harmless.

    NaN and the infinities become null. Lone surrogates, which UTF-8 cannot hold, become "?".
    """
    option = orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if indent else 0)
    try:
        dumped = orjson.dumps(data, option=option)
    except TypeError:
        dumped = orjson.dumps(_encodable(data), option=option)
    return _HIDDEN.sub(_spell_out, dumped.decode()).encode()


def _encodable(data: object) -> object:
    if isinstance(data, str):
        return clean_text(data)
    if isinstance(data, dict):
        return {_encodable(str(key)): _encodable(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_encodable(value) for value in data]
    return data if data is None or isinstance(data, bool | int | float) else str(data)


def _spell_out(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
