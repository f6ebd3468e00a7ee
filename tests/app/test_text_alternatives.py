"""Each chart and table has a text alternative, and each input a label, in all pages."""

import ast
from collections.abc import Iterator
from pathlib import Path

APP = Path(__file__).parents[2] / "app"
DRAWN = {"plotly_chart", "dataframe", "image"}
INPUTS = {
    *("button", "checkbox", "multiselect", "number_input", "radio", "segmented_control"),
    *("selectbox", "slider", "text_area", "text_input", "toggle"),
}


def calls(names: set[str]) -> Iterator[tuple[str, ast.Call]]:
    """Where the pages call a method of these names, and the call."""
    for path in sorted(APP.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in names:
                yield f"{path.name}:{node.lineno}", node


def test_what_is_drawn_has_a_text_alternative() -> None:
    drawn = list(calls(DRAWN))
    silent = [place for place, call in drawn if "alt" not in {each.arg for each in call.keywords}]
    assert len(drawn) >= 10
    assert silent == []


def test_an_input_has_a_label() -> None:
    labels = [(place, call.args[0]) for place, call in calls(INPUTS)]
    assert len(labels) >= 15
    empty = [
        place for place, label in labels if isinstance(label, ast.Constant) and not label.value
    ]
    assert empty == []
