import html
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpodoctor.support import safe_text as escape
from tests.report.simulated import HOSTILE

ACTIVE = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u202e", "\u2066", "\u200f"]


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jcleared", "cleared"),
        ("a\r\nb\tc", "a b c"),
        ("left\u202egnol", "leftgnol"),
        ("nul\x00 bell\x07", "nul bell"),
        ("unfinished \x1b[", "unfinished"),
        ("lone \udcff surrogate", "lone surrogate"),
        ("naïve 日本 ✓", "naïve 日本 ✓"),
    ],
)
def test_terminal_sequences_and_hidden_characters_are_removed(text, visible):
    assert escape.plain(text) == visible


@given(st.text())
def test_no_control_character_remains(text):
    assert not set(escape.plain(text)) & set(ACTIVE)
    assert not set(escape.plain(text, lines=True)) & (set(ACTIVE) - {"\n", "\t"})


@given(st.text(), st.integers(1, 50))
def test_a_limit_is_kept(text, limit):
    assert len(escape.plain(text, limit=limit)) <= limit


def test_cutting_a_long_text_reads_only_its_head():
    assert escape.plain("x" * 10_000_000, limit=10) == "x" * 9 + "…"


def test_html_has_no_tag_left_and_no_quote_to_end_an_attribute():
    safe = escape.html(HOSTILE + "\"'")
    assert not set("<>\"'") & set(safe)


@pytest.mark.parametrize("start", ["# head", "- item", "1. item", "> quote", "+ x", "= y", "| a |"])
def test_markdown_text_starts_no_block(start):
    assert escape.markdown(start)[0] in "\\&1"
    assert not escape.markdown(start).startswith("1. ")


def test_markdown_holds_no_link_mention_or_markup():
    safe = escape.markdown("[a](http://x) @team www.a.b **b** <b> ~~x~~")
    assert "://" not in safe
    assert "@" not in safe
    assert "www." not in safe
    assert "<" not in safe
    assert "\\[a\\]" in safe
    assert "\\*\\*b" in safe


def test_unlinked_text_holds_no_address_once_decoded():
    decoded = html.unescape(escape.unlinked("http://x.y https://x.y www.a.b name@a.b"))
    assert not re.search(r"https?://|www\.|\w@\w", decoded)
    assert escape.plain(decoded) == "http://x.y https://x.y www.a.b name@a.b"


@pytest.mark.parametrize("text", ["plain", "with ` tick", "`` two", "a|b"])
def test_a_code_span_cannot_be_left(text):
    span = escape.code_span(text)
    fence = span[: len(span) - len(span.lstrip("`"))]
    assert span.endswith(fence)
    assert fence not in span[len(fence) : -len(fence)]


@given(st.recursive(st.text() | st.floats() | st.integers(-9, 9) | st.none(), st.lists))
def test_json_is_valid_and_has_no_control_characters(data):
    dumped = escape.json_bytes({"data": data}).decode()
    assert not set(dumped) & set(ACTIVE)
    json.loads(dumped, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_json_escapes_hidden_characters_and_keeps_them():
    text = "\x1b[31m\u202e\x9b\U000e0041 ok"
    assert json.loads(escape.json_bytes([text])) == [text]
    assert json.loads(escape.json_bytes([math.nan, math.inf])) == [None, None]
    assert json.loads(escape.json_bytes({"lone": "\udcff"})) == {"lone": "?"}
