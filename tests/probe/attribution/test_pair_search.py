"""Which two changes are computed together, and what they are called."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.edit_effects import EffectMemory
from grpodoctor.probe.attribution.search.pair_search import Change, PairSearch
from grpodoctor.probe.attribution.tokens import of_columns
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.contract import Processing

TOKENS = 600
RANDOM = np.random.default_rng(3)
BASE = np.full(TOKENS, -2.0)
EFFECTS = {f"edit{n}": RANDOM.normal(size=TOKENS) / 3 for n in range(60)}


class Learner:
    """A learner whose edits have effects that nearly add up, and a number that is not linear."""

    def __init__(self) -> None:
        self.effects, self.passes = EffectMemory(), 0
        self.has_passes, self.limit = True, 1e-8
        self.pair_searches: set[str] = set()

    def scores(self, edits: Any) -> np.ndarray:
        moved = np.zeros(TOKENS)
        for name, content in edits:
            value = json.loads(content)
            moved = moved + EFFECTS[name] * (np.log(value) if isinstance(value, float) else 1.0)
        return np.asarray(BASE + 2 * np.tanh(moved / 2))

    def score_edits(self, _setup: Any, edits: Any, _folder: Any = None) -> list[np.ndarray]:
        self.passes += len(edits)
        return [self.scores(one) for one in edits]

    def sub_sample(self, _variant: Any) -> tuple[Path, np.ndarray]:
        return Path("sample"), np.arange(TOKENS)

    def is_loud(self, gap: float) -> bool:
        return gap > self.limit

    def vary(self, variant: Variant, **changes: Any) -> Variant:
        tokens = variant.tokens.with_learner(self.scores(changes["edits"]))
        return Variant(variant.setup, tokens)


def searched(*true: tuple[str, str], gap_N: np.ndarray | None = None) -> tuple[Any, Learner]:
    learner = Learner()
    engine: Any = SimpleNamespace(key="learner")
    setup = Setup(engine, Processing())
    tokens = of_columns(BASE, learner.scores(true) if gap_N is None else BASE + gap_N)
    for name in EFFECTS:
        for value in ("1.5", "3.0") if name in ("edit7", "edit8") else ("true",):
            moved = learner.scores([(name, value)]) - BASE
            learner.effects.note(setup, Path("sample"), (name, value), moved)
    found: Any = PairSearch(learner, Variant(setup, tokens), None).best()  # type: ignore[arg-type]
    return found, learner


def test_two_edits_are_found_with_their_number() -> None:
    found, learner = searched(("edit3", "true"), ("edit7", "2.4"))
    assert found is not None
    edits = dict(found.after.setup.edits)
    assert set(edits) == {"edit3", "edit7"}
    assert float(edits["edit7"]) == pytest.approx(2.4, rel=1e-3)
    assert {change.edit[0] for change in (found.first, found.second)} == set(edits)
    assert learner.passes < 200


def test_two_numbers_are_fitted_together() -> None:
    found, _ = searched(("edit7", "2.4"), ("edit8", "1.2"))
    assert found is not None
    edits = {name: float(value) for name, value in found.after.setup.edits}
    assert edits == {"edit7": pytest.approx(2.4, rel=1e-3), "edit8": pytest.approx(1.2, rel=1e-3)}


def test_a_gap_of_other_kinds_has_no_pair() -> None:
    found, learner = searched(gap_N=np.random.default_rng(8).normal(size=TOKENS) / 3)
    assert found is None
    assert learner.passes == 0


@pytest.mark.parametrize(
    ("edit", "place", "key"),
    [
        (("window", "8"), "window", ("window", "8")),
        (("attention_scale", "0.5"), "attention_scale", ("attention_scale", "")),
        (("setting", '["eps", 0.1]'), "setting eps", ("setting", '["eps"]')),
        (("logit_bias", "[[56, 0.5]]"), "logit_bias 56", ("logit_bias 56", "")),
        (("operation", '["mlp#1:sigmoid", "skipped"]'), "",
         ("operation", '["mlp#1:sigmoid", "skipped"]')),
    ],
)  # fmt: skip
def test_changes_have_a_place(edit: tuple[str, str], place: str, key: tuple[str, str]) -> None:
    assert (Change(edit).place, Change(edit).key) == (place, key)
    assert Change(None, 1.1).place == "temperature"
