"""The formulary: the pages of all variants and presets, as one Markdown document.

A page is the docstring of the variant's module, read from its source: nothing is imported, so that
the formulary prints without torch.
"""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from grpodoctor.errors import ConfigError
from grpodoctor.support.suggestions import check_name
from grpodoctor.trainer.config.presets import Preset, preset_names, preset_of

_HERE = Path(__file__).parent
_TITLE = re.compile(r"^[A-Z][\w ]*$")
_SOURCE = "Source"
_INTRODUCTION = """# Formulary

What the bundled trainer can switch on: one page for each variant, which is the docstring of its own
file, and the presets that compose them. `make docs` writes this document anew.

Notation: the policies are `new` (the learner, the only one with a gradient), `old` (the learner
when the batch began), `sampler` (the engine that generated the tokens) and `reference` (the frozen
model of a KL penalty). A is an advantage, r a ratio, losses are minimised, logarithms are natural.
"""


class Page(NamedTuple):
    """One variant's manual."""

    name: str
    """As the configuration spells it, or what the module is called."""
    family: str
    """The folder it stands in; empty for what goes beside any variant."""
    docstring: str

    @property
    def headline(self) -> str:
        """The first paragraph on one line."""
        return " ".join(self.docstring.split("\n\n", 1)[0].split())

    def sections(self) -> Iterator[tuple[str, str]]:
        """Title and text of each section, paragraphs and lines as they stand."""
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


def families() -> dict[str, tuple[Page, ...]]:
    """The pages by family, both sorted; what stands beside the families comes last, under ""."""
    found: dict[str, tuple[Page, ...]] = {}
    for package in sorted(_HERE.iterdir()):
        if (package / "__init__.py").exists():
            pages = tuple(_pages(package, package.name))
            if pages:
                found[package.name] = pages
    return found | {"": tuple(_pages(_HERE, ""))}


def page_of(name: str) -> Page:
    """The page of that name; a family before it (`losses/dcpo`) tells two of one name apart.

    Raises:
        ConfigError: if there is none, or there are several.
    """
    every = [page for pages in families().values() for page in pages]
    check_name(name, [form for page in every for form in _spellings(page)], "page")
    fitting = [page for page in every if name in _spellings(page)]
    if len(fitting) > 1:
        raise ConfigError(
            f"there are {len(fitting)} pages {name}",
            remedy=f"use one of {', '.join(f'{page.family}/{page.name}' for page in fitting)}",
        )
    return fitting[0]


def markdown() -> str:
    """The whole formulary."""
    parts = [_INTRODUCTION]
    for family, pages in families().items():
        parts.append(f"## {_heading(family)}\n")
        parts += [page_markdown(page, "###") for page in pages]
    parts.append("## Presets\n")
    parts.append("`grpodoctor train --preset NAME`; what it sets is printed when a run begins.\n")
    parts += [_preset_markdown(preset_of(name)) for name in preset_names()]
    return "\n".join(parts)


def page_markdown(page: Page, level: str = "#") -> str:
    """One page, its title a heading of that level, its sections bold."""
    lines = [f"{level} `{page.name}`", "", _escaped(page.headline), ""]
    for title, text in page.sections():
        lines += [f"**{title}.** {_escaped(text)}", ""]
    return "\n".join(lines)


def _pages(folder: Path, family: str) -> Iterator[Page]:
    """Of all modules whose docstring cites a source: that is what makes it a page."""
    for module in sorted(each.name for each in pkgutil.iter_modules([str(folder)])):
        path = folder / f"{module}.py"
        if path.exists():
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            page = Page(module, family, docstring)
            if any(title == _SOURCE for title, _ in page.sections()):
                yield page


def _spellings(page: Page) -> list[str]:
    return [page.name, f"{page.family}/{page.name}"] if page.family else [page.name]


def _heading(family: str) -> str:
    return family.replace("_", " ").capitalize() if family else "Beside any of them"


def _preset_markdown(preset: Preset) -> str:
    settings = "\n".join(f"- `{assignment}`" for assignment in preset.assignments())
    return f"### `{preset.name}`\n\n{_escaped(preset.summary)}\n\n{settings}\n"


def _dedented(lines: list[str]) -> str:
    return "\n".join(line.strip() for line in lines).strip()


def _escaped(text: str) -> str:
    """Text in which Markdown would take nothing for markup."""
    return re.sub(r"([*_\[\]<>|])", r"\\\1", text)
