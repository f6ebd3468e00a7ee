"""`grpodoctor recipe`: the trainer's algorithm variants and presets, and their pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpodoctor.cli.options import (
    JsonOption,
    PageFormat,
    PageFormatOption,
    RunConfigOption,
    page_format,
)
from grpodoctor.cli.pages import json_text, print_page

if TYPE_CHECKING:
    from grpodoctor.frameworks.framework import Framework
    from grpodoctor.runs.reading.opening import OpenedRun
    from grpodoctor.trainer.config.presets import Preset
    from grpodoctor.trainer.recipes import Page
    from grpodoctor.vocabulary.knobs import Setting


def recipe(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Variant or preset, such as dapo or losses/dcpo. \\[default: list all]",
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            help="Framework in whose settings a preset is printed (trl, verl, ...). "
            "\\[default: that of --run]",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="Run or log that is to take the preset; its length limit and batch size are used.",
            show_default=False,
        ),
    ] = None,
    run_config: RunConfigOption = None,
    output_format: PageFormatOption = PageFormat.text,
    as_json: JsonOption = False,
) -> None:
    """List losses, advantages, corrections and presets, or print the page of one.

    The Markdown list contains every page. With --framework or --run, a preset is printed as the
    settings of that framework, with what the framework lacks.
    """
    output_format = page_format(output_format, as_json)
    from grpodoctor.trainer.recipes import families, page_of

    if framework is not None or run is not None or run_config is not None:
        preset = _preset_named(name)
        print_page(
            _in_framework(preset, *_target(framework, run, run_config), output_format),
            output_format,
        )
    elif name is None:
        print_page(_LISTS[output_format](families()), output_format)
    else:
        print_page(_PAGES[output_format](page_of(name)), output_format)


def _list_text(families: Mapping[str, tuple[Page, ...]]) -> str:
    width = max(len(page.name) for pages in families.values() for page in pages)
    blocks = [
        "\n".join([family or "other", *(f"  {p.name:<{width}}  {p.headline}" for p in pages)])
        for family, pages in families.items()
    ]
    return "\n\n".join(blocks)


def _list_json(families: Mapping[str, tuple[Page, ...]]) -> str:
    return json_text([detail(page) for pages in families.values() for page in pages])


def _list_markdown(_: Mapping[str, tuple[Page, ...]]) -> str:
    from grpodoctor.trainer.recipes import markdown

    return markdown().rstrip("\n")


def detail(page: Page) -> dict[str, Any]:
    """The page as JSON."""
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


def _target(
    name: str | None, run: Path | None, run_config: Path | None
) -> tuple[Framework, Mapping[str, Setting]]:
    """The framework whose settings are printed, and the knobs of the run as far as they are known.

    Raises:
        ConfigError: if the framework is unknown, or there is a config but no run.
        RunError: if the run cannot be read.
    """
    from grpodoctor.errors import ConfigError
    from grpodoctor.frameworks.registry import (
        configurable_framework_named,
        configurable_frameworks,
        find_framework,
    )
    from grpodoctor.runs.reading.opening import open_run
    from grpodoctor.runs.reading.read_options import ReadOptions

    if run is None:
        if name is None or run_config is not None:
            raise ConfigError("--run-config belongs to a run", remedy="add --run LOG")
        return configurable_framework_named(name), {}
    opened = open_run(run, ReadOptions(run_config=run_config))
    manifest = opened.manifest
    if name is None and find_framework(manifest.framework, configurable_frameworks()) is None:
        raise ConfigError(
            "the run does not show which framework wrote it",
            where=str(run)[:200],
            remedy="add --framework NAME (trl, verl, ...)",
        )
    return configurable_framework_named(name or manifest.framework), _knobs_of(opened)


def _knobs_of(run: OpenedRun) -> Mapping[str, Setting]:
    """The run's knobs; truncated responses show the length limit where its config does not."""
    from grpodoctor.monitor.advice import with_length_limit
    from grpodoctor.vocabulary.values import scalar

    known: Mapping[str, Setting] = run.manifest.knobs
    if "max_length" in known:
        return known
    for step in run.steps:
        readings = {name: scalar(value) for name, value in step.values.items()}
        known = with_length_limit(known, {k: v for k, v in readings.items() if v is not None})
        if "max_length" in known:
            break
    return known


def _preset_named(name: str | None) -> Preset:
    """The preset of a name.

    Raises:
        ConfigError: if no preset is named, or the preset is unknown.
    """
    from grpodoctor.errors import ConfigError
    from grpodoctor.trainer.config.presets import preset_names, preset_of

    if name is None:
        names = ", ".join(preset_names())
        raise ConfigError("no preset was named", remedy=f"name one of {names}")
    return preset_of(name.removeprefix("presets/"))


def _in_framework(
    preset: Preset,
    framework: Framework,
    knobs: Mapping[str, Setting],
    output_format: PageFormat,
) -> str:
    """A preset in a framework's settings."""
    from grpodoctor.trainer.config.preset_translation import translate

    translated = translate(preset, framework, knobs)
    if output_format is PageFormat.json:
        return json_text(
            {"preset": preset.name, "framework": framework.name, **translated.to_json()}
        )
    title = f"{preset.name} in {framework.knobs.title}"
    settings = [line.commented_line for line in translated.settings]
    parts = {
        f"{framework.knobs.title} does this by itself": translated.by_itself,
        f"{framework.knobs.title} lacks": translated.lacking,
        f"Not translated; check whether {framework.knobs.title} has an equivalent": (
            translated.untranslated
        ),
    }
    if output_format is PageFormat.markdown:
        blocks = [f"# {title}", preset.summary, "\n".join(["```text", *settings, "```"])]
        blocks += [
            "\n".join([f"**{each}.**", "", *(f"- {x}" for x in parts[each])])
            for each in parts
            if parts[each]
        ]
        return "\n\n".join(blocks)
    pasted = "\n".join(f"    {line}" for line in settings)
    blocks = [title, preset.summary, pasted or "    nothing to set"]
    blocks += [
        "\n".join([f"{each}:", *(f"    {x}" for x in parts[each])]) for each in parts if parts[each]
    ]
    return "\n\n".join(blocks)


_LISTS: dict[PageFormat, Callable[[Mapping[str, tuple[Page, ...]]], str]] = {
    PageFormat.text: _list_text,
    PageFormat.markdown: _list_markdown,
    PageFormat.json: _list_json,
}
_PAGES: dict[PageFormat, Callable[[Page], str]] = {
    PageFormat.text: _page_text,
    PageFormat.markdown: _page_markdown,
    PageFormat.json: lambda page: json_text(detail(page)),
}
