"""Pages of the documentation: their code is valid, their links lead somewhere, all are listed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]
_CODE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_of_a_page_is_valid_and_its_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for code in _CODE.findall(text):
        ast.parse(code)
    for link in _LINK.findall(text):
        address, _, anchor = link.partition("#")
        if "://" in address or address.startswith("mailto:"):
            continue
        target = page.parent / address if address else page
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    listed = {link for link in _LINK.findall(index) if link.endswith(".md")}
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")}
