"""Keeps the worst phrases out of everything that users and contributors read. Extend `PHRASES`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PHRASES = (
    "for want of",
    "in want of",
    "anew",
    "lest",
    "hitherto",
    "thereof",
    "whereof",
    "therein",
    "wherein",
    "gone on with",
    "goes on with",
    "nobody",
    "somebody",
    "whoever",
    "told of",
    "told by",
    "is told",
    "are told",
    "was told",
    "were told",
    "no key of",
    "said by",
    "of ours",
    "of theirs",
    "one's own",
    "the other's",
    "no finding is no health",
)
_PATTERN = re.compile(rf"\b(?:{'|'.join(map(re.escape, PHRASES))})\b", re.IGNORECASE)
_FOLDERS = (("grpodoctor", "py"), ("probes", "py"), ("examples", "*"), ("docs", "md"))
SOURCES = sorted(
    path for folder, suffix in _FOLDERS for path in (ROOT / folder).rglob(f"*.{suffix}")
) + sorted(ROOT.glob("*.md"))


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each string of a Python file, or of each line of another file."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, " ".join(node.value.split())


def test_no_phrase_needs_a_second_reading() -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{line}: {text[:100]}"
        for path in SOURCES
        for line, text in texts(path)
        if _PATTERN.search(text)
    ]
    assert not hits


def test_the_pattern_sees_a_phrase() -> None:
    assert _PATTERN.search("What is told of a run")
    assert not _PATTERN.search("A retold story")
