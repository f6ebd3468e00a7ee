"""`grpodoctor recipe`: the trainer's algorithm variants and presets, and their pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.cli.options import JsonOption, PageFormat, PageFormatOption, page_format
from grpodoctor.cli.pages import json_text

if TYPE_CHECKING:
    from grpodoctor.trainer.recipes import Page


def recipe(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Variant or preset, such as dapo or losses/dcpo. \\[default: list all]",
        ),
    ] = None,
    output_format: PageFormatOption = PageFormat.text,
    as_json: JsonOption = False,
) -> None:
    """List losses, advantages, corrections and presets, or print the page of one.

    The Markdown list contains every page.
    """
    output_format = page_format(output_format, as_json)
    from grpodoctor.trainer.recipes import families, page_of

    if name is None:
        print(_LISTS[output_format](families()))
    else:
        print(_PAGES[output_format](page_of(name)))


def _list_text(families: Mapping[str, tuple[Page, ...]]) -> str:
    width = max(len(page.name) for pages in families.values() for page in pages)
    blocks = [
        "\n".join([family or "other", *(f"  {p.name:<{width}}  {p.headline}" for p in pages)])
        for family, pages in families.items()
    ]
    return "\n\n".join(blocks)


def _list_json(families: Mapping[str, tuple[Page, ...]]) -> str:
    return json_text([_detail(page) for pages in families.values() for page in pages])


def _list_markdown(_: Mapping[str, tuple[Page, ...]]) -> str:
    from grpodoctor.trainer.recipes import markdown

    return markdown().rstrip("\n")


def _detail(page: Page) -> dict[str, object]:
    return {
        "name": page.name,
        "family": page.family,
        "summary": page.headline,
        "sections": dict(page.sections()),
    }


def _page_text(page: Page) -> str:
    from grpodoctor.trainer.recipes import same_name

    text = f"{page.name}\n\n{page.docstring}"
    if others := same_name(page):
        text += f"\n\nSee also\n    {', '.join(other.full_name for other in others)}"
    return text


def _page_markdown(page: Page) -> str:
    from grpodoctor.trainer.recipes import page_markdown

    return page_markdown(page).rstrip("\n")


_LISTS: dict[PageFormat, Callable[[Mapping[str, tuple[Page, ...]]], str]] = {
    PageFormat.text: _list_text,
    PageFormat.markdown: _list_markdown,
    PageFormat.json: _list_json,
}
_PAGES: dict[PageFormat, Callable[[Page], str]] = {
    PageFormat.text: _page_text,
    PageFormat.markdown: _page_markdown,
    PageFormat.json: lambda page: json_text(_detail(page)),
}
