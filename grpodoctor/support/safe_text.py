"""Sanitizing of untrusted text for terminals, Markdown, HTML and JSON.

Text from a model, a log or a file name may contain markup, terminal sequences, control characters
and bidirectional overrides. All text in a report passes through this module. For rich, put `plain`
text into `rich.text.Text` objects, which do not interpret markup.
"""

from __future__ import annotations

import html as html_module
import re

import orjson

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # control sequences: colors, cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # titles, links and device strings
    r"|\x1b[ -/]*[0-~]?"  # all other escape sequences
    r"|\x9b[0-?]*[ -/]*[@-~]?"  # control sequences with a one-byte introducer
)
_HIDDEN_CLASS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 (except tab and newline), DEL, C1
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # bidi
    "\ud800-\udfff"  # lone surrogates, as in file names that are not UTF-8
    "\U000e0000-\U000e007f"  # tags
)
_HIDDEN = re.compile(f"[{_HIDDEN_CLASS}]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~$])")
_MARKDOWN_START = re.compile(r"^(\d*)([-+=.])")


def clean_text(text: str) -> str:
    """Replace lone surrogates, which tokenizers may produce and UTF-8 cannot encode, by `?`."""
    return text.encode("utf-8", "replace").decode()


def printable(text: str, longest: int = 80) -> str:
    """Cut untrusted text and escape everything but printable ASCII."""
    escaped = text[:longest].encode("ascii", "backslashreplace").decode()
    return "".join(char if char.isprintable() else "?" for char in escaped)[:longest]


def plain(text: str, *, limit: int | None = None, lines: bool = False) -> str:
    """Remove characters that control a terminal or are invisible.

    Args:
        text: any text.
        limit: cut to this many characters; the last one is an ellipsis.
        lines: keep line breaks and tabs; by default, white space becomes single spaces.
    """
    head = text if limit is None else text[: 4 * limit + 64]
    visible = _HIDDEN.sub("", _SEQUENCE.sub("", head.replace("\r\n", "\n")))
    if not lines:
        visible = " ".join(visible.split())
    if limit is not None and (len(visible) > limit or len(head) < len(text)):
        visible = visible[: max(0, limit - 1)] + "…"
    return visible


def html(text: str, *, limit: int | None = None, lines: bool = False) -> str:
    """Escape text for an HTML element or a quoted attribute."""
    return html_module.escape(plain(text, limit=limit, lines=lines), quote=True)


def markdown(text: str, *, limit: int | None = None) -> str:
    """Escape text for a Markdown line or table cell: no markup, links or mentions."""
    bare = _MARKDOWN.sub(r"\\\1", plain(text, limit=limit))
    bare = html_module.escape(bare, quote=False)
    bare = bare.replace("://", "&#58;//").replace("@", "&#64;").replace("www.", "www&#46;")
    return _MARKDOWN_START.sub(r"\1\\\2", bare)


def unlinked(text: str, *, limit: int | None = None) -> str:
    """Like `markdown`, for renderers that look for links in decoded text, such as Streamlit's.

    An invisible word joiner interrupts each web and mail address.
    """
    escaped = markdown(text, limit=limit)
    for mark in ("&#58;", "www", "&#64;"):
        escaped = escaped.replace(mark, f"{mark}\u2060")
    return escaped


def code_span(text: str, *, limit: int | None = None) -> str:
    """Make a Markdown code span that is safe inside a table cell."""
    bare = plain(text, limit=limit)
    longest = max((len(ticks) for ticks in re.findall("`+", bare)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{bare.replace('|', chr(92) + '|')}{pad}{fence}" if bare else ""


def json_bytes(data: object, *, indent: bool = False) -> bytes:
    """Serialize to JSON that is safe to print: invisible characters are escaped.

    NaN and infinities become null. Lone surrogates, which UTF-8 cannot encode, become "?".
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
