"""Recipes: every variant and preset has a page, and the committed document has them all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from grpodoctor.cli.main import app
from grpodoctor.errors import ConfigError
from grpodoctor.trainer.algorithms.names import Family, names
from grpodoctor.trainer.config.presets import preset_names
from grpodoctor.trainer.recipes import Page, families, markdown, page_of

DOCUMENT = Path(__file__).parents[3] / "docs" / "recipes.md"
EVERY = [page for pages in families().values() for page in pages]
VARIANTS = [page for page in EVERY if page.family != "presets"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["recipe", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_committed_document_is_the_current_one() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == run("--output-format", "markdown"), "make docs"


@pytest.mark.parametrize("family", get_args(Family))
def test_every_registered_variant_has_a_page(family: Family) -> None:
    assert {page.name for page in families()[family]} == set(names(family))


@pytest.mark.parametrize("page", VARIANTS, ids=lambda page: page.full_name)
def test_a_page_says_what_it_is_how_it_computes_and_where_it_is_from(page: Page) -> None:
    assert page.headline.endswith(".")
    sections = dict(page.sections())
    assert list(sections)[-1] == "Source"
    wanted = {"Formula", "Settings", "Effect on metrics", "Other implementations"}
    assert (wanted if page.family else {"Formula"}) <= set(sections)
    assert all(sections.values())


def test_the_document_holds_every_page_and_every_preset() -> None:
    text = markdown()
    headings = [line.strip("# `") for line in text.splitlines() if line.startswith("### ")]
    assert headings == [page.name for page in EVERY]
    assert [page.name for page in families()["presets"]] == list(preset_names())
    assert "- `loss.clip_high=0.28`" in text


def test_every_page_of_an_earlier_release_still_exists() -> None:
    assert {page.name for page in families()[""]} >= {
        *("critic", "positive_nll", "sequence_mask", "verbalized")
    }
    assert {"entropy", "filters", "shaping"} <= set(families())


def test_a_page_is_found_by_its_name_and_family() -> None:
    assert run("losses/dcpo").startswith("dcpo\n\nDCPO's dynamic clip")
    detail = json.loads(run("icepop", "--output-format", "json"))
    assert detail["family"] == "corrections"
    assert "2510.18855" in detail["sections"]["Source"]
    with pytest.raises(ConfigError, match="none is the name of 3 recipes") as error:
        page_of("none")
    assert "advantages/none" in str(error.value)
    with pytest.raises(ConfigError, match=r"did you mean .*gspo"):
        page_of("gpso")


def test_a_preset_is_a_page_with_its_settings() -> None:
    page = run("dapo")
    assert "arXiv 2503.14476" in page
    assert "loss.clip_high=0.28" in page
    assert "rollout.dynamic_sampling=true" in page


def test_a_variant_precedes_the_preset_of_the_same_name_and_mentions_it() -> None:
    assert page_of("gspo").family == "losses"
    assert "presets/gspo" in run("gspo")
    assert "loss.kind=gspo" in run("presets/gspo")
    with pytest.raises(ConfigError, match="use one of advantages/scalerl, losses/scalerl, presets"):
        page_of("scalerl")


def test_recipes_print_without_torch() -> None:
    program = (
        "import sys; from grpodoctor.trainer.recipes import markdown; markdown()\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
