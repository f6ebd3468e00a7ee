"""A sample of `tests/benchmarks/bench_unseen_causes.py`: planted faults of several families."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.bench_unseen_causes import (
    Outcome,
    best_share,
    limited_outcome,
    outcome,
    sampled,
)
from tests.probe.plants.catalogue import Plant, plants, unseen

SAMPLE = (
    pytest.param("mistral: healthy", marks=pytest.mark.slow),
    pytest.param("llama: window:12", marks=pytest.mark.slow),
    "gpt_neox: shift:1",
    "phi: log2 (learner)",
    "lfm2: healthy",
    pytest.param("nemotron: every_fourth:1.4", marks=pytest.mark.slow),
    "starcoder2: end_zero",
    pytest.param("stablelm: first_raw", marks=pytest.mark.slow),
    pytest.param("qwen3: mlp_slice_lost:1,1,2", marks=pytest.mark.slow),
    pytest.param("lfm2_moe: state_rows", marks=pytest.mark.slow),
)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plants")


@pytest.mark.parametrize("name", SAMPLE)
def test_a_planted_fault_is_named(root: Path, name: str) -> None:
    plant = next(each for each in (*plants(), *unseen()) if each.name == name)
    found = outcome(plant, root)
    assert found.named, (found.causes, found.verdict)
    assert not found.wrongly_proven
    assert not found.missed_silently


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("mixtral: hidden_top_p:0.9+rope_theta:500", {"rope-base", "truncation"}),
        ("qwen3_moe: dtype:bfloat16", {"precision"}),
    ],
)
def test_causes_are_judged_by_numbers_that_fit_together(
    root: Path, name: str, causes: set[str]
) -> None:
    """A number that is slightly wrong, or another kernel's rounding, is no further cause."""
    plant = next(each for each in plants() if each.name == name)
    found = outcome(plant, root)
    assert dict(found.causes) == dict.fromkeys(causes, "proven"), found.verdict


@pytest.mark.slow
def test_an_unknown_fault_is_called_unknown(root: Path) -> None:
    plant = Plant("llama", "noise:0.1", (frozenset({"unknown"}),))
    found = outcome(plant, root)
    assert [sure for _, sure in found.causes] == ["possible"]
    assert found.severity in ("warning", "critical")


_STALE_LAYER = {"weights": "STALE", "weights_only": r"layers\.1\."}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "cause", "sampling"),
    [
        ("begun", "prompt-ids", {}),
        ("", "truncation", {"top_p": 0.9}),
    ],
)
def test_a_stale_layer_is_named_next_to_another_fault(
    root: Path, faults: str, cause: str, sampling: dict[str, float]
) -> None:
    plant = Plant(
        "llama", faults, (frozenset({cause}), frozenset({"partial-sync"})), stale=True,
        options=_STALE_LAYER, sampling=sampling,
    )  # fmt: skip
    found = outcome(plant, root)
    assert dict(found.causes) == {cause: "proven", "partial-sync": "proven"}, found.verdict
    assert any("with layer 1 of llama-stale in the learner" in each for each in found.summaries)


@pytest.mark.slow
def test_a_penalty_that_raw_log_probabilities_lack_is_proven(root: Path) -> None:
    plant = Plant("gemma2", "raw+repetition:1.3", (frozenset({"repetition-penalty"}),))
    found = outcome(plant, root)
    assert dict(found.causes) == {"repetition-penalty": "proven"}, found.summaries
    assert found.severity == "warning"


def test_a_sample_has_plants_of_each_group() -> None:
    wanted = [plant for plant in plants() if plant.family in ("llama", "phi")]
    chosen = sampled(wanted, 0.1, seed=3)
    assert {plant.group for plant in chosen} == {plant.group for plant in wanted}
    assert len(chosen) < 0.3 * len(wanted)
    assert chosen == sampled(wanted, 0.1, seed=3)
    assert sampled(wanted, 1.0, seed=None) == wanted
    shuffled = sampled(wanted, 1.0, seed=3)
    assert shuffled != wanted
    assert {plant.key for plant in shuffled} == {plant.key for plant in wanted}


def test_copied_samples_are_no_biased_tokens(root: Path) -> None:
    """The copies repeat the chance of their tokens, which is then no evidence of a bias."""
    plant = next(each for each in plants() if each.name == "llama: same_seed")
    found = outcome(plant, root)
    assert dict(found.causes) == {"duplicate-samples": "likely"}, found.summaries
    assert found.severity == "warning"


def test_a_share_is_fitted_to_wrong_causes_of_other_families() -> None:
    def said(family: str, cause: str, share: float) -> Outcome:
        plant = Plant(family, "window:12", (frozenset({"sliding-window"}),))
        causes = ((cause, "likely"),)
        return Outcome(plant, causes, "", "warning", 1.0, 0.1, explained=(share,))

    right, wrong = said("llama", "sliding-window", 0.6), said("phi", "kv-cache", 0.25)
    assert best_share([right]) == 0
    assert best_share([right, wrong]) == 0.3
    assert [right.score(0.3), wrong.score(0.3), wrong.score(0.2)] == [(1, 0), (0, 0), (0, 1)]


def test_two_kernels_of_a_healthy_pair_may_be_named_as_the_origin_of_rounding() -> None:
    """The report says that the engines agree, and where the rounding comes from."""
    agree = "The engines agree within the precision of bfloat16 and bfloat16. Rounding: kernels."
    plant = Plant("hy_v3", "", (), options={"attention": "eager"})

    def said(one: Plant, cause: str, verdict: str, severity: str) -> Outcome:
        return Outcome(one, ((cause, "proven"),), verdict, severity, 1.0, 0.0, explained=(1.0,))

    right = said(plant, "attention-kernel", agree, "info")
    assert right.named
    assert not right.wrongly_proven
    assert right.score(0.0) == (1, 0)
    equal = Plant("hy_v3", "", (), options={"attention": "eager"}, others={"attention": "eager"})
    for wrong in (
        said(plant, "attention-kernel", "The engines differ: kernels.", "warning"),
        said(plant, "attention-kernel", agree, "warning"),
        said(plant, "kv-cache", agree, "info"),
        said(equal, "attention-kernel", agree, "info"),
    ):
        assert not wrong.named
        assert wrong.wrongly_proven


def test_a_pair_is_stopped_after_its_computing_time() -> None:
    one = limited_outcome(next(unseen()), 1)
    assert one.error == "stopped after 1 s of computing time"
    assert not one.named


@pytest.mark.slow
def test_a_pair_that_ends_in_time_has_the_outcome_of_its_own_process() -> None:
    healthy = next(plant for plant in unseen() if plant.key.startswith("unseen-healthy/gemma3"))
    one = limited_outcome(healthy, 120)
    assert one.named
    assert not one.error
