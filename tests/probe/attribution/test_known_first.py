"""Known kinds are tried on top of each other before generic edits; see docs/attribution.md."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from grpodoctor.probe.attribution.investigate import investigate
from grpodoctor.probe.attribution.search.edit_search import EditSearch
from grpodoctor.probe.attribution.search.site_search import SiteSearch
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
