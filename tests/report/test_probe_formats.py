"""A probe's report on a terminal and as HTML: all of it, none of it hostile."""

from dataclasses import replace

from grpodoctor.report import probe_html, probe_text
from grpodoctor.report.probe_advice import advised
from tests.report.probed import CAUSE, REPLAYED, result

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


def test_a_cause_that_no_weight_makes_up_for_gets_no_weights() -> None:
    stale = replace(CAUSE, cause="stale-weights")
    assert advised(replace(PAIR.cells[0], causes=(stale,)), "verl") == ()


def test_flips_are_replayed_or_met_by_gspo() -> None:
    flips = replace(CAUSE, cause="router-flips")
    titles = [each.title for each in advised(replace(PAIR.cells[0], causes=(flips,)), "verl")]
    assert "replay" in titles[0]
    assert "GSPO" in titles[1]


def test_a_cap_that_would_rule_is_widened() -> None:
    wide = {"tis_token/2": 0.2, "tis_token/8": 1e-3}
    far = replace(PAIR.cells[0].comparison, effects=wide)
    (only,) = advised(replace(PAIR.cells[0], comparison=far), "slime")
    assert "--tis-clip 8" in only.lines
