"""Causes that are planted in real engines are named, first and alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpodoctor.probe.attribution.case import Attribution
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.results.results import NamedCause
from tests.probe.attribution.cases import faulty, plain
from tests.probe.attribution.conftest import Directories, Investigate
from tests.samples import sampled

ROPE = {"rope_theta": 3000.0, "rope_parameters": {"rope_type": "default", "rope_theta": 3000.0}}


def only(found: Attribution, cause: str) -> NamedCause:
    """The one cause that was named."""
    assert [each.cause for each in found.causes] == [cause], (found.verdict, found.causes)
    assert found.causes[0].title[1:] in found.verdict
    assert found.causes[0].remedies
    return found.causes[0]


def test_a_sampler_at_a_higher_temperature_than_reported(
    at: Directories, asked: Investigate
) -> None:
    _, found = asked(faulty(at.dense, "hot"), plain(at.dense))
    named = only(found, "temperature")
    assert named.confidence == "proven"
    assert named.figures["fitted"] == pytest.approx(1.25, rel=0.01)
    assert "the sampler is wrong" in named.summary


@pytest.mark.slow
def test_an_ignored_temperature_is_not_mistaken_for_raw_logprobs(
    at: Directories, asked: Investigate
) -> None:
    _, found = asked(faulty(at.dense, "hot"), plain(at.dense), sampling={"temperature": 0.8})
    assert "the sampler is wrong" in only(found, "temperature").summary


@pytest.mark.slow
def test_a_learner_left_at_temperature_1(at: Directories, asked: Investigate) -> None:
    cold = {"temperature": 0.7}
    _, found = asked(plain(at.dense), plain(at.dense), sampling=cold, processing=Processing())
    named = only(found, "temperature")
    assert "the learner is wrong" in named.summary
    assert named.figures["fitted"] == pytest.approx(0.7, rel=0.02)


def test_raw_logprobs(at: Directories, asked: Investigate) -> None:
    _, found = asked(faulty(at.dense, "raw"), plain(at.dense), sampling={"temperature": 0.6})
    named = only(found, "raw-logprobs")
    assert named.confidence == "proven"
    assert "temperature 0.6" in named.summary


@pytest.mark.slow
def test_raw_logprobs_of_a_truncated_sampler(at: Directories, asked: Investigate) -> None:
    _, found = asked(faulty(at.dense, "raw"), plain(at.dense), sampling={"top_k": 3})
    named = only(found, "raw-logprobs")
    assert named.confidence == "proven"
    assert "drew under top_k 3 and reports" in named.summary
    assert abs(named.figures["surplus_cut"]) < 0.1 * abs(named.figures["surplus"])


@pytest.mark.parametrize("cut", sampled([{"top_p": 0.8}, {"top_k": 4}, {"min_p": 0.1}], 3))
def test_a_requested_truncation(at: Directories, asked: Investigate, cut: dict[str, Any]) -> None:
    _, found = asked(plain(at.dense), plain(at.dense), sampling=cut)
    named = only(found, "truncation")
    assert named.confidence == "proven"
    assert {name: named.figures[name] for name in cut} == pytest.approx(cut)
    assert "no truncation was requested" not in named.summary


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "size"), [("top_k", 4), pytest.param("top_p", 0.8, marks=pytest.mark.slow)]
)
def test_a_truncation_that_was_not_requested(
    at: Directories, asked: Investigate, fault: str, size: float
) -> None:
    _, found = asked(faulty(at.dense, fault), plain(at.dense))
    named = only(found, "truncation")
    assert named.figures[fault] == pytest.approx(size, rel=0.02)
    assert "no truncation was requested" in named.summary


@pytest.mark.slow
def test_a_shifted_column(at: Directories, asked: Investigate) -> None:
    _, found = asked(faulty(at.dense, "shift"), plain(at.dense, dtype="bfloat16"))
    named, *others = found.causes
    assert (named.cause, named.confidence) == ("off-by-one", "proven")
    assert named.figures["shift"] == 1
    assert {each.cause for each in others} <= {"precision"}  # which the two sides differ in, too


@pytest.mark.slow
def test_a_tokenizer_that_adds_a_token(at: Directories, asked: Investigate) -> None:
    begin = at.variant("begin", at.dense, begin=True)
    _, found = asked(plain(begin), plain(at.dense))
    named = only(found, "prompt-ids")
    assert named.confidence == "proven"
    assert "the sampler puts token 2 first" in named.summary
    assert named.figures["differing"] == named.figures["prompts"]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        pytest.param("first_lost", "without its first token", marks=pytest.mark.slow),
        pytest.param("begun", "with token 2 first", marks=pytest.mark.slow),
    ],
)
def test_a_prompt_changed_without_notice(
    at: Directories, asked: Investigate, fault: str, told: str
) -> None:
    _, found = asked(faulty(at.dense, fault), plain(at.dense))
    named = only(found, "prompt-ids")
    assert named.confidence == "proven"
    assert named.explained == pytest.approx(1.0, abs=0.01)
    assert named.details == (told,)


@pytest.mark.slow
def test_a_prompt_cut_without_notice(at: Directories, asked: Investigate) -> None:
    _, found = asked(faulty(at.dense, "short"), plain(at.dense))
    assert only(found, "prompt-ids").details == ("cut to its last 8 tokens",)


@pytest.mark.slow
def test_a_truncation_at_another_temperature(at: Directories, asked: Investigate) -> None:
    _, found = asked(faulty(at.dense, "hot_top_k"), plain(at.dense))
    named = only(found, "truncation")
    assert (named.figures["top_k"], named.figures["temperature"]) == (8, 1.2)
    assert "they have temperature 1.2, the learner's 1" in named.summary


def test_dropped_end_tokens(at: Directories, asked: Investigate) -> None:
    _, found = asked(faulty(at.dense, "end_dropped"), plain(at.dense))
    assert "stop before the limit without an end token" in only(found, "eos-handling").summary


@pytest.mark.parametrize("fault", sampled(["other_end", "end_besides", "end"], {"end_besides"}))
def test_end_tokens_with_wrong_scores(at: Directories, asked: Investigate, fault: str) -> None:
    """Left out, the gap is gone either way. It is proven if it is at tokens that end responses on
    one side only: at an end token of both, a bias of the sampler causes the same gap."""
    _, found = asked(faulty(at.dense, fault), plain(at.dense))
    named = only(found, "eos-handling")
    assert named.confidence == ("proven" if fault == "other_end" else "likely")
    assert any(line.startswith("end ids") for line in named.details) == (fault != "end")


@pytest.mark.slow
def test_end_tokens_without_a_logprob(at: Directories, asked: Investigate) -> None:
    _, found = asked(faulty(at.dense, "end_lost"), plain(at.dense))
    assert "100% of the end tokens have no log-probability" in only(found, "eos-handling").summary


def test_stale_weights_by_the_samplers_directory(at: Directories, asked: Investigate) -> None:
    old = at.variant("old", at.dense, perturb=0.08)
    case, found = asked(plain(old), plain(at.dense))
    named = only(found, "stale-weights")
    assert case.differing
    assert named.confidence == "proven"
    assert named.explained == pytest.approx(1.0, abs=0.01)
    assert set(named.details[1:]) <= set(case.differing)


@pytest.mark.slow
def test_stale_weights_without_a_checkpoint_to_test(at: Directories, asked: Investigate) -> None:
    old = at.variant("old", at.dense, perturb=0.08)
    _, found = asked(faulty(at.dense, "none", weights=str(old)), plain(at.dense))
    named = only(found, "unknown")
    assert named.confidence == "possible"
    assert named.explained is None
    assert "what-if edits were tried" in named.summary


@pytest.mark.parametrize(
    ("tensors", "named_as"),
    [
        ("self_attn", "attention"),
        pytest.param(r"layers\.[12]\.mlp", "layers 1 to 2 MLP", marks=pytest.mark.slow),
    ],
)
def test_tensors_omitted_by_a_sync(
    at: Directories, asked: Investigate, tensors: str, named_as: str
) -> None:
    old = at.variant("old", at.dense, perturb=0.08)
    sampler = faulty(at.dense, "none", weights=str(old), weights_only=tensors)
    _, found = asked(sampler, plain(at.dense), stale=old)
    named = only(found, "partial-sync")
    assert named.confidence == "proven"
    assert named.details == (named_as,)


@pytest.mark.slow
def test_one_tensor_with_another_checksum(at: Directories, asked: Investigate) -> None:
    only_one = r"layers\.1\.self_attn\.q_proj\.weight"
    old = at.variant("old", at.dense, perturb=0.08)
    sampler = plain(at.dense, weights=str(old), weights_only=only_one)
    case, found = asked(sampler, plain(at.dense), stale=old)
    named = only(found, "partial-sync")
    assert named.confidence == "proven"
    assert case.differing == ("model.layers.1.self_attn.q_proj.weight",)
    assert named.details == ("layer 1 self_attn.q_proj.weight",)


@pytest.mark.parametrize(
    ("tensors", "named_as"),
    [
        pytest.param(
            r"layers\.1\.input_layernorm",
            "layer 1 input_layernorm.weight",
            marks=pytest.mark.slow,
        ),
        pytest.param(r"layers\.[03]\.self_attn", "layers 0, 3 attention", marks=pytest.mark.slow),
    ],
)
def test_single_tensors_omitted_by_a_sync(
    at: Directories, asked: Investigate, tensors: str, named_as: str
) -> None:
    old = at.variant("old", at.dense, perturb=0.08)
    sampler = faulty(at.dense, "none", weights=str(old), weights_only=tensors)
    _, found = asked(sampler, plain(at.dense), stale=old)
    assert only(found, "partial-sync").details == (named_as,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "named_as"),
    [pytest.param("mlp", "MLP", marks=pytest.mark.slow), ("self_attn", "attention")],
)
def test_which_modules_are_quantised(
    at: Directories, asked: Investigate, kind: str, named_as: str
) -> None:
    _, found = asked(plain(at.dense, quantise="int8", quantise_only=kind), plain(at.dense))
    assert only(found, "quantisation").details == (f"{named_as}: 100% of the effect",)


@pytest.mark.slow
def test_another_configuration(at: Directories, asked: Investigate) -> None:
    rope = at.variant("rope", at.dense, config=ROPE | {"max_position_embeddings": 1024})
    _, found = asked(plain(rope), plain(at.dense))
    named = only(found, "model-config")
    assert named.confidence == "proven"
    assert all(each.startswith("rope_") for each in named.details)


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_another_precision(at: Directories, asked: Investigate, dtype: str) -> None:
    _, found = asked(plain(at.dense, dtype=dtype), plain(at.dense))
    named = only(found, "precision")
    assert named.confidence == "proven"
    assert f"in {dtype}, the learner in float32" in named.summary


@pytest.mark.slow
def test_precision_is_named_before_flips_in_a_mixture(at: Directories, asked: Investigate) -> None:
    _, found = asked(plain(at.moe, dtype="bfloat16"), plain(at.moe), experts=True)
    assert found.causes[0].cause == "precision"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["int8", pytest.param("int4", marks=pytest.mark.slow)])
def test_quantised_weights(at: Directories, asked: Investigate, scheme: str) -> None:
    _, found = asked(plain(at.dense, quantise=scheme), plain(at.dense))
    named = only(found, "quantisation")
    assert named.confidence == "proven"
    assert any(each.startswith("MLP:") for each in named.details)


def test_tokens_of_quantised_weights_follow_no_processor(
    at: Directories, asked: Investigate
) -> None:
    """They are drawn from the quantized weights, not from those that close the gap."""
    half = {"dtype": "bfloat16"}
    sampler = plain(at.dense, quantise="int4", **half)
    _, found = asked(sampler, plain(at.dense, **half), sampling={"max_tokens": 96})
    assert only(found, "quantisation").confidence == "proven"


@pytest.mark.slow
def test_another_attention_kernel(at: Directories, asked: Investigate) -> None:
    half = {"dtype": "bfloat16"}
    _, found = asked(plain(at.dense, attention="eager", **half), plain(at.dense, **half))
    assert "with eager attention instead of sdpa" in only(found, "attention-kernel").summary


@pytest.mark.slow
def test_a_gap_that_grows_with_the_position(at: Directories, asked: Investigate) -> None:
    _, found = asked(faulty(at.dense, "drift"), plain(at.dense), sampling={"max_tokens": 112})
    named = only(found, "long-context-drift")
    assert named.confidence == "likely"
    assert named.figures["times"] > 4


@pytest.mark.slow
def test_a_gap_in_a_few_prompts(at: Directories, asked: Investigate) -> None:
    _, found = asked(faulty(at.dense, "subset"), plain(at.dense))
    named = only(found, "subset-of-sequences")
    assert named.explained == pytest.approx(1.0, abs=0.01)
    assert "they are all responses of 3 prompts" in named.summary
    assert named.details[0] == "prompt 0 sample 0"


@pytest.mark.slow
def test_a_truncation_at_another_temperature_under_rounding(
    at: Directories, asked: Investigate
) -> None:
    """The sampler's own scores lack the fault, so their rounding explains little of its gap."""
    _, found = asked(faulty(at.dense, "hot_top_k", dtype="bfloat16"), plain(at.dense))
    first, *others = found.causes
    assert first.cause == "truncation"
    assert first.figures["top_k"] == 8
    assert first.figures["temperature"] == pytest.approx(1.2, rel=0.01)
    assert all((each.explained or 0.0) < 0.2 for each in others)


@pytest.mark.slow
@pytest.mark.parametrize("gates", [r"mlp\.gate\.", r"layers\.1\.mlp\.gate\."])
def test_changed_router_weights_are_not_mistaken_for_something_else(
    at: Directories, asked: Investigate, gates: str
) -> None:
    """Neither for flips, nor for an edit that imitates half of the gap, nor for a drift."""
    mixed = at.variant("mixed", at.moe, perturb=0.3, only=gates)
    sampler = faulty(at.moe, "none", weights=str(mixed), weights_only=gates)
    _, found = asked(sampler, plain(at.moe), experts=True)
    # The same experts weighed otherwise are not the same: a replay does not close this gap.
    assert {each.cause: each.confidence for each in found.causes} == {"unknown": "possible"}


@pytest.mark.slow
def test_flips_are_proven_by_replay(at: Directories, asked: Investigate) -> None:
    _, found = asked(faulty(at.moe, "flips"), plain(at.moe), experts=True)
    named = only(found, "router-flips")
    assert named.confidence == "proven"
    assert named.explained == pytest.approx(1.0, abs=0.01)
    assert named.figures["coverage"] == 1
    assert "replaying the sampler's experts in the learner removes 100% of it" in named.summary


@pytest.mark.slow
def test_flips_are_proven_by_a_reference_where_the_learner_cannot_replay(
    at: Directories, asked: Investigate
) -> None:
    _, found = asked(faulty(at.moe, "flips"), faulty(at.moe, "none"), experts=True)
    named = found.causes[0]
    assert (named.cause, named.confidence) == ("router-flips", "proven")


@pytest.mark.slow
def test_scores_that_depend_on_neighbours(at: Directories, asked: Investigate) -> None:
    _, found = asked(faulty(at.dense, "neighbours"), plain(at.dense))
    named = only(found, "batch-variance")
    assert named.details == ("sampler",)


@pytest.mark.slow
def test_tokens_not_drawn_from_the_reported_distribution(
    at: Directories, asked: Investigate
) -> None:
    _, found = asked(faulty(at.dense, "speculative"), plain(at.dense))
    named = only(found, "wrong-sampler")
    assert named.figures["z"] < -6
    assert found.verdict.endswith("The reported log-probabilities of these tokens agree.")


@pytest.mark.slow
def test_two_causes_at_once(at: Directories, asked: Investigate) -> None:
    old = at.variant("old", at.dense, perturb=0.08)
    _, found = asked(faulty(at.dense, "hot", weights=str(old)), plain(at.dense), stale=old)
    assert {each.cause for each in found.causes} == {"temperature", "stale-weights"}
    assert all(each.confidence == "proven" for each in found.causes)
    assert sum(each.explained or 0 for each in found.causes) == pytest.approx(1, abs=0.02)
    assert found.left == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize(
    ("kind", "options", "sampling"),
    [
        ("dense", {}, {}),
        pytest.param("dense", {"dtype": "bfloat16"}, {}, marks=pytest.mark.slow),
        pytest.param("dense", {}, {"temperature": 0.6}, marks=pytest.mark.slow),
        ("moe", {"dtype": "bfloat16"}, {}),
    ],
)
def test_agreeing_engines_have_no_causes(
    at: Directories,
    asked: Investigate,
    kind: str,
    options: dict[str, Any],
    sampling: dict[str, Any],
) -> None:
    model: Path = getattr(at, kind)
    engine: EngineSpec = plain(model, **options)
    _, found = asked(engine, engine, sampling=sampling, experts=kind == "moe")
    assert found.causes == ()
    assert found.left is None
    assert found.verdict.startswith("The engines agree")
