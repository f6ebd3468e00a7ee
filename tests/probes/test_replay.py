"""Expert replay in the learner, on real mixtures of experts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from grpodoctor.probe.comparison.experts import compare_experts
from tests.probes.columns import joined
from tests.probes.conftest import engine
from tests.probes.models import texts
from tests.probes.programs import Ran, score
from tests.probes.test_transformers import tiny_mixture


def drawn(model: Path, want: Sequence[str] = ("experts",), **options: Any) -> list:
    from contract import Sampling

    source = engine(model, **options)
    ids = source.tokenise([{"text": text} for text in texts(6)])
    return source.sample(ids, Sampling(samples=3, max_tokens=40), want)


def sets(responses: Sequence[Any]) -> np.ndarray:
    return np.sort(joined(responses, "experts"), axis=2)


def k3(learner: Sequence[Any], sampler: Sequence[Any]) -> float:
    difference = joined(learner) - joined(sampler)
    return float(np.mean(np.exp(difference) - difference - 1))


def with_experts(responses: Sequence[Any], experts: Sequence[np.ndarray]) -> list:
    return [
        replace(each, extras={"experts": own}) for each, own in zip(responses, experts, strict=True)
    ]


@pytest.fixture(scope="module")
def rough(moe_model: Path) -> list:
    """Responses of the mixture, routed to another expert for each token in two of four layers.

    Nothing else differs, so replay closes the gap on any processor. Routers with noise would also
    weight the experts differently.
    """
    from contract import Processing

    source = engine(moe_model)
    own = drawn(moe_model)
    return source.replay(
        with_experts(own, [rerouted(each.extras["experts"]) for each in own]),
        Processing(),
        ("experts",),
    )


def rerouted(experts_NLK: np.ndarray) -> np.ndarray:
    """The first expert that was not chosen, in place of the last one in the layers 0 and 2."""
    other_NLK = experts_NLK.copy()
    for layer in (0, 2):
        for chosen_K in other_NLK[:, layer]:
            chosen_K[-1] = next(e for e in range(len(chosen_K) + 1) if e not in chosen_K)
    return other_NLK


@pytest.mark.parametrize("order", [1, -1])
def test_replaying_its_own_experts_changes_no_bit(moe_model: Path, order: int) -> None:
    """In any order of the experts."""
    from contract import Processing

    source = engine(moe_model)
    free = source.score(drawn(moe_model), Processing(), ("experts",))
    own = with_experts(free, [each.extras["experts"][..., ::order] for each in free])
    held = source.replay(own, Processing(), ("experts",))
    assert (joined(held) == joined(free)).all()
    assert (joined(held, "experts") == joined(free, "experts")).all()


@pytest.mark.parametrize("family", ["mixtral", "qwen2_moe", "olmoe", "gpt_oss", "granitemoe"])
def test_replayed_experts_use_the_routers_softmax(family: str, tmp_path: Path) -> None:
    """Compared with routers that a hook restricts to the same two experts for all tokens."""
    from contract import Processing, Response

    source = engine(tiny_mixture(family, tmp_path))
    response = Response([7], list(range(20, 40)))
    layers, chosen = len(source._routers.modules), [3, 1]
    response.extras["experts"] = np.tile(np.array(chosen, np.int16), (20, layers, 1))
    [held] = source.replay([response], Processing(), ("experts",))
    assert (np.sort(held.extras["experts"], axis=2) == [1, 3]).all()

    def narrowed(router: Any, _arguments: Any, output: Any) -> Any:
        logits, weights, _ = output
        ids = torch.tensor(chosen).expand(len(logits), 2)
        told = torch.softmax(logits.float(), dim=-1)[:, chosen]
        if getattr(router, "norm_topk_prob", True):
            told = torch.softmax(logits[:, chosen].float(), dim=-1)
        return logits, told.to(weights.dtype), ids

    hooks = [each.register_forward_hook(narrowed) for each in source._routers.modules]
    [told] = source.score([response], Processing(), ())
    for hook in hooks:
        hook.remove()
    [free] = source.score([response], Processing(), ())
    assert np.abs(joined([held]) - joined([told])).max() < 1e-5
    assert np.abs(joined([held]) - joined([free])).max() > 1e-4


@pytest.mark.parametrize("batch_tokens", [1, 2048])
def test_replay_closes_the_gap_of_flips(moe_model: Path, rough: list, batch_tokens: int) -> None:
    from contract import Processing

    source = engine(moe_model, batch_tokens=batch_tokens)
    free = source.score(rough, Processing(), ("experts",))
    held = source.replay(rough, Processing(), ("experts", "entropy"))
    assert (sets(free) != sets(rough)).any(axis=(1, 2)).mean() > 0.3
    assert (sets(held) == sets(rough)).all()
    assert k3(held, rough) < 1e-3 * k3(free, rough)
    # Margins are those of the routers' own choice.
    assert set(held[0].extras) == {"experts", "entropy", "router_margin"}
    assert set(source.replay(rough[:1], Processing(), ())[0].extras) == set()


def test_experts_of_a_bfloat16_sampler_are_replayed(moe_model: Path) -> None:
    from contract import Processing

    sampled = drawn(moe_model, dtype="bfloat16")
    source = engine(moe_model)
    free = source.score(sampled, Processing(), ("experts",))
    held = source.replay(sampled, Processing(), ("experts",))
    assert (sets(free) != sets(sampled)).any()
    assert (sets(held) == sets(sampled)).all()
    assert (joined(held) != joined(free)).any()


def test_missing_experts_leave_the_choice_to_the_router(moe_model: Path, rough: list) -> None:
    """From a token on, in one layer, or for one of a token's experts."""
    from contract import Processing

    source = engine(moe_model)
    free = source.score(rough, Processing(), ("experts",))
    nothing = with_experts(rough, [np.full_like(each.extras["experts"], -1) for each in rough])
    assert (joined(source.replay(nothing, Processing(), ())) == joined(free)).all()
    some = [each.extras["experts"].copy() for each in rough]
    for experts in some:
        experts[3:, :, 1] = -1
        experts[:, 2] = -1
    held = source.replay(with_experts(rough, some), Processing(), ("experts",))
    found, wanted = sets(held), sets(rough)
    known = (np.concatenate(some) >= 0).all(axis=2)
    assert (found == wanted).all(axis=2)[known].all()
    assert not (found == wanted).all(axis=2)[~known].all()
    # The first tokens are known whole but for the third layer.
    first = np.cumsum([0, *(len(each.response_ids) for each in rough)])[:-1]
    assert (found[first, 0] == wanted[first, 0]).all()


def test_the_first_row_belongs_to_the_last_prompt_token(moe_model: Path, rough: list) -> None:
    """It is the one that predicts the first of the response; those before it are not forced."""
    from contract import Processing

    source = engine(moe_model)
    free = source.score(rough, Processing(), ())
    only = [np.full_like(each.extras["experts"], -1) for each in rough]
    for own, each in zip(only, rough, strict=True):
        own[0] = each.extras["experts"][0]
    held = source.replay(with_experts(rough, only), Processing(), ())
    moved = [one.logprobs[0] != two.logprobs[0] for one, two in zip(held, free, strict=True)]
    assert np.mean(moved) > 0.1


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda experts: experts[:-1], "experts of shape (39, 4, 2) to replay, but"),
        (lambda experts: experts[:, :3], "experts of shape (40, 3, 2)"),
        (lambda experts: experts[:, :, :1], "experts of shape (40, 4, 1)"),
        (lambda experts: np.full_like(experts, 8), "has the expert 8 to replay, but this model"),
        (lambda experts: np.full_like(experts, -2), "has the expert -2 to replay"),
        (np.zeros_like, "routed to the same expert twice in a layer"),
        (lambda _: None, "experts of shape None"),
    ],
)
def test_experts_of_another_model_are_refused(
    moe_model: Path, rough: list, spoil: Any, told: str
) -> None:
    from contract import Processing, RefusalError

    whole = next(each for each in rough if len(each.response_ids) == 40)
    [wrong] = with_experts([whole], [spoil(whole.extras["experts"])])
    with pytest.raises(RefusalError) as refused:
        engine(moe_model).replay([wrong], Processing(), ())
    assert told in refused.value.what
    assert "\n" not in refused.value.what


def test_a_model_without_experts_or_with_other_routers_is_refused(
    dense_model: Path, tmp_path: Path
) -> None:
    from contract import Processing, RefusalError, Response

    experts = np.tile(np.array([0, 1], np.int16), (2, 2, 1))
    response = Response([7], [8, 9], extras={"experts": experts})
    with pytest.raises(RefusalError, match="has no experts to replay"):
        engine(dense_model).replay([response], Processing(), ())
    with pytest.raises(RefusalError, match="forced on a DeepseekV3TopkRouter: its weights are not"):
        engine(tiny_mixture("deepseek_v3", tmp_path)).replay([response], Processing(), ())


def served(folder: Path, load: Any, tasks: Sequence[dict[str, Any]]) -> Ran:
    """Run an engine program in this process."""
    import contract

    answer, request = folder / "answer.json", folder / "request.json"
    told = {"contract": 1, "model": "", "options": {}, "answer": str(answer)}
    own = [{"output": str(folder / each["name"]), **each} for each in tasks]
    request.write_text(json.dumps(told | {"tasks": own}))
    code = 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", ["", str(request)])
        try:
            contract.serve(load)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Ran(code, folder, json.loads(answer.read_text()))


def shards(folder: Path, responses: Sequence[Any]) -> Path:
    from contract import write_shard

    folder.mkdir()
    for number in range(2):
        write_shard(folder / f"shard-{number:05d}.npz", responses[number::2])
    return folder


@pytest.fixture(scope="module")
def ran(moe_model: Path, rough: list, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Scores of the rerouted responses: free, replayed, and replayed in reverse order."""
    folder = tmp_path_factory.mktemp("replay")
    inputs = shards(folder / "sample", rough)
    tasks = [
        score(inputs, name="free", want=["experts"]),
        score(inputs, name="held", want=["experts"], replay=True),
        score(inputs, name="back", want=["experts"], replay=True, order="reversed"),
    ]
    return served(folder, lambda *_: engine(moe_model), tasks)


def test_the_program_replays_the_experts_of_its_inputs(ran: Ran) -> None:
    drawn, free, held, back = map(ran.arrays, ("sample", "free", "held", "back"))
    assert ran.answer["tasks"]["held"]["tokens"] == len(drawn["logprobs_N"])
    gaps = [np.abs(each["logprobs_N"] - drawn["logprobs_N"]).mean() for each in (free, held)]
    assert gaps[1] < 1e-2 * gaps[0]
    assert np.abs(held["logprobs_N"] - back["logprobs_N"]).max() < 5e-5


def test_coverage_and_agreement_of_a_replay(ran: Ran) -> None:
    comparison = compare_experts(ran.folder / "sample", ran.folder / "held").comparison
    assert comparison is not None
    assert (comparison.coverage, comparison.agreement) == (1.0, 1.0)
    comparison = compare_experts(ran.folder / "sample", ran.folder / "free").comparison
    assert comparison is not None
    assert comparison.agreement is not None
    assert comparison.agreement < 0.95


class Plain:
    """An engine that can only score."""

    def describe(self) -> dict[str, Any]:
        return {"name": "plain"}

    def close(self) -> None:
        pass


def test_inputs_without_experts_are_refused(moe_model: Path, tmp_path: Path) -> None:
    inputs = shards(tmp_path / "inputs", drawn(moe_model, want=()))
    task = score(inputs, replay=True)
    told = served(tmp_path, lambda *_: engine(moe_model), [task]).error["what"]
    assert told == f"{inputs}/shard-00000.npz has no routed experts to replay"


@pytest.mark.parametrize("spoilt", [np.zeros((3, 4, 2), np.int16), np.zeros((3, 4)), None])
def test_experts_of_the_wrong_shape_are_refused(
    moe_model: Path, rough: list, tmp_path: Path, spoilt: Any
) -> None:
    path = shards(tmp_path / "inputs", rough) / "shard-00000.npz"
    with np.load(path) as arrays:
        own = dict(arrays)
    wrong = own["experts_NLK"].astype(np.float32) if spoilt is None else spoilt
    np.savez(path, **(own | {"experts_NLK": wrong}))
    task = score(path.parent, replay=True)
    error = served(tmp_path, lambda *_: engine(moe_model), [task]).error
    assert "the shard shard-00000.npz cannot be used: experts_NLK has" in error["what"]


def test_an_engine_without_replay_refuses(rough: list, tmp_path: Path) -> None:
    task = score(shards(tmp_path / "inputs", rough), replay=True)
    error = served(tmp_path, lambda *_: Plain(), [task]).error
    assert error["what"] == "plain cannot replay the experts of another engine"
    assert "transformers" in error["remedy"]
