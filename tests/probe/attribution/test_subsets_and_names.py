"""Subsets of responses, shifts, and the names of tensors and settings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpodoctor.probe.attribution.columns.token_biases import BAN, missing_tokens, token_biases
from grpodoctor.probe.attribution.edit_causes.computed_causes import cause_of
from grpodoctor.probe.attribution.investigate import attribute, investigate
from grpodoctor.probe.attribution.search.subsets import periodic_tokens
from grpodoctor.probe.attribution.search.tensor_groups import rank_shards
from grpodoctor.probe.attribution.search.tensor_labels import labels_of
from grpodoctor.probe.attribution.tokens import Tokens
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.attribution.wording.edit_words import described
from grpodoctor.probe.contract import Processing
from grpodoctor.support.numbers import rounded_down
from tests.probe.attribution.scripted import LEARNER, VLLM, Scripted, case_of, exact


@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        ("num_experts_per_tok", "router-top-k"),
        ("top_k", "router-top-k"),
        ("norm_topk_prob", "router-weights"),
        ("routed_scaling_factor", "router-weights"),
        ("topk_group", "router-groups"),
        ("attn_logit_softcapping", "attention-soft-cap"),
        ("final_logit_softcapping", "logit-soft-cap"),
        ("residual_multiplier", "model-config"),
    ],
)
def test_a_setting_is_named_for_what_it_is(setting: str, cause: str) -> None:
    assert cause_of(("setting", json.dumps([setting, 1]))).id == cause


@pytest.mark.parametrize(
    ("edit", "cause", "words"),
    [
        (("without_bias", "e_score_correction_bias"), "router-bias", "set to zero"),
        (("without_bias", "lm_head"), "missing-bias", "biases of lm_head"),
        (("router_weights", "corrected"), "router-weights", "bias of the choice"),
        (("weights_from", ["1.self_attn.k_proj", "swap v_proj"]), "swapped-weights", "exchanged"),
        (("weights_from", ["*.ln_mlp", "ln_attn"]), "norm-weights", "ln_mlp of every layer"),
        (
            ("transposed", ["1.self_attn.o_proj", True]),
            "transposed-weights",
            "of layer 1 transpose",
        ),
        (("recent_repetition", ["8", 1.3]), "repetition-penalty", "1.3 on the last 8 tokens"),
        (
            ("part_presence", ["both", 0.31]),
            "presence-penalty",
            "0.31 on tokens of the prompt, too",
        ),
        (("part_frequency", ["8", 0.4]), "frequency-penalty", "0.4 on the last 8 tokens"),
        (("alibi_power", 2.0), "attention-bias", "slopes"),
        (("kv_cache", "keys in int4"), "kv-cache", "keys in int4"),
        (("adapter_part", ["ranks above 8", 0.0]), "adapter", "ranks above 8 of the adapter"),
        (("attention_weights", "fp8"), "attention-precision", "attention weights in fp8"),
        (("open_gate", "self_attn"), "missing-gate", "the gate in self_attn"),
    ],
)
def test_an_edit_is_named_for_its_fault(edit: tuple[str, Any], cause: str, words: str) -> None:
    named = (edit[0], json.dumps(edit[1]))
    assert cause_of(named).id == cause
    assert words in described(named)


class _LoudAbove:
    """Stands for experiments that only know the size of rounding."""

    def is_loud(self, gap: float) -> bool:
        return gap > 1e-6


@pytest.mark.parametrize(("every", "first"), [(2, 0), (4, 3), (8, 5)])
def test_tokens_at_equal_distances_are_a_part(every: int, first: int) -> None:
    nothing_B, places = np.zeros(12, np.int64), np.tile(np.arange(40), 12)
    sampler_N = np.where(places % every == first, -1.4, -1.0)
    tokens = Tokens(
        sampler_N=sampler_N, learner_N=np.full(480, -1.0), lengths_B=np.full(12, 40),
        prompt_B=nothing_B, sample_B=nothing_B, prompt_lengths_B=nothing_B,
        ended_B=np.zeros(12, bool), cached_B=nothing_B, counted_N=np.ones(480, bool),
    )  # fmt: skip
    part = periodic_tokens(_LoudAbove(), Variant(Setup(LEARNER, Processing()), tokens))
    assert part is not None
    assert f"token of each response, from number {first}" in part.words
    assert (part.tokens_N == (places % every == first)).all()
    everywhere = Variant(Setup(LEARNER, Processing()), tokens.with_sampler(sampler_N - 0.2))
    assert periodic_tokens(_LoudAbove(), everywhere) is None, "the other tokens differ, too"


def _tokens_of(ids_N: np.ndarray, likeliest: dict[int, float]) -> Tokens:
    """Tokens of one response, at each place with the same likeliest tokens."""
    count, nothing_B = ids_N.size, np.zeros(0, np.int64)
    logprobs_M = np.log(np.array(list(likeliest.values()), np.float32))
    return Tokens(
        sampler_N=np.full(count, -1.0), learner_N=np.full(count, -1.0),
        lengths_B=np.array([count]), prompt_B=nothing_B, sample_B=nothing_B,
        prompt_lengths_B=nothing_B, ended_B=np.zeros(1, bool), cached_B=nothing_B,
        counted_N=np.ones(count, bool), ids_N=ids_N,
        likeliest_NM=np.tile(list(likeliest), (count, 1)),
        likeliest_logprob_NM=np.tile(logprobs_M, (count, 1)),
    )  # fmt: skip


def test_tokens_that_never_occur_are_candidates_for_a_ban() -> None:
    tokens = _tokens_of(np.tile([3, 4], 20), {3: 0.4, 4: 0.35, 7: 0.2, 9: 0.01})
    (family,) = missing_tokens(tokens)
    edit = family.edit(family.values[0])
    assert edit == ("logit_bias", "[[7, -10000.0]]")
    assert described(edit) == "the tokens 7 banned"
    assert cause_of(edit).id == "logit-bias"
    assert len(family.values) == 1, "3 and 4 occur, and 9 is absent by chance"


def test_the_likelihood_of_a_bias_is_that_of_the_biased_distribution() -> None:
    tokens = _tokens_of(np.array([3] * 30 + [4] * 30), {3: 0.1, 4: 0.5, 5: 0.4})
    best = token_biases(tokens)[0]
    assert (best.token, best.bias, best.count) == (5, BAN, 0)
    assert best.nats == pytest.approx(-60 * math.log(0.6), rel=1e-4)
    rare = next(each for each in token_biases(tokens) if each.token == 3)
    assert rare.bias == 2.0
    assert rare.nats == pytest.approx(30 * 2 - 60 * math.log(0.9 + 0.1 * math.exp(2)), rel=1e-4)
    assert rare.expected == pytest.approx(6, rel=1e-4)


@pytest.mark.parametrize(
    ("value", "digits", "expected"),
    [(0.05616, 1, 0.05), (0.05616, 2, 0.056), (0.05616, 3, 0.0561), (0.0999, 2, 0.099)],
)
def test_a_probability_is_rounded_to_one_that_no_token_contradicts(
    value: float, digits: int, expected: float
) -> None:
    assert rounded_down(value, digits) == expected


def test_names_of_tensors() -> None:
    every = frozenset(
        f"model.layers.{layer}.{part}"
        for layer in (0, 1, 2, 10)
        for part in (
            *("self_attn.q_proj.weight", "self_attn.q_proj.bias", "self_attn.o_proj.weight"),
            *("mlp.up_proj.weight", "input_layernorm.weight"),
        )
    ) | {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"}
    taken = {name for name in every if "mlp" in name and ".10." not in name}
    taken |= {name for name in every if "layers.1.self_attn" in name}
    taken |= {"model.layers.10.self_attn.q_proj.bias", "lm_head.weight", "model.norm.weight"}
    assert labels_of(frozenset(taken), every) == (
        *("norm.weight", "output head", "layers 0 to 2 MLP", "layer 1 attention"),
        "layer 10 self_attn.q_proj.bias",
    )
    layer = frozenset(name for name in every if "layers.2." in name)
    assert labels_of(layer | {"lm_head.weight"}, every) == ("output head", "layer 2")
    norms = frozenset(name for name in every if "norm" in name)
    assert labels_of(norms, every) == ("norms",)
    inside = frozenset(name for name in every if "layers" in name)
    shards = rank_shards(inside)
    quarter = frozenset(f"{name}[rank 3/4]" for name in inside)
    assert quarter in shards
    assert frozenset(f"{name}[2/2]" for name in inside) in shards
    assert not any(name.startswith("lm_head") for shard in shards for name in shard)
    attention = frozenset(name for name in quarter if "self_attn" in name)
    assert attention in shards
    assert labels_of(attention, every) == ("part 3 of 4 of attention",)
    assert labels_of(quarter, every) == tuple(
        f"part 3 of 4 of {label}" for label in labels_of(inside, every)
    )


def test_the_search_continues_in_a_subset(tmp_path: Path) -> None:
    def told(response: Any) -> None:
        if response.sample == 3:
            response.logprobs = (1.3 * np.asarray(response.logprobs)).tolist()

    runner = Scripted(tmp_path, exact)
    found = investigate(runner, case_of(runner, VLLM, LEARNER, told=told))
    (named,) = found.causes
    assert (named.cause, named.confidence) == ("scaled-logprobs", "proven")
    assert named.details[-1] == "only in sample 3 of every prompt"
    assert found.verdict.startswith("The engines differ in sample 3 of every prompt: ")


def test_the_search_continues_in_the_first_tokens(tmp_path: Path) -> None:
    def told(response: Any) -> None:
        response.logprobs[0] = 1.3 * response.logprobs[0]

    runner = Scripted(tmp_path, exact)
    found = investigate(runner, case_of(runner, VLLM, LEARNER, told=told))
    (named,) = found.causes
    assert (named.cause, named.confidence) == ("scaled-logprobs", "proven")
    assert named.details[-1] == "only in the first token of every response"


def test_a_majority_is_a_subset_if_a_property_tells_it(tmp_path: Path) -> None:
    def told(response: Any) -> None:
        if response.prompt % 3:
            response.prompt_ids = [7] * 9
            response.logprobs = (1.3 * np.asarray(response.logprobs)).tolist()

    runner = Scripted(tmp_path, exact)
    found = investigate(runner, case_of(runner, VLLM, LEARNER, told=told))
    assert found.subset == "responses to prompts of more than 2 tokens"
    assert [each.cause for each in found.causes] == ["scaled-logprobs"]


@pytest.mark.slow
def test_unexplained_responses_to_long_prompts_are_named(tmp_path: Path) -> None:
    def told(response: Any) -> None:
        if response.prompt % 3:
            response.prompt_ids = [7] * 9
            noise = np.random.default_rng(response.prompt).normal(0, 0.3, len(response.logprobs))
            response.logprobs = np.minimum(noise + response.logprobs, -1e-3).tolist()

    runner = Scripted(tmp_path, exact)
    (named,) = investigate(runner, case_of(runner, VLLM, LEARNER, told=told)).causes
    assert (named.cause, named.confidence) == ("long-prompts", "likely")


def test_a_shift_by_five_tokens_in_long_and_short_responses(tmp_path: Path) -> None:
    def told(response: Any) -> None:
        if response.prompt % 3 == 0:  # shorter than twice the shift
            response.response_ids = response.response_ids[:7]
            response.logprobs = response.logprobs[:7]
        response.logprobs = np.roll(response.logprobs, 5).tolist()

    runner = Scripted(tmp_path, exact)
    shifted, *others = attribute(runner, case_of(runner, VLLM, LEARNER, told=told))
    assert (shifted.cause, shifted.confidence) == ("off-by-one", "proven")
    assert "shifted by +5 tokens" in shifted.summary
    assert all("stop before the limit" in each.summary for each in others), "the short ones do"


def test_a_shift_does_not_make_end_tokens_suspicious(tmp_path: Path) -> None:
    def told(response: Any) -> None:
        response.ended = True
        if response.sample % 2:
            response.logprobs = np.roll(response.logprobs, 1).tolist()

    runner = Scripted(tmp_path, exact)
    found = attribute(runner, case_of(runner, VLLM, LEARNER, told=told))
    proven = [each.cause for each in found if each.confidence == "proven"]
    assert "off-by-one" in proven
    summaries = [each.summary for each in found if each.cause == "eos-handling"]
    assert not any("have no log-probability" in summary for summary in summaries)
