"""What the search for the causes of a pair takes."""

from __future__ import annotations

import os
from typing import Any

import pytest

from grpodoctor.probe.forecast import search_seconds
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.speeds import Speed

LEARNER = EngineSpec.of("transformers", "model", {})


class KnownSpeeds:
    """Each engine scores this number of tokens a second."""

    def __init__(self, tokens: float) -> None:
        self.tokens = tokens

    def of(self, _engine: EngineSpec) -> Speed:
        return Speed(1.0, self.tokens, self.tokens, is_measured=True)


def forecast(tokens_per_second: float) -> float:
    speeds: Any = KnownSpeeds(tokens_per_second)
    seconds = search_seconds([LEARNER], 1000, speeds)
    assert seconds is not None
    return seconds


@pytest.mark.parametrize(("load", "factor"), [(0.0, 1.0), (2.0, 1.0), (12.0, 6.0)])
def test_passes_of_a_small_model_take_their_own_time(
    monkeypatch: pytest.MonkeyPatch, load: float, factor: float
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    assert forecast(1e9) == pytest.approx(6 + 1750 * 0.035 * factor, rel=0.01)


def test_passes_of_a_large_model_take_the_time_of_their_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    assert forecast(100.0) == pytest.approx(6 + 300 + 1750 * 5.12, rel=0.01)
