"""Known kinds are tried before generic edits, on top of each other (docs/attribution-method.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from grpodoctor.probe.attribution import experiments
from grpodoctor.probe.attribution.edits import EditFamily
from grpodoctor.probe.attribution.experiments import Experiments
from grpodoctor.probe.attribution.investigate import investigate
from grpodoctor.probe.attribution.search.edit_search import EditSearch
from grpodoctor.probe.attribution.search.site_search import SiteSearch
from grpodoctor.probe.contract import Response
from grpodoctor.probe.engines.jobs import Job
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.attribution.scripted import case_of
from tests.probe.attribution.test_several_causes import (
    FIRST,
    HALF,
    LEARNER,
    SAMPLER,
    SECOND,
    TwoErrors,
    confidences,
    plain,
)


def test_an_imitation_gives_way_to_two_known_faults_before_generic_edits(tmp_path: Path) -> None:
    runner = TwoErrors(tmp_path, plain, sizes=(2.0, 2.0), offered=(FIRST, SECOND, HALF))
    with mock.patch.object(SiteSearch, "_estimates", autospec=True, return_value=None) as generic:
        found = investigate(runner, case_of(runner, SAMPLER, LEARNER))
    assert confidences(found) == {"activation": "proven", "qk-norm": "proven"}
    assert not generic.called


@pytest.mark.slow
def test_generic_edits_follow_if_known_kinds_leave_a_part(tmp_path: Path) -> None:
    runner = TwoErrors(tmp_path, plain, sizes=(0.5, 0.4), offered=(FIRST,))
    with mock.patch.object(SiteSearch, "_estimates", autospec=True, return_value=None) as generic:
        found = investigate(runner, case_of(runner, SAMPLER, LEARNER))
    assert generic.called
    assert "qk-norm" not in confidences(found)


def test_an_edit_of_sampling_that_closes_the_gap_spares_the_others(tmp_path: Path) -> None:
    tried: list[str] = []
    original = EditSearch._tried

    def noted(search: EditSearch, families: object, **options: object) -> object:
        listed = list(families)  # type: ignore[call-overload]
        tried.extend(family.name for family in listed)
        return original(search, listed, **options)  # type: ignore[arg-type]

    with (
        mock.patch.object(EditSearch, "_tried", noted),
        mock.patch("tests.probe.attribution.test_several_causes.FIRST", "typical_p"),
    ):
        runner = TwoErrors(tmp_path, plain, sizes=(0.5, 0.0), offered=("typical_p", SECOND))
        found = investigate(runner, case_of(runner, SAMPLER, LEARNER))
    assert confidences(found) == {"typical-p": "proven"}
    assert "typical_p" in tried
    assert SECOND not in tried


@dataclass
class AlsoGeneration(TwoErrors):
    """The second error acts only while the sampler generates."""

    generates: bool = field(default=True, init=False)
    """Until the first job: the case is drawn before."""

    def _done(self, engine: EngineSpec, job: Job) -> Path:
        self.generates = False
        return super()._done(engine, job)

    def seen(self, engine: EngineSpec, response: Response) -> Any:
        if engine.engine != "vllm" or self.generates:
            return super().seen(engine, response)
        whole = self.sizes
        self.sizes = (whole[0], 0.0)
        try:
            return super().seen(engine, response)
        finally:
            self.sizes = whole


@pytest.mark.slow
def test_what_explains_the_own_scores_is_kept_if_a_further_search_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault of generation leaves most of the gap, so no explanation leaves half as much."""
    monkeypatch.setattr(experiments, "MOST_EDIT_PASSES", 1)
    runner = AlsoGeneration(tmp_path, plain, sizes=(0.3, 1.5), offered=(FIRST,))
    found = investigate(runner, case_of(runner, SAMPLER, LEARNER))
    assert set(confidences(found)) == {"activation", "generation-path"}
    assert found.left == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("values", "is_found"), [(8, True), (40, False)])
def test_a_small_search_begins_without_passes(values: int, is_found: bool, tmp_path: Path) -> None:
    """The search for a first fault may have taken them all."""
    runner = TwoErrors(tmp_path, plain, sizes=(2.0, 0.0), offered=(FIRST,))
    tried = Experiments(runner, case_of(runner, SAMPLER, LEARNER))
    first = tried.first()
    tried.edit_passes = 10**6
    (family,) = tried.what_ifs(LEARNER)
    other = EditFamily("no_such_edit", tuple(range(values - len(family.values))), "choice")
    assert bool(EditSearch(tried, first).best([family, other])) == is_found
