"""The place of an unexplained gap: from simulated differences, and in planted pairs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from grpodoctor.errors import EngineError
from grpodoctor.probe.attribution.causes.weights import unexplained
from grpodoctor.probe.attribution.localisation.description import facts
from grpodoctor.probe.attribution.localisation.locate import Location, judged, located
from grpodoctor.probe.attribution.localisation.place_fit import Measured
from grpodoctor.probe.attribution.localisation.place_names import contains, in_words
from grpodoctor.probe.attribution.tokens import Floats, Tokens
from grpodoctor.probe.attribution.variant import Setup, Variant
from grpodoctor.probe.contract import Processing
from grpodoctor.probe.engines.jobs import BudgetSpentError
from grpodoctor.probe.engines.sensitivities import FILE, read_sensitivities
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from tests.benchmarks import bench_localisation

TOKENS, CELLS = 240, 96
BLOCKS = tuple(f"{layer}.{block}" for layer in range(2) for block in ("attn", "mlp"))


def simulated(where: str, seed: int) -> Measured:
    """Differences that a random change at some places causes, next to a little noise."""
    generator = np.random.default_rng(seed)
    features = {
        name: generator.normal(size=(TOKENS, CELLS)) * generator.gamma(0.5, size=(TOKENS, 1))
        for name in ("embedding", *BLOCKS, "head")
    }
    norms = {f"{name}/norms": values[:, :8] for name, values in features.items()}
    changed = [name for name in features if where in (name, "everywhere") or contains(where, name)]
    difference = 0.2 * generator.normal(size=TOKENS)
    for name in changed:
        difference += features[name] @ generator.normal(size=CELLS) / np.sqrt(CELLS)
    logprob = -generator.gamma(1.0, size=TOKENS)
    return Measured(
        difference_N=np.clip(difference, -3, 3),
        prompt_N=np.repeat(np.arange(24), TOKENS // 24),
        logprob_N=logprob,
        entropy_N=-logprob * generator.uniform(0.5, 1.5, size=TOKENS),
        spread_N=np.ones(TOKENS),
        features=features | norms,
        effects={"embedding": generator.normal(size=(2, TOKENS))},
    )


@pytest.mark.parametrize("where", ["embedding", "1.attn", "0.mlp", "all mlp", "layer 1"])
@pytest.mark.parametrize("seed", range(2))
def test_the_place_whose_change_moves_these_tokens_is_named(where: str, seed: int) -> None:
    found = judged(simulated(where, seed))
    assert found.place == where
    assert found.margin > 0


@pytest.mark.parametrize("seed", range(2))
def test_a_change_of_the_logits_is_no_place(seed: int) -> None:
    found = judged(simulated("head", seed))
    assert found.at_logits
    assert found.place == ""
    assert "temperature" in unexplained._place_details(found)[0]


@pytest.mark.parametrize("where", ["nowhere", "everywhere"])
@pytest.mark.parametrize("seed", range(6))
def test_no_place_is_named_for_noise_and_for_changes_in_all_places(where: str, seed: int) -> None:
    assert judged(simulated(where, seed)).place == ""


def test_a_difference_of_the_tokens_own_probabilities_has_no_place() -> None:
    given = simulated("nowhere", 3)
    noise = 0.01 * np.random.default_rng(1).normal(size=TOKENS)
    temperature = 0.2 * (given.logprob_N + given.entropy_N) + noise
    found = judged(
        Measured(
            temperature,
            given.prompt_N,
            given.logprob_N,
            given.entropy_N,
            given.spread_N,
            given.features,
            given.effects,
        )
    )
    assert found.place == ""
    assert found.own_share > 0.9


def test_a_correction_is_tested_on_prompts_to_which_it_was_not_fitted() -> None:
    given = simulated("nowhere", 5)
    effect = np.random.default_rng(2).normal(size=(1, TOKENS))
    changed = Measured(
        given.difference_N + effect[0],
        given.prompt_N,
        given.logprob_N,
        given.entropy_N,
        given.spread_N,
        given.features,
        {"1.mlp": effect},
    )
    found = judged(changed)
    assert found.place == "1.mlp"
    assert found.held_out > 0.85
    assert found.rival_held_out < 0.2


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("3.self_attn", "layer 3 self_attn"),
        ("all mlp", "mlp in all layers"),
        ("head", "the output head with its norm"),
    ],
)
def test_places_have_names_in_words(place: str, words: str) -> None:
    assert in_words(place) == words


def test_a_place_contains_its_blocks_only() -> None:
    assert contains("all mlp", "1.mlp")
    assert contains("layer 1", "1.mlp")
    assert not contains("layer 1", "2.mlp")
    assert not contains("1.mlp", "1.mlp")
    assert not contains("layer 1", "head")


def test_the_finding_states_the_place_and_what_to_compare() -> None:
    place = Location(
        place="1.mlp", words="layer 1 mlp", rival="the embeddings", margin=21.0, held_out=0.94,
        rival_held_out=0.21,
    )  # fmt: skip
    name = unexplained._with_place(unexplained._UNKNOWN, place)
    assert name.title == "The cause is unknown; if the model differs, most likely in layer 1 mlp"
    assert name.remedies[0].startswith("Sync the sampler's weights once")  # the cheapest test
    assert "layer 1 mlp" in name.remedies[1]
    detail, caveat = unexplained._place_details(place)
    assert caveat.startswith("no experiment verifies this place")
    assert "94%" in detail
    assert "21%" in detail


def test_the_finding_says_that_no_place_fits_or_was_examined() -> None:
    none = Location()
    assert unexplained._with_place(unexplained._UNKNOWN, none) is unexplained._UNKNOWN
    assert "no place" in unexplained._place_details(none)[0]
    spent = unexplained._place_details(Location(reason="the time budget ended"))
    assert spent == ("the places of the model were not examined: the time budget ended",)


class _Spent:
    """Stands for experiments whose time is used up."""

    runner = SimpleNamespace(run=None)

    def folder_of(self, _variant: Variant, _rows: set[int]) -> Path:
        raise BudgetSpentError("the time budget is spent")


def test_a_spent_budget_and_an_engine_without_gradients_are_reasons() -> None:
    tokens = tokens_of(np.full(400, 0.1))
    learner = EngineSpec.of("transformers", "model", {})
    spent = located(_Spent(), Variant(Setup(learner, Processing()), tokens))
    assert spent.reason == "the time budget ended"
    server = EngineSpec.of("vllm", "model", {})
    other = located(_Spent(), Variant(Setup(server, Processing()), tokens))
    assert "no gradients" in other.reason


def described(difference_N: Floats, lengths: int = 20, prompt_lengths: int = 10) -> str:
    """The facts about differences of responses of equal lengths, one of each prompt."""
    return "; ".join(facts(tokens_of(difference_N, lengths, prompt_lengths), noise=1e-9))


def tokens_of(difference_N: Floats, lengths: int = 20, prompt_lengths: int = 10) -> Tokens:
    count = difference_N.size // lengths
    learner_N = np.full(difference_N.size, -1.0)
    return Tokens(
        sampler_N=learner_N - difference_N,
        learner_N=learner_N,
        lengths_B=np.full(count, lengths),
        prompt_B=np.arange(count),
        sample_B=np.zeros(count, np.int64),
        prompt_lengths_B=np.full(count, prompt_lengths),
        ended_B=np.zeros(count, np.bool_),
        cached_B=np.zeros(count, np.int64),
        counted_N=np.ones(difference_N.size, np.bool_),
        ids_N=np.arange(difference_N.size) % 50,
    )


def test_facts_of_the_tokens() -> None:
    generator = np.random.default_rng(0)
    plain = 0.1 * generator.normal(size=(40, 20))
    assert described(plain.ravel()) == ""
    late = np.where(np.arange(20) >= 8, plain, 0.0)
    assert "no token before position 9 of its response differs" in described(late.ravel())
    grown = plain * np.linspace(0.2, 2, 20)
    assert "second half" in described(grown.ravel())
    assert "first half" in described(grown[:, ::-1].ravel())
    assert "lower than the learner's" in described(np.abs(plain).ravel())
    few = np.where(generator.random(plain.shape) < 0.1, plain, 0.0)
    assert "of the tokens differ" in described(few.ravel())
    single = 1e-3 * plain.ravel()
    single[np.arange(single.size) % 50 == 7] = -1.0
    assert "token 7 carries" in described(single)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "options", "place"),
    [
        ("gpt_neox", {"weights": "STALE", "weights_only": r"layers\.1\.mlp"}, "1.mlp"),
        ("llama", {"faults": "window:12"}, "all self_attn"),
        ("llama", {"faults": "hidden_temperature:1.25"}, ""),
    ],
)
def test_planted_places(tmp_path: Path, family: str, options: dict[str, str], place: str) -> None:
    faults = options.pop("faults", "")
    plant = bench_localisation.Plant(family, faults, (), options=options)
    assert bench_localisation.location(plant, tmp_path).place == place


def test_arrays_of_an_engine_are_checked(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no sensitivities"):
        read_sensitivities(tmp_path)
    good = {name: np.ones(3) for name in ("token_N", "logprob_N", "entropy_N", "spread_N")}
    np.savez(tmp_path / FILE, **good, **{"effects/head": np.ones((2, 3))})
    assert read_sensitivities(tmp_path)["effects/head"].shape == (2, 3)
    np.savez(tmp_path / FILE, **good, **{"features/head": np.full((3, 2), np.nan)})
    with pytest.raises(EngineError, match="not finite"):
        read_sensitivities(tmp_path)
    np.savez(tmp_path / FILE, **good, **{"features/head": np.ones((2, 3))})
    with pytest.raises(EngineError, match="other tokens"):
        read_sensitivities(tmp_path)
    np.savez(tmp_path / FILE, token_N=np.ones(3))
    with pytest.raises(EngineError, match="lack logprob_N"):
        read_sensitivities(tmp_path)
