"""Figures of tokens, differences of responses, and their colors."""

from __future__ import annotations

import math

import pytest

from grpodoctor.monitor.dashboard.probe_files import probe_files
from grpodoctor.monitor.dashboard.responses import (
    index_of,
    marked_differences,
    token_figures,
    token_pairs,
)
from grpodoctor.monitor.downsampled_series import Point
from grpodoctor.report.dashboard.part_figures import margin_chart, part_heat_map
from grpodoctor.report.dashboard.token_view import COLORINGS, colored_tokens, token_texts

ROLLOUT = {
    "token_ids": [10, 11, 12],
    "learner_logprobs": [math.log(0.5), math.log(0.9), math.nan],
    "sampler_logprobs": [math.log(0.25), math.log(0.9), math.log(0.1)],
    "entropies": None,
    "advantage": 1.0,
}
KNOBS = {"clip_low": 0.2, "clip_high": 0.2}


def test_the_figures_of_tokens():
    figures = token_figures(ROLLOUT, KNOBS)
    assert figures.ids == (10, 11, 12)
    assert figures.columns["ratio"] == (pytest.approx(2.0), pytest.approx(1.0), None)
    assert figures.columns["mismatch"] == (pytest.approx(0.25), pytest.approx(0.0), None)
    assert figures.columns["clipped"] == (1.0, 0.0, None)
    assert "entropy" not in figures.columns


def test_a_negative_advantage_clips_on_the_low_side():
    lower = {**ROLLOUT, "advantage": -1.0}
    assert token_figures(lower, KNOBS).columns["clipped"] == (0.0, 0.0, None)
    swapped = {**lower, "learner_logprobs": lower["sampler_logprobs"],
               "sampler_logprobs": lower["learner_logprobs"]}  # fmt: skip
    assert token_figures(swapped, KNOBS).columns["clipped"] == (1.0, 0.0, None)


def test_without_a_clip_range_or_an_advantage_clipping_is_unknown():
    assert "clipped" not in token_figures(ROLLOUT, {}).columns
    assert "clipped" not in token_figures({**ROLLOUT, "advantage": None}, KNOBS).columns


def test_a_response_without_tokens_has_no_figures():
    figures = token_figures({"advantage": 1.0, "token_ids": None}, KNOBS)
    assert figures.ids == ()
    assert figures.columns == {}


def test_columns_of_different_length_are_filled_up():
    figures = token_figures({**ROLLOUT, "sampler_logprobs": [0.0]}, KNOBS)
    assert all(len(column) == 3 for column in figures.columns.values())


def test_pairs_leave_out_what_is_not_finite():
    assert len(token_pairs([ROLLOUT, {"sampler_logprobs": None}])) == 2


def test_words_that_differ_are_marked():
    passages = marked_differences("the sum  is 12\nso done", "the sum is 13\nso done")
    assert "".join(passage.text for passage in passages) == "the sum  is 12\nso done"
    marked = "".join(passage.text for passage in passages if passage.is_different)
    assert "12" in marked
    assert "done" not in marked
    assert marked_differences("", "a") == []


def test_the_rest_of_a_long_response_is_kept():
    text = "word " * 5000
    assert "".join(passage.text for passage in marked_differences(text, "word")) == text


@pytest.mark.parametrize("coloring", COLORINGS)
def test_token_texts_are_escaped(coloring):
    figures = token_figures(ROLLOUT, KNOBS)
    page = colored_tokens(figures, ["<b>", '" onclick="x', "\u202e\x1b[31m"], coloring)
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert 'onclick="x' not in page
    assert "\u202e" not in page
    assert "\x1b" not in page


def test_the_built_in_model_has_texts_and_an_unknown_one_shows_ids():
    assert token_texts("builtin-tiny", [ord("7") - 30, 1]) == ["7", "⟨1⟩"]
    assert token_texts("no/such-model", [7, None]) == ["⟨7⟩", ""]


def test_a_cell_with_several_steps_shows_its_extreme():
    points = [Point(step, 0.9 if step == 777 else 0.1) for step in range(1000)]
    chart = part_heat_map("Churn", {"0": points, "1": points[:5]}, "layer", "light")
    assert chart is not None
    heat_map = chart.figure.data[0]
    assert max(value for value in heat_map.z[0] if value is not None) == 0.9
    assert heat_map.z[1][-1] is None
    assert chart.words == "Highest: 0.9 in layer 0 at step 777."


def test_no_readings_give_no_chart():
    assert part_heat_map("Churn", {}, "layer", "light") is None
    assert part_heat_map("Churn", {"0": [Point(1, math.nan)]}, "layer", "light") is None
    assert margin_chart({"0": [Point(1, 0.5)]}, {}, "dark") is None


def test_flips_are_matched_with_the_margin_of_the_same_step():
    flips = {"0": [Point(1, 0.5), Point(2, 0.25)]}
    chart = margin_chart(flips, {"0": [Point(2, 3.0)], "1": [Point(1, 9.0)]}, "light")
    assert chart is not None
    assert (list(chart.figure.data[0].x), list(chart.figure.data[0].y)) == ([3.0], [0.25])


def test_only_probe_files_below_the_paths_are_offered(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "probe.json").write_text("{}")
    (tmp_path / "other.json").write_text("{}")
    assert probe_files([tmp_path, tmp_path / "gone"]) == [tmp_path / "out" / "probe.json"]


def test_an_unknown_source_has_no_index():
    assert index_of(None) is None
