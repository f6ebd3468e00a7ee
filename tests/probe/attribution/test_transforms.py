"""Changes of a reported column, recognized from its numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from grpodoctor.probe.attribution.base import Hypothesis
from grpodoctor.probe.attribution.causes.computation.generation_path import replaced_ids
from grpodoctor.probe.attribution.causes.reporting.units import Units
from grpodoctor.probe.attribution.columns.transforms import applied, recognized
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.probe.plants import upstream_bugs  # noqa: F401  # registers its changes
from tests.probe.plants.reporting import CHANGES

RESPONSES, LENGTH = 40, 30
LEARNER = EngineSpec.of("transformers", "model", {})


def variant(
    change: str = "", value: str = "", *, noise: float = 1e-6, side: str = "sampler"
) -> Variant:
    """A pair of columns of which one was changed, response by response."""
    random = np.random.default_rng(5)
    true_N = np.log(random.uniform(0.01, 0.999, RESPONSES * LENGTH))
    near_N = np.minimum(true_N + noise * random.standard_normal(true_N.size), -1e-7)
    if change:
        parts = np.split(near_N, RESPONSES)
        near_N = np.concatenate([CHANGES[change](p, value, n) for n, p in enumerate(parts)])
    near_N = near_N.astype(np.float32).astype(np.float64)
    nothing_B = np.zeros(RESPONSES, np.int64)
    tokens = Tokens(
        sampler_N=near_N if side == "sampler" else true_N,
        learner_N=true_N if side == "sampler" else near_N,
        lengths_B=np.full(RESPONSES, LENGTH),
        prompt_B=nothing_B,
        sample_B=nothing_B,
        prompt_lengths_B=nothing_B,
        ended_B=nothing_B.astype(bool),
        cached_B=nothing_B,
        counted_N=np.ones(near_N.size, bool),
    )
    return Variant(Setup(LEARNER, Processing()), tokens)


@pytest.mark.parametrize(
    ("change", "value", "cause", "words"),
    [
        ("log2", "", "log-base", "base 2"),
        ("log10", "", "log-base", "base 10"),
        ("halved", "", "scaled-logprobs", "scaled by 0.5"),
        ("normaliser_twice", "4", "constant-offset", "by 1.39 = log 4 at every token"),
        ("rounded", "2", "rounding", "2 decimals"),
        ("rounded_probabilities", "2", "rounding", "probabilities rounded to 2"),
        ("bf16_storage", "", "storage-precision", "bfloat16"),
        ("fp16_storage", "", "storage-precision", "float16"),
        ("averaged", "", "averaging", "each response"),
        ("smoothed", "3", "averaging", "over 3"),
        ("cumulative", "", "cumulative", "sums"),
        ("clipped", "-2", "clipping", "below at -2"),
        ("clipped", "-4.3", "clipping", "below at -4.3"),  # four of 1,200 tokens
        ("clipped_above", "-0.5", "clipping", "above at -0.5"),
        ("shift", "-5", "off-by-one", "-5 tokens"),
        ("shift_third", "2", "off-by-one", "of the responses"),
        ("shuffled", "", "shuffled", "another order"),
    ],
)
@pytest.mark.parametrize("side", ["sampler", "learner"])
def test_a_change_is_named_with_its_side(
    change: str, value: str, cause: str, words: str, side: str
) -> None:
    changed = variant(change, value, side=side)
    hypothesis = Units().hypothesize(None, changed)
    assert hypothesis is not None
    result = Units().experiment(None, changed, hypothesis)
    assert result is not None
    assert result.identity is not None
    assert result.after is not None
    assert result.identity.id == cause
    relative = cause in ("off-by-one", "shuffled", "scaled-logprobs", "constant-offset")
    assert relative or (words in result.summary and result.summary.startswith(f"the {side}'s"))
    assert side == "learner" or words in result.summary
    assert result.after.gap < 0.03 * changed.gap


@pytest.mark.parametrize(("spread", "is_named"), [(0.3, True), (0.8, False)])
def test_a_median_close_to_a_unit_is_no_unit(spread: float, is_named: bool) -> None:
    """A base changes every value by its factor; another fault spreads the ratios around it."""
    pair = variant()
    far_N = np.exp(np.random.default_rng(1).normal(0, spread, pair.tokens.learner_N.size))
    learner_N = pair.tokens.sampler_N / np.log(2) * far_N
    tokens = pair.tokens.with_learner(learner_N)
    found = {each.cause for each in recognized(tokens, learner_N, tokens.sampler_N)}
    assert ("log-base" in found) == is_named


@pytest.mark.parametrize("side", ["sampler", "learner"])
def test_values_divided_by_the_length_of_their_response(side: str) -> None:
    plain = variant()
    lengths_B = np.resize([10, 20, 30, 60], RESPONSES)
    column_N = plain.tokens.learner_N / np.repeat(lengths_B, lengths_B)
    tokens = replace(plain.tokens, lengths_B=lengths_B, **{f"{side}_N": column_N})
    found = Units().experiment(None, Variant(plain.setup, tokens), Hypothesis(1.0))
    assert found is not None
    assert found.identity is not None
    assert found.identity.id == "scaled-logprobs"
    assert f"the {side}'s log-probabilities are divided by the response's length" in found.summary


def test_values_of_the_likeliest_token() -> None:
    plain = variant()
    top_N = np.maximum(plain.tokens.learner_N, -0.7)
    tokens = replace(plain.tokens, sampler_N=top_N, top_logprob_N=top_N)
    found = Units().experiment(None, Variant(plain.setup, tokens), Hypothesis(1.0))
    assert found is not None
    assert found.identity is not None
    assert found.identity.id == "likeliest-token"
    greedy = replace(plain.tokens, top_logprob_N=plain.tokens.learner_N)
    assert Units().hypothesize(None, Variant(plain.setup, greedy)) is None


@pytest.mark.parametrize("size", [4, 20])
def test_values_of_the_last_listed_token(size: int) -> None:
    plain = variant()
    generator = np.random.default_rng(7)
    listed_NM = -np.sort(generator.exponential(2.0, (plain.tokens.learner_N.size, 20)), axis=1)
    tokens = replace(
        plain.tokens,
        sampler_N=np.maximum(plain.tokens.learner_N, listed_NM[:, size - 1]),
        likeliest_logprob_NM=listed_NM,
    )
    found = Units().experiment(None, Variant(plain.setup, tokens), Hypothesis(1.0))
    assert found is not None
    assert found.identity is not None
    assert found.after is not None
    assert found.identity.id == "top-logprobs"
    assert f"of {size} listed tokens" in found.summary
    assert found.after.gap == 0


@pytest.mark.parametrize("lengths", [[3], [1, 4, 2]])
def test_one_value_for_all_tokens_of_a_step(lengths: list[int]) -> None:
    """Steps of speculative decoding accept several tokens; their number may differ."""
    plain = variant()
    period, places = sum(lengths), np.arange(LENGTH)
    firsts = np.repeat(np.cumsum([0, *lengths])[:-1], lengths)
    source = places - places % period + firsts[places % period]
    rows = plain.tokens.sampler_N.reshape(RESPONSES, LENGTH)[:, np.minimum(source, LENGTH - 1)]
    repeated = Variant(plain.setup, plain.tokens.with_sampler(rows.ravel()))
    hypothesis = Units().hypothesize(None, repeated)
    assert hypothesis is not None
    found = Units().experiment(None, repeated, hypothesis)
    assert found is not None
    assert found.identity is not None
    assert found.after is not None
    assert found.identity.id == "repeated-values"
    assert found.after.gap < 1e-9


@pytest.mark.parametrize(
    ("number", "surplus", "cause"),
    [
        (0.0, 0.0, "missing-logprobs"),
        (-9999.0, 0.0, "missing-logprobs"),
        (0.0, -2.0, "forced-token"),
    ],
)
def test_a_number_in_place_of_some_values(number: float, surplus: float, cause: str) -> None:
    """Forced tokens are unlikely in the learner; missing values belong to tokens like any other."""
    plain = variant()
    random = np.random.default_rng(3)
    for place in (0, 10):
        at_N = np.arange(RESPONSES * LENGTH) % LENGTH == place
        changed_N = np.where(at_N, number, plain.tokens.sampler_N)
        surplus_N = random.standard_normal(changed_N.size) + surplus * at_N
        tokens = replace(plain.tokens, sampler_N=changed_N, surplus_N=surplus_N)
        for counted_N in (plain.tokens.counted_N, at_N):  # the search may see these tokens alone
            mixed = Variant(plain.setup, replace(tokens, counted_N=counted_N))
            hypothesis = Units().hypothesize(None, mixed)
            assert hypothesis is not None
            found = Units().experiment(None, mixed, hypothesis)
            assert found is not None
            assert found.identity is not None
            assert found.after is not None
            assert found.identity.id == cause
            assert found.after.gap < 1e-9


def test_equal_values_of_end_tokens_or_at_a_limit_are_no_missing_ones() -> None:
    plain = variant()
    ends_N = np.arange(RESPONSES * LENGTH) % LENGTH == LENGTH - 1
    ended = replace(
        plain.tokens,
        sampler_N=np.where(ends_N, 0.0, plain.tokens.sampler_N),
        ended_B=np.ones(RESPONSES, bool),
    )
    limited = replace(plain.tokens, sampler_N=np.maximum(plain.tokens.sampler_N, -2.0))
    for tokens in (ended, limited):
        found = recognized(tokens, tokens.sampler_N, tokens.learner_N)
        assert not {each.cause for each in found} & {"missing-logprobs", "forced-token"}


@pytest.mark.parametrize("noise", [1e-6, 0.02, 0.3])
def test_noise_is_no_change_of_units(noise: float) -> None:
    assert Units().hypothesize(None, variant(noise=noise)) is None


def test_values_of_other_responses() -> None:
    plain = variant()
    order = np.roll(np.arange(RESPONSES), 1)
    rows = plain.tokens.sampler_N.reshape(RESPONSES, LENGTH)[order]
    mixed = Variant(plain.setup, plain.tokens.with_sampler(rows.ravel()))
    hypothesis = Units().hypothesize(None, mixed)
    assert hypothesis is not None
    result = Units().experiment(None, mixed, hypothesis)
    assert result is not None
    assert "other responses" in result.summary


@pytest.mark.parametrize("noise", [1e-6, 0.3])
def test_some_responses_with_the_values_of_the_next_one(noise: float) -> None:
    """The next response keeps its own values, so that two have the same; also next to an error."""
    plain = variant(noise=noise)
    rows = plain.tokens.sampler_N.reshape(RESPONSES, LENGTH).copy()
    rows[::6] = rows[1::6]
    mixed = Variant(plain.setup, plain.tokens.with_sampler(rows.ravel()))
    hypothesis = Units().hypothesize(None, mixed)
    assert hypothesis is not None
    result = Units().experiment(None, mixed, hypothesis)
    assert result is not None
    assert result.identity is not None
    assert result.identity.id == "shuffled"
    assert "other responses in 7 of 40" in result.summary
    assert result.after is not None
    assert result.after.gap < 1.1 * plain.gap + 1e-9


@pytest.mark.parametrize("side", ["sampler", "learner"])
@pytest.mark.parametrize("noise", [1e-6, 0.3])
def test_values_of_other_responses_are_cut_or_padded(side: str, noise: float) -> None:
    """Rows that were sorted by length and not put back; the padding shows which side's they are."""
    plain = variant(noise=noise, side=side)
    lengths_B = np.random.default_rng(2).integers(12, LENGTH + 1, RESPONSES)
    kept_N = np.arange(LENGTH)[None].repeat(RESPONSES, 0).ravel() < np.repeat(lengths_B, LENGTH)
    tokens = plain.tokens
    columns = {"sampler": tokens.sampler_N[kept_N], "learner": tokens.learner_N[kept_N]}
    parts = np.split(columns[side], np.cumsum(lengths_B)[:-1])
    order = np.argsort(-lengths_B, kind="stable")
    columns[side] = np.concatenate(
        [
            np.pad(parts[row][:length], (0, max(0, length - parts[row].size)))
            for row, length in zip(order, lengths_B, strict=True)
        ]
    )
    sorted_tokens = replace(
        tokens,
        sampler_N=columns["sampler"],
        learner_N=columns["learner"],
        lengths_B=lengths_B,
        counted_N=np.ones(int(lengths_B.sum()), bool),
    )
    mixed = Variant(plain.setup, sorted_tokens)
    hypothesis = Units().hypothesize(None, mixed)
    assert hypothesis is not None
    result = Units().experiment(None, mixed, hypothesis)
    assert result is not None
    assert result.identity is not None
    assert result.identity.id == "shuffled"
    assert result.details[0] == side
    assert result.is_conclusive
    assert "sorted, longest first" in result.summary
    assert result.after is not None
    assert result.after.gap < 1.2 * plain.gap + 1e-9


def test_a_column_without_finite_values_has_no_change() -> None:
    pair = variant()
    nothing_N = np.full(pair.tokens.sampler_N.size, np.nan)
    tokens = applied(pair.tokens, nothing_N, nothing_N)
    causes = {each.cause for each in recognized(tokens, nothing_N, nothing_N)}
    assert not causes & {"log-base", "scaled-logprobs", "rounding", "clipping"}


@pytest.mark.parametrize("is_replaced", [True, False])
def test_tokens_that_were_tokenized_again(is_replaced: bool) -> None:
    """Each response has another token at its sixth place, and goes on after the sampled one."""
    plain, generator = variant(), np.random.default_rng(3)
    count = plain.tokens.learner_N.size
    listed_NM = -np.sort(generator.exponential(2.0, (count, 20)), axis=1)
    ids_NM = np.tile(np.arange(100, 120), (count, 1))
    sampler_N = plain.tokens.learner_N.copy()
    rows = sampler_N.reshape(RESPONSES, LENGTH)
    rows[:, 6:] += generator.normal(0, 0.5, rows[:, 6:].shape)
    rows[:, 5] = listed_NM.reshape(RESPONSES, LENGTH, 20)[:, 5, 3] - (0 if is_replaced else 0.05)
    tokens = replace(
        plain.tokens.with_sampler(sampler_N),
        ids_N=np.full(count, 7),
        likeliest_NM=ids_NM,
        likeliest_logprob_NM=listed_NM,
    )
    found = replaced_ids(tokens)
    if is_replaced:
        assert found is not None
        assert "such as 103 in place of 7" in found
    else:
        assert found is None


def test_values_of_another_sample_are_no_replaced_tokens() -> None:
    """The first value of a row is then that of a likely token: the one that its owner drew."""
    plain, generator = variant(), np.random.default_rng(3)
    count = plain.tokens.learner_N.size
    listed_NM = -np.sort(generator.exponential(2.0, (count, 20)), axis=1)
    rows = plain.tokens.learner_N.reshape(RESPONSES, LENGTH)
    listed_NM[::LENGTH] = listed_NM[0]  # the same prompt
    rows[:, 0] = listed_NM[0, np.arange(RESPONSES) % 5]  # neighbors draw other tokens
    tokens = replace(
        plain.tokens.with_sampler(np.roll(rows, 1, axis=0).ravel()),
        learner_N=rows.ravel(),
        ids_N=np.full(count, 7),
        likeliest_NM=np.tile(np.arange(100, 120), (count, 1)),
        likeliest_logprob_NM=listed_NM,
    )
    assert replaced_ids(tokens) is None


@pytest.mark.parametrize("noise", [1e-6, 0.02])
@pytest.mark.parametrize(
    ("end", "rows", "words"),
    [
        ("shortest", RESPONSES, "each prompt ended with the shortest one:"),
        ("longest", RESPONSES, "each prompt ended with the longest one:"),
        ("shortest", 8, "each prompt ended with the shortest one of 8 rows"),
    ],
)
def test_values_cut_at_one_place_of_a_batch(end: str, rows: int, words: str, noise: float) -> None:
    """Each response's values begin where the shortest, or the longest, prompt ends."""
    known = variant(noise=noise)
    random = np.random.default_rng(7)
    prompts_B = random.integers(6, 20, RESPONSES)
    of_batch = min if end == "shortest" else max
    parts = []
    split = zip(np.split(known.tokens.learner_N, RESPONSES), prompts_B.tolist(), strict=True)
    for row, (part, prompt) in enumerate(split):
        whole = np.concatenate([np.log(random.uniform(0.01, 1, prompt)), part, np.full(20, -0.5)])
        first = row - row % rows
        limit = of_batch(prompts_B[first : first + rows].tolist())
        parts.append(whole[limit : limit + LENGTH])
    tokens = replace(known.tokens, learner_N=np.concatenate(parts), prompt_lengths_B=prompts_B)
    found = Units().experiment(experiments=None, variant=replace(known, tokens=tokens),  # type: ignore[arg-type]
                               hypothesis=Hypothesis(1.0))  # fmt: skip
    assert found is not None
    assert found.identity is not None
    assert found.after is not None
    assert found.identity.id == "off-by-one"
    assert words in found.summary
    assert "the learner's log-probabilities" in found.summary
    assert found.after.gap == pytest.approx(known.tokens.gap, rel=0.2, abs=1e-9)


def test_prompts_of_many_lengths_are_no_shift() -> None:
    known = variant()
    prompts_B = np.random.default_rng(7).integers(6, 20, RESPONSES)
    tokens = replace(known.tokens, prompt_lengths_B=prompts_B)
    assert not [
        each
        for each in recognized(tokens, tokens.sampler_N, tokens.learner_N)
        if "ended with" in each.what
    ]
