"""A probe's report on a terminal and as HTML: all of it, none of it hostile."""

from dataclasses import replace

import pytest

from grpodoctor.probe.results import Cell
from grpodoctor.report import probe_html, probe_text
from grpodoctor.report.probe_advice import advised
from tests.report.probed import CAUSE, REPLAYED, comparison, result

PAIR = replace(result(), cells=result().cells[:1])


def test_a_pair_is_told_whole() -> None:
    text = probe_text.render(PAIR, width=100)
    for part in ("PROVEN", "explains 97% of the gap", "3.00e-04", "7.00e-04 to 9.00e-04"):
        assert part in text
    assert "not made" in text
    assert "FAILED  control" in text
    assert "31.00%" in text  # an effect on training
    assert "n/a" in text  # a figure that cannot be
    assert "Experts: 5.00% of 6,144 tokens" in text
    assert "sampler -1.500, learner -0.900 nats" in text


def test_what_a_replay_has_left_of_the_gap_is_told() -> None:
    cell = replace(PAIR.cells[0], replayed=REPLAYED)
    held = replace(PAIR, cells=(cell,))
    told = "coverage 98.00%, agreement 100.00%) k3 goes from 3.00e-04 to 2.00e-05"
    assert told in " ".join(probe_text.render(held, width=100).split())
    assert told in probe_html.render(held)
    assert "replayed" not in probe_text.render(PAIR, width=100)


def test_a_grid_is_told_in_a_line_each_with_what_failed() -> None:
    text = probe_text.render(result(), width=120)
    assert text.count("precision") >= 4
    assert "failed: the engine died" in text
    assert "4 pairs measured, 1 failed" in text
    assert "passed  control" not in text


def test_nothing_hostile_reaches_a_terminal() -> None:
    text = probe_text.render(PAIR, width=100, colour=True)
    assert "\x1b[31m[bold]" not in text
    assert "\u202e" not in text


def test_nothing_hostile_reaches_the_page() -> None:
    page = probe_html.render(result())
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page


def test_the_page_holds_every_pair_and_what_failed() -> None:
    page = probe_html.render(result())
    for index in range(5):
        assert f'id="cell-{index}"' in page
    assert "the engine died" in page
    assert 'title="sampler -1.500, learner -0.900 nats"' in page


def test_a_result_without_any_cell_is_still_a_page() -> None:
    empty = replace(result(), cells=(), engines={})
    assert "0 pairs measured" in probe_html.render(empty)
    assert "0 pairs measured" in probe_text.render(empty)


def test_what_to_set_is_said_in_the_users_framework() -> None:
    text = probe_text.render(PAIR, width=100, framework="verl")
    assert "    algorithm.rollout_correction.rollout_is_threshold=2\n" in text
    page = probe_html.render(result(), framework="slime")
    assert "--tis-clip 2" in page
    assert "rollout_is_threshold" not in probe_text.render(PAIR, width=100)


def settings(cell: Cell, framework: str) -> dict[str, tuple[str, ...]]:
    """Title and lines of all that is advised for one cell."""
    return {each.title: each.lines for each in advised(PAIR, cell, framework)}


def found(*causes: str, **changes: object) -> Cell:
    named = tuple(replace(CAUSE, cause=cause) for cause in causes)
    return replace(PAIR.cells[0], causes=named, **changes)


@pytest.mark.parametrize("cause", ["prompt-ids", "raw-logprobs", "wrong-sampler", "temperature"])
def test_a_cause_that_no_weight_makes_up_for_gets_no_weights(cause: str) -> None:
    assert not any("importance" in title for title in settings(found(cause), "verl"))
    assert any("importance" in title for title in settings(found("batch-variance"), "verl"))


def test_flips_are_replayed_or_met_by_gspo_with_its_own_clips() -> None:
    replay, gspo, tis = settings(found("router-flips"), "verl").items()
    assert "replay" in replay[0]
    assert "GSPO" in gspo[0]
    actor = "actor_rollout_ref.actor."
    assert {f"{actor}clip_ratio_low=0.0003", f"{actor}clip_ratio_high=0.0004"} <= set(gspo[1])
    assert f"{actor}loss_agg_mode=seq-mean-token-mean" in gspo[1]
    assert "algorithm.rollout_correction.bypass_mode=False" in tis[1]


def test_no_clip_of_gspo_without_gspo() -> None:
    advice = settings(found("router-flips"), "open-instruct")
    (only,) = advice["or GSPO, which flips disturb least"]
    assert "has no such setting" in only
    assert not any("clip_lower" in line for lines in advice.values() for line in lines)


def test_precision_is_aligned_in_the_users_framework() -> None:
    advice = settings(found("precision"), "verl")
    sampler = "actor_rollout_ref.rollout.dtype"
    assert advice["the sampler in float32, as the learner"] == (f"{sampler}=float32",)
    both = next(lines for title, lines in advice.items() if "float16" in title)
    assert both[0] == f"{sampler}=float16"
    assert "mixed_precision.param_dtype=fp16" in both[1]
    assert any("output head" in title for title in settings(found("precision"), "slime"))
    lacking = settings(found("precision"), "openrlhf")
    assert not any(title.startswith("or ") for title in lacking), "another way that there is not"


def test_the_layout_is_that_of_the_learner() -> None:
    (lines, *_) = settings(found("parallel-layout"), "trl").values()
    assert lines[0].startswith("vllm_tensor_parallel_size=1  # ")


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        ("quantisation", "actor_rollout_ref.rollout.quantization=null"),
        ("kv-cache", "+actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_dtype=auto  # or"),
        ("truncation", "actor_rollout_ref.rollout.top_p=1.0"),
        ("raw-logprobs", "actor_rollout_ref.rollout.logprobs_mode=processed_logprobs"),
        ("prefix-caching", "actor_rollout_ref.rollout.enable_prefix_caching=False"),
        ("temperature", "actor_rollout_ref.rollout.temperature=1"),
    ],
)
def test_a_cause_is_taken_away_in_the_users_framework(cause: str, line: str) -> None:
    (lines, *_) = settings(found(cause), "verl").values()
    assert lines[0].startswith(line)


def test_a_quantised_learner_is_not_mended_at_the_sampler() -> None:
    cell = found("quantisation", learner="transformers:tiny?quantise=int8")
    assert not any("quantised" in title for title in settings(cell, "verl"))


def test_a_large_gap_without_a_cause_is_corrected_for_and_a_small_one_is_not() -> None:
    far = found(comparison=comparison(30.0), controls=())
    (title,) = settings(far, "verl")
    assert "importance weights" in title
    assert settings(replace(far, comparison=comparison(0.1)), "verl") == {}


def test_a_cap_that_would_rule_is_widened() -> None:
    wide = {"tis_token/2": 0.2, "tis_token/8": 1e-3}
    far = replace(comparison(), effects=wide)
    *_, lines = settings(found("precision", comparison=far), "slime").values()
    assert "--tis-clip 8" in lines
