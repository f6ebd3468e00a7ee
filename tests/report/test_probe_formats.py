"""A probe's report on a terminal and as HTML: all of it, none of it hostile."""

from dataclasses import replace

import pytest

from grpodoctor.probe.recommended_settings import recommended_settings
from grpodoctor.probe.results.results import Cell, NamedCause, ProbeResult
from grpodoctor.probe.results.results_json import to_json
from grpodoctor.probe.severity import measured_verdict
from grpodoctor.report import html, markdown
from grpodoctor.report import text as terminal
from grpodoctor.report.probe.charts import FEWEST_IN_BIN, cell_charts, grid_charts
from grpodoctor.report.probe.names import short_names
from grpodoctor.report.probe.phrases import format_near_one, standing
from grpodoctor.report.probe.view import view_of
from grpodoctor.vocabulary.values import Mean
from tests.report.packed import packed_charts
from tests.report.probed import CAUSE, CONTROLS, HOSTILE, REPLAYED, comparison, result

PAIR = replace(result(), cells=result().cells[:1])


def as_text(
    probed: ProbeResult, framework: str | None = None, *, width: int = 80, color: bool = False
) -> str:
    return terminal.render(view_of(probed, framework), width=width, color=color)


def as_html(probed: ProbeResult, framework: str | None = None) -> str:
    return html.render(view_of(probed, framework))


def test_a_pair_is_shown_with_all_figures() -> None:
    text = as_text(PAIR, width=100)
    for part in ("PROVEN", "explains 97% of the gap", "3.00e-04", "7.00e-04 to 9.00e-04"):
        assert part in text
    assert "not run" in text
    assert "FAILED  control" in text
    assert "31.00%" in text  # an effect on training
    assert "n/a" in text  # a figure that cannot be
    assert "Experts: 5.00% of 6,144 tokens" in text
    assert "sampler -1.500, learner -0.900 nats" in text


def test_the_effect_of_a_replay_is_shown() -> None:
    cell = replace(PAIR.cells[0], replayed=REPLAYED)
    held = replace(PAIR, cells=(cell,))
    told = (
        "removes 93% of the gap: k3 goes from 3.00e-04 to 2.00e-05 and mean |Δp| from 8.00e-04 "
        "to 1.00e-04 (6,144 tokens, coverage 98.00%, agreement 100.00%)."
    )
    assert told in " ".join(as_text(held, width=100).split())
    assert told in as_html(held)
    assert "Replaying" not in as_text(PAIR, width=100)
    worse = replace(REPLAYED, kl_k3_after=4e-4)
    assert "removes none of the gap" in as_html(
        replace(PAIR, cells=(replace(cell, replayed=worse),))
    )
    same = replace(REPLAYED, kl_k3_after=3.001e-4)
    assert "changes nothing" in as_html(replace(PAIR, cells=(replace(cell, replayed=same),)))


def test_a_grid_shows_each_pair_on_a_line_with_failures() -> None:
    text = as_text(result(), width=120)
    assert text.count("precision") >= 4
    assert "FAILED  the engine died" in text
    assert "4 pairs measured, 1 failed" in text
    assert "passed  control" not in text


def test_nothing_hostile_reaches_a_terminal() -> None:
    text = as_text(PAIR, width=100, color=True)
    assert "\x1b[31m[bold]" not in text
    assert "\u202e" not in text


def test_markdown_shows_every_pair_and_escapes_hostile_text() -> None:
    shown = markdown.render(view_of(result(), "verl"))
    for part in ("proven: precision", "explains 97% of the gap", "the engine died", "**FAILED**"):
        assert part in shown
    assert shown.startswith("# Do these engines agree?\n\n**4 pairs measured, 1 failed")
    assert "  - `algorithm.rollout_correction.rollout_is_threshold=2`" in shown
    assert shown.count("\n## ") == 6
    assert "<script" not in shown
    assert "\u202e" not in shown
    whole = markdown.render(view_of(PAIR))
    assert "| mean \\|Δp\\|, mean over responses | 8.00e-04 | 7.00e-04 to 9.00e-04 |" in whole
    assert "»<script>alert(1)</script>[bold]«`" in whole, "a code span"


def test_the_json_is_the_result_with_the_settings_for_a_framework() -> None:
    data = view_of(PAIR).json()
    assert data == to_json(PAIR)
    with_settings = view_of(PAIR, "verl").json()
    (cell,) = with_settings["cells"]
    assert cell.pop("settings")[0] == {
        "title": "run the sampler in float32, like the learner",
        "lines": ("actor_rollout_ref.rollout.dtype=float32",),
    }
    assert with_settings == data


def test_nothing_hostile_reaches_the_page() -> None:
    page = as_html(result())
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page


def test_the_page_holds_every_pair_and_what_failed() -> None:
    page = as_html(result())
    for index in range(5):
        assert f'id="cell-{index}"' in page
    assert "the engine died" in page
    assert 'title="sampler -1.500, learner -0.900 nats"' in page


def test_a_result_without_any_cell_is_still_a_page() -> None:
    empty = replace(result(), cells=(), engines={})
    assert "0 pairs measured" in as_html(empty)
    assert "0 pairs measured" in as_text(empty)


def test_settings_are_shown_in_the_users_framework() -> None:
    text = as_text(PAIR, width=100, framework="verl")
    assert "    algorithm.rollout_correction.rollout_is_threshold=2\n" in text
    page = as_html(result(), framework="slime")
    assert "--tis-clip 2" in page
    assert "rollout_is_threshold" not in as_text(PAIR, width=100)


def held(*labels: str) -> ProbeResult:
    """A grid of these samplers with one learner, each with a gap of its own."""
    cells = tuple(
        replace(PAIR.cells[0], sampler=label, comparison=comparison(1.0 + at))
        for at, label in enumerate(labels)
    )
    return replace(PAIR, cells=cells)


def test_engines_are_named_by_what_tells_them_apart() -> None:
    shared = "&enforce_eager=True&max_model_len=512"
    grid = held(
        f"vllm:tiny?dtype=bfloat16{shared}",
        f"vllm:tiny?dtype=float32{shared}",
        f"vllm:tiny-int8?dtype=bfloat16{shared}",
        "fsdp:tiny?dtype=bfloat16&fsdp=2",
    )
    assert list(short_names(grid).values()) == [
        "vllm bfloat16",
        "transformers float32",
        "vllm float32",
        "vllm tiny-int8 bfloat16",
        "fsdp bfloat16 fsdp=2",
    ]
    text = as_text(grid, width=80)
    assert "enforce_eager" not in text[: text.index("vllm:tiny?")], "before the list of engines"
    checkpoints = short_names(
        held("vllm:ck1/model?dtype=bfloat16", "vllm:ck2/model?dtype=bfloat16")
    )
    assert {"vllm ck1/model bfloat16", "vllm ck2/model bfloat16"} < set(checkpoints.values())
    lengths = [f"vllm:tiny?dtype=bfloat16&max_model_len={length}" for length in (256, 512)]
    told = short_names(held(*lengths))
    assert [told[each] for each in lengths] == lengths, "nothing else tells them apart"
    assert short_names(held(lengths[0]))[lengths[0]] == "vllm bfloat16"
    alike = short_names(held("vllm:tiny?dtype=x", "vllm:tiny?x"))
    assert len(set(alike.values())) == len(alike), "two engines never share a name"


def test_engines_with_like_names_have_a_row_each_in_the_grid() -> None:
    long = "vllm:tiny?" + "a_very_long_option_name=1&" * 8
    grid = held(f"{long}seed=1", f"{long}seed=2", f"{long}seed=3")
    chart, *_ = grid_charts(grid.cells, dict.fromkeys(short_names(grid), "the same"))
    rows = [row[0] for row in chart.figure.data[0].z]
    assert len(set(rows)) == 3


def test_a_gap_has_the_same_color_in_every_grid() -> None:
    def colors(*scales: float) -> tuple[object, ...]:
        cells = tuple(
            replace(PAIR.cells[0], sampler=f"vllm:{at}", comparison=comparison(scale))
            for at, scale in enumerate(scales)
        )
        chart, *_ = grid_charts(cells, {})
        assert "Mean |Δp|" in chart.caption
        heat_map = chart.figure.data[0]
        return heat_map.zmin, heat_map.zmax, heat_map.colorscale

    assert colors(1.0, 2.0) == colors(1e-4, 50.0)


def test_the_page_says_which_pairs_have_charts() -> None:
    said = "Charts below: the 6 pairs with the largest k3"
    assert said in as_html(held(*(f"vllm:{at}" for at in range(7))))
    assert said not in as_html(held("vllm:1", "vllm:2"))


def test_the_page_of_a_large_grid_is_small() -> None:
    long = comparison()
    whole = replace(long.worst[0], **{name: getattr(long.worst[0], name) * 200 for name in (
        "ids", "sampler_logprobs", "learner_logprobs", "token_texts",
    )})  # fmt: skip
    heavy = replace(long, worst=(whole,) * 10)
    cells = tuple(
        replace(cell, comparison=heavy, causes=(CAUSE,) * 3, replayed=REPLAYED)
        for cell in held(*(f"vllm:{at}" for at in range(100))).cells
    )
    assert len(as_html(replace(PAIR, cells=cells)).encode()) < 1.5e6


def test_a_kernel_within_rounding_is_shown_without_alarm() -> None:
    kernel = replace(CAUSE, cause="attention-kernel")
    cell = replace(PAIR.cells[0], causes=(kernel,), controls=(), remedies=(), noise=3e-4)
    text = as_text(replace(PAIR, cells=(cell,)))
    assert "AGREE" in text
    assert "ROUNDING  attention-kernel:" in text
    assert "Sample in float16" not in text, "nothing needs to change"


@pytest.mark.slow
def test_the_best_pairs_of_a_very_large_grid_have_a_line_alone() -> None:
    (like,) = held("vllm:0").cells
    good = replace(like, causes=(), controls=(), verdict="They agree.", noise=1.0)
    labels = [f"vllm:{at}" for at in range(520)]
    cells = tuple(replace(good, sampler=label, gap=1e-4) for label in labels)
    grid = replace(PAIR, cells=(*cells[:510], replace(like, sampler=labels[510]), *cells[510:]))
    page = as_html(grid)
    assert page.count('<section id="cell-') == 60
    assert '<section id="cell-510"' in page, "the worst pair"
    assert "Sections below: the 60 worst pairs." in page
    assert "The 500 worst of 521 pairs (520 agree, 1 differ)." in page
    assert page.count("They agree.") < 600
    assert as_text(grid, width=120).count("AGREE") <= 560


def test_a_pair_of_a_large_grid_has_its_figures_and_failed_controls() -> None:
    grid = held(*(f"vllm:{at}" for at in range(30)))
    page = as_html(grid)
    section = page[page.index('<section id="cell-0"') : page.index('<section id="cell-1"')]
    for part in ("largest |Δp| of all responses", "It was not flagged.", "routed to a different"):
        assert part in section
    assert "TIS per token, cap 2" not in section
    assert "TIS per token, cap 2" in page[page.index('<section id="cell-29"') :], "it has charts"


def test_names_are_harmless_in_charts() -> None:
    drawn = packed_charts(as_html(held(f"vllm:{HOSTILE}", "vllm:tiny?dtype=<b>bold</b>")))
    assert "bold" in drawn
    assert "<b>" not in drawn
    assert "\\u003cscript" not in drawn
    assert "&lt;b&gt;" in drawn


STANDS = {
    "agree": replace(
        PAIR.cells[0], causes=(), controls=CONTROLS[:2], verdict="They agree.", noise=3e-4
    ),
    "differ": PAIR.cells[0],
    "large gap": replace(PAIR.cells[0], comparison=comparison(50.0)),
    "control failed": replace(PAIR.cells[0], causes=(), noise=3e-4),
    "unsure": replace(
        PAIR.cells[0],
        causes=(replace(CAUSE, confidence="possible"),),
        controls=CONTROLS[:2],
        noise=3e-4,
    ),
    "small gap": replace(
        PAIR.cells[0],
        causes=(replace(CAUSE, cause="batch-variance"),),
        controls=CONTROLS[:2],
        comparison=comparison(0.01),
        gap=3e-6,
    ),
    "failed": result().cells[-1],
    "not run": replace(result().cells[-1], status="not_run"),
}


@pytest.mark.parametrize("word", STANDS)
def test_the_result_of_a_pair_is_one_word(word: str) -> None:
    cell = STANDS[word]
    assert standing(cell)[0] == word
    assert f'<span class="badge">{word}</span>' in as_html(replace(PAIR, cells=(cell,)))
    text = as_text(replace(PAIR, cells=(cell,)))
    assert word.upper() in text


def test_an_unexplained_gap_is_not_called_agreement() -> None:
    """The result of an earlier version, which did not compare with rounding."""
    cell = replace(PAIR.cells[0], causes=(), controls=(), gap=None, noise=None)
    cell = replace(cell, verdict=measured_verdict(cell))
    assert standing(cell) == ("small gap", "good")


def test_a_pair_of_the_first_round_alone_counts_neither_as_measured_nor_as_not_run() -> None:
    done, other, *_ = result().cells
    first, unknown = (replace(each, status="not_run") for each in (done, other))
    cells = (done, first, replace(unknown, comparison=None))
    line = as_text(replace(result(), cells=cells), width=120).splitlines()[0]
    assert line.startswith("1 pair measured, 1 only in a first round, 1 not run: 2 differ")


def test_the_first_and_the_last_line_hold_the_diagnosis() -> None:
    lines = as_text(result(), width=120).splitlines()
    assert lines[0] == lines[-1] == "4 pairs measured, 1 failed: 4 differ (precision 4)"
    assert lines[0] in as_html(result())


def test_tokens_keep_their_spaces_and_the_worst_is_marked_without_colors() -> None:
    worst = replace(PAIR.cells[0].comparison.worst[0], token_texts=(" so", " the", " end\n"))
    there = replace(PAIR.cells[0].comparison, worst=(worst,))
    cells = (replace(PAIR.cells[0], comparison=there),)
    assert " so the» end↵«" in as_text(replace(PAIR, cells=cells), width=100)


def test_the_worst_token_is_marked_however_small_its_gap_is() -> None:
    same = (-0.1, -0.2, -1.5)
    worst = replace(
        PAIR.cells[0].comparison.worst[0],
        prob_diff_max=1e-6,
        sampler_logprobs=same,
        learner_logprobs=(-0.1, -0.2, -1.500001),
    )
    there = replace(PAIR.cells[0].comparison, worst=(worst,))
    page = as_html(replace(PAIR, cells=(replace(PAIR.cells[0], comparison=there),)))
    assert page.count("<mark ") == 1


def test_a_narrow_terminal_gets_every_name_and_figure() -> None:
    text = " ".join(as_text(result(), width=40).split())
    assert "differ vllm bfloat16 → transformers float32, 96 tokens: precision (proven)" in text
    assert "mean |Δp| 8.00e-04" in text
    assert "…" not in text


def test_values_close_to_one_are_not_rounded_to_one() -> None:
    assert [format_near_one(value) for value in (0.99957, 0.9999123, 1.0, 0.98, 4e-4)] == [
        "0.99957", "0.999912", "1", "0.98", "4.00e-04",
    ]  # fmt: skip
    readings = {**PAIR.cells[0].comparison.readings, "mismatch/ess": Mean.of([0.99957])}
    there = replace(PAIR.cells[0].comparison, readings=readings)
    pair = replace(PAIR, cells=(replace(PAIR.cells[0], comparison=there),))
    assert "0.99957" in as_text(pair)
    assert "0.99957" in as_html(pair)


def settings(cell: Cell, framework: str) -> dict[str, tuple[str, ...]]:
    """Titles and lines of all advice for one cell."""
    return {each.title: each.lines for each in recommended_settings(PAIR, cell, framework)}


def found(*causes: str, **changes: object) -> Cell:
    named = tuple(replace(CAUSE, cause=cause) for cause in causes)
    return replace(PAIR.cells[0], causes=named, **changes)


@pytest.mark.parametrize("cause", ["prompt-ids", "raw-logprobs", "wrong-sampler", "temperature"])
def test_a_cause_that_weights_cannot_correct_gets_no_weights(cause: str) -> None:
    assert not any("importance" in title for title in settings(found(cause), "verl"))
    assert any("importance" in title for title in settings(found("batch-variance"), "verl"))


def test_a_temperature_is_set_where_it_is_missing() -> None:
    asked = {"asked": 0.7, "fitted": 1.0}
    for learner in (0.7, 1.0):
        cause = replace(CAUSE, cause="temperature", figures={**asked, "learner": learner})
        titles = settings(replace(PAIR.cells[0], causes=(cause,)), "slime")
        assert ("score at the sampling temperature in the learner" in titles) == (learner == 1.0)
        assert ("set the same temperature in both engines" in titles) == (learner == 0.7)


def test_a_penalty_is_disabled_where_the_framework_has_one() -> None:
    title = "sample without a repetition penalty"
    advice = settings(found("repetition-penalty"), "verl")
    assert advice[title] == ("actor_rollout_ref.rollout.repetition_penalty=1",)
    assert title not in settings(found("repetition-penalty"), "openrlhf")


def test_flips_get_replay_or_gspo_with_its_own_clips() -> None:
    replay, gspo, tis = settings(found("router-flips"), "verl").items()
    assert "replay" in replay[0]
    assert "GSPO" in gspo[0]
    actor = "actor_rollout_ref.actor."
    assert {f"{actor}clip_ratio_low=0.0003", f"{actor}clip_ratio_high=0.0004"} <= set(gspo[1])
    assert f"{actor}loss_agg_mode=seq-mean-token-mean" in gspo[1]
    assert "algorithm.rollout_correction.bypass_mode=False" in tis[1]


def test_no_clip_of_gspo_without_gspo() -> None:
    advice = settings(found("router-flips"), "open-instruct")
    (only,) = advice["alternatively, use GSPO, the loss least affected by expert flips"]
    assert "has no setting for loss gspo: " in only
    assert not any("clip_lower" in line for lines in advice.values() for line in lines)


def test_precision_is_aligned_in_the_users_framework() -> None:
    advice = settings(found("precision"), "verl")
    sampler = "actor_rollout_ref.rollout.dtype"
    assert advice["run the sampler in float32, like the learner"] == (f"{sampler}=float32",)
    both = next(lines for title, lines in advice.items() if "float16" in title)
    assert both[0] == f"{sampler}=float16"
    assert "mixed_precision.param_dtype=fp16" in both[1]
    assert any("head in float32" in title for title in settings(found("precision"), "slime"))
    lacking = settings(found("precision"), "openrlhf")
    assert not any(title.startswith("alternatively") for title in lacking), (
        "another way that there is not"
    )


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


def test_the_modules_with_the_largest_effect_are_named() -> None:
    told = ("attention: 67% of the effect", "MLP: 33% of the effect")
    cause = replace(CAUSE, cause="quantisation", details=told)
    title, *_ = settings(replace(PAIR.cells[0], causes=(cause,)), "verl")
    assert title.endswith("these modules unquantized: attention")


def test_a_quantized_learner_gets_no_sampler_setting() -> None:
    cell = found("quantisation", learner="transformers:tiny?quantise=int8")
    assert not any("quantised" in title for title in settings(cell, "verl"))


def test_a_large_gap_without_a_cause_is_corrected_for_and_a_small_one_is_not() -> None:
    far = found(comparison=comparison(30.0), controls=())
    (title,) = settings(far, "verl")
    assert "importance weights" in title
    assert settings(replace(far, comparison=comparison(0.1)), "verl") == {}


def test_a_cap_that_truncates_many_tokens_is_raised() -> None:
    wide = {"tis_token/2": 0.2, "tis_token/8": 1e-3}
    far = replace(comparison(), effects=wide)
    *_, lines = settings(found("precision", comparison=far), "slime").values()
    assert "--tis-clip 8" in lines


@pytest.mark.parametrize(
    ("causes", "words"),
    [
        (("temperature",), "remove the cause (t); importance weights do not correct it"),
        (("precision",), "remove the cause if you can, and use importance weights per token"),
        ((), "Recommendation: use importance weights per token, capped at 2, which acts on 0.05%"),
    ],
)
def test_the_recommendation_precedes_the_table_of_corrections(
    causes: tuple[str, ...], words: str
) -> None:
    named = tuple(
        NamedCause(cause=cause, title="t", confidence="proven", explained=1.0, summary="s")
        for cause in causes
    )
    cell = replace(PAIR.cells[0], causes=named, comparison=comparison(scale=10))
    text = " ".join(as_text(replace(PAIR, cells=(cell,)), width=120).split())
    assert words in text
    assert text.index("Recommendation: ") < text.index("acts on weight lost")


def test_a_small_gap_needs_no_correction() -> None:
    quiet = replace(PAIR.cells[0], causes=(), controls=(), comparison=comparison(scale=0.01))
    text = " ".join(as_text(replace(PAIR, cells=(quiet,)), width=120).split())
    assert "Recommendation: change nothing" in text


def test_nearly_empty_bins_are_not_drawn() -> None:
    few = replace(comparison().by_position[-1], tokens=FEWEST_IN_BIN - 1, prob_diff_mean=0.5)
    bins = (*comparison().by_position[:-1], few)
    chart = next(
        each
        for each in cell_charts(replace(comparison(), by_position=bins))
        if "position" in each.caption
    )
    assert all(trace.y[-1] is None for trace in chart.figure.data)
    assert all(trace.y[0] is not None for trace in chart.figure.data)
    assert "1 bins with fewer than 30 tokens are left out" in chart.words
