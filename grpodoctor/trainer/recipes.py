"""The trainer's recipes: pages of all algorithm variants and presets.

A variant's page is the docstring of its module. It is read from the source file without importing
it, so recipes print without torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from grpodoctor.errors import ConfigError
from grpodoctor.support.suggestions import as_spelled, near_names
from grpodoctor.trainer.config.presets import preset_names, preset_of

_TRAINER = Path(__file__).parent
_ALGORITHMS = _TRAINER / "algorithms"
_TITLE = re.compile(r"^[A-Z][\w ]*$")
_SOURCE = "Source"
_PRESETS = "presets"
_INTRODUCTION = """# Recipes

The variants of the bundled trainer, one page each (the docstring of its file), and the presets that
combine them. `make docs` regenerates this document.

Notation: the policies are `new` (the learner, the only one with a gradient), `old` (the learner at
the start of the batch), `sampler` (the engine that generated the tokens) and `reference` (the
frozen model of a KL penalty). A is an advantage, r an importance ratio. Losses are minimized.
Logarithms are natural.
"""


class Page(NamedTuple):
    """The page of a variant or preset."""

    name: str
    """As in the configuration, or the module's name."""
    family: str
    """`losses`, `advantages`, ..., `presets`; empty for pages outside a family."""
    docstring: str

    @property
    def headline(self) -> str:
        """The first paragraph on one line."""
        return " ".join(self.docstring.split("\n\n", 1)[0].split())

    @property
    def full_name(self) -> str:
        """The name with its family, such as `losses/dcpo`."""
        return f"{self.family}/{self.name}" if self.family else self.name

    def sections(self) -> Iterator[tuple[str, str]]:
        """Title and text of each section, with the original line breaks."""
        title, lines = "", list[str]()
        for line in self.docstring.splitlines():
            if _TITLE.match(line):
                if title:
                    yield title, _dedented(lines)
                title, lines = line, []
            elif title:
                lines.append(line)
        if title:
            yield title, _dedented(lines)


@lru_cache
def families() -> Mapping[str, tuple[Page, ...]]:
    """The pages by family, both sorted; then pages outside a family, under ""; then presets."""
    by_family: dict[str, list[Page]] = {}
    for path in sorted(_TRAINER.rglob("*.py"), key=lambda path: path.stem):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        page = Page(path.stem, _family(path), docstring)
        if any(title == _SOURCE for title, _ in page.sections()):
            by_family.setdefault(page.family, []).append(page)
    ordered = sorted(by_family, key=lambda family: (family == "", family))
    presets = tuple(_preset_page(name) for name in preset_names())
    return {**{family: tuple(by_family[family]) for family in ordered}, _PRESETS: presets}


def page_of(name: str) -> Page:
    """The page of that name; `losses/dcpo` tells equal names of two families apart.

    A bare name that a variant shares with a preset is the variant's.

    Raises:
        ConfigError: if there is no such page, or several.
    """
    pages = [page for pages in families().values() for page in pages]
    known = dict.fromkeys(each for page in pages for each in (page.name, page.full_name))
    name = as_spelled(name, known)
    if name not in known:
        near = near_names(name, known)
        remedy = f"did you mean {' or '.join(near)}?" if near else "list them: grpodoctor recipe"
        raise ConfigError(f"unknown recipe {name[:60]!r}", remedy=remedy)
    matching = [page for page in pages if name in (page.name, page.full_name)]
    variants = [page for page in matching if page.family != _PRESETS] or matching
    if len(variants) > 1:
        raise ConfigError(
            f"{name} is the name of {len(matching)} recipes",
            remedy=f"use one of {', '.join(page.full_name for page in matching)}",
        )
    return variants[0]


def same_name(page: Page) -> list[Page]:
    """The other pages of the same name."""
    return [
        other
        for pages in families().values()
        for other in pages
        if other.name == page.name and other.family != page.family
    ]


def markdown() -> str:
    """All recipes as one Markdown document."""
    parts = [_INTRODUCTION]
    for family, pages in families().items():
        parts.append(f"## {heading(family)}\n")
        if family == _PRESETS:
            parts.append("Use a preset with `grpodoctor train --preset NAME`.\n")
        parts += [page_markdown(page, "###") for page in pages]
    return "\n".join(parts)


def page_markdown(page: Page, level: str = "#") -> str:
    """One page: its name as a heading of that level, its section titles in bold."""
    lines = [f"{level} `{page.name}`", "", _escaped(page.headline), ""]
    for title, text in page.sections():
        if page.family == _PRESETS:
            lines += [*(f"- `{line}`" for line in text.splitlines()), ""]
        else:
            lines += [f"**{title}.** {_escaped(text)}", ""]
    return "\n".join(lines)


def heading(family: str) -> str:
    """The title of a family."""
    return {"kl": "KL estimators", "": "Other"}.get(family, family.replace("_", " ").capitalize())


def _family(path: Path) -> str:
    """The folder below `algorithms` that holds a module; empty if there is none."""
    parts = path.relative_to(_ALGORITHMS).parts if path.is_relative_to(_ALGORITHMS) else ()
    return parts[0] if len(parts) > 1 else ""


def _preset_page(name: str) -> Page:
    preset = preset_of(name)
    settings = "\n".join(f"    {assignment}" for assignment in preset.assignments())
    return Page(name, _PRESETS, f"{preset.summary}.\n\nSettings\n{settings}")


def _dedented(lines: list[str]) -> str:
    return "\n".join(line.strip() for line in lines).strip()


def _escaped(text: str) -> str:
    """Text without characters that Markdown would read as markup."""
    return re.sub(r"([*_\[\]<>|])", r"\\\1", text)
