"""`grpodoctor attach`."""

import json

import pytest

from grpodoctor.hooks import adapter
from tests.cli import in_process


class Small:
    framework = "small"
    verified_versions = ("1.0", "2.0")
    instructions = "import grpodoctor\ngrpodoctor.attach(trainer)\n"


@pytest.fixture(autouse=True)
def adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "adapters", lambda: {"small": Small})


def test_the_lines_of_a_framework_are_printed() -> None:
    done = in_process.run("attach", "--framework", "small")
    assert done.stdout.splitlines() == [
        "small, verified on 1.0, 2.0",
        "  import grpodoctor",
        "  grpodoctor.attach(trainer)",
    ]


def test_without_a_framework_all_are_listed_and_any_loop() -> None:
    shown = in_process.run("attach").stdout
    assert shown.startswith("small, verified on")
    assert "any other loop in torch" in shown


def test_an_unknown_framework_is_one_line() -> None:
    done = in_process.run("attach", "--framework", "smal")
    assert done.returncode == 2
    assert "did you mean small?" in done.stderr


def test_json() -> None:
    (entry,) = json.loads(in_process.run("attach", "--json").stdout)
    assert entry["framework"] == "small"
