"""The engine of transformers against transformers itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM

from tests.probe.plants.families import checkpoint, prompts
from tests.probes.columns import joined
from tests.probes.conftest import PROBES, engine
from tests.probes.models import (
    BOS,
    EOS,
    ROWS,
    dense,
    messages,
    prompts_file,
    texts,
    tokenizer,
    variant,
)

SETTINGS = {"temperature": 0.8, "top_p": 0.95, "top_k": 20, "min_p": 0.01}


def sampled(model: Path, *, want: Sequence[str] = (), prompts: int = 6, **settings: Any) -> list:
    from contract import Sampling

    source = engine(model)
    ids = source.tokenise([{"text": text} for text in texts(prompts)])
    return source.sample(ids, Sampling(**{"samples": 3, "max_tokens": 40, **settings}), want)


@pytest.fixture(scope="module")
def responses(dense_model: Path) -> list:
    return sampled(dense_model)


def plain(model: Path, responses: Sequence[Any], temperature: float = 1.0) -> np.ndarray:
    """Log-probabilities by the shortest way: one response at a time, all logits at once."""
    theirs = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    found = []
    for each in responses:
        ids = torch.tensor([[*each.prompt_ids, *each.response_ids[:-1]]])
        with torch.no_grad():
            logits = theirs(input_ids=ids).logits[0, len(each.prompt_ids) - 1 :]
        told = torch.log_softmax(logits / temperature, dim=-1)
        found.append(told.gather(1, torch.tensor(each.response_ids)[:, None])[:, 0].numpy())
    return np.concatenate(found)


def test_the_test_models_are_peaked(responses: list) -> None:
    probabilities = np.exp(joined(responses))
    assert 0.25 < probabilities.mean() < 0.55
    assert 0.12 < (probabilities > 0.9).mean() < 0.5


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_scores_equal_the_plain_model(
    dense_model: Path, responses: list, temperature: float
) -> None:
    from contract import Processing

    processing = Processing(temperature)
    plainly = plain(dense_model, responses, temperature)
    alone = engine(dense_model, batch_tokens=1).score(responses, processing, ())
    gap = np.abs(joined(alone) - plainly)
    # Matrix products of fewer rows round otherwise; from equal logits it is 1e-6 (test_scoring.py).
    assert gap.mean() < 1e-6
    assert gap.max() < 1e-5
    together = engine(dense_model, batch_tokens=512).score(responses, processing, ())
    assert np.abs(joined(together) - plainly).max() < 2e-5


def test_a_chunk_of_logits_at_a_time_gives_the_same(
    dense_model: Path, responses: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contract import Processing
    from hf import logits

    source = engine(dense_model, batch_tokens=2048)
    widths: list[int] = []
    whole = source.score(responses, Processing(), ("entropy",))
    monkeypatch.setitem(logits._CHUNK_ENTRIES, "cpu", 32 * ROWS)
    head = source._model.get_output_embeddings()
    with head.register_forward_hook(lambda _m, _a, out: widths.append(out.shape[:-1].numel())):
        pieces = source.score(responses, Processing(), ("entropy",))
    assert max(widths) <= 32
    assert np.abs(joined(pieces) - joined(whole)).max() < 2e-5
    assert np.abs(joined(pieces, "entropy") - joined(whole, "entropy")).max() < 2e-5


@pytest.mark.parametrize("which", ["dense_model", "moe_model"])
def test_an_engine_scores_its_own_samples_alike(request: pytest.FixtureRequest, which: str) -> None:
    from contract import Processing

    model, wants = request.getfixturevalue(which), ("entropy", "ranks", "experts")
    drawn = sampled(model, want=wants, **SETTINGS)
    told = engine(model).score(drawn, Processing(**SETTINGS), wants)
    assert np.abs(joined(drawn) - joined(told)).max() < 5e-5
    for name in ("entropy", "mass_above", "top_logprob"):
        assert np.abs(joined(drawn, name) - joined(told, name)).max() < 5e-5
    assert (joined(drawn, "rank") == joined(told, "rank")).all()
    assert ("experts" in told[0].extras) == (which == "moe_model")
    if which == "moe_model":
        assert joined(told, "experts").shape == (len(joined(told)), 4, 2)
        assert (joined(drawn, "experts") == joined(told, "experts")).all()
        margins = joined(told, "router_margin")
        assert (margins >= 0).all()
        assert np.abs(joined(drawn, "router_margin") - margins).max() < 1e-4


def test_samples_do_not_depend_on_the_batch(dense_model: Path) -> None:
    from contract import Sampling

    source = engine(dense_model, batch_rows=64)
    ids = source.tokenise([{"text": text} for text in texts(5)])
    whole = source.sample(ids, Sampling(samples=2, max_tokens=24, seed=3), ())
    few = engine(dense_model, batch_rows=3).sample(ids, Sampling(2, 24, seed=3), ())
    late = source.sample(ids[3:], Sampling(samples=2, max_tokens=24, seed=6), ())
    assert [each.response_ids for each in whole] == [each.response_ids for each in few]
    assert [each.response_ids for each in whole[6:]] == [each.response_ids for each in late]
    assert whole[0].response_ids != whole[1].response_ids
    assert [(each.prompt, each.sample) for each in late] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_responses_end_at_an_end_token_or_the_limit(dense_model: Path) -> None:
    from contract import Sampling

    source = engine(dense_model)
    ids = source.tokenise([{"text": text} for text in texts(8)])
    semicolon = source.tokenise([{"text": ";"}])[0][0]
    drawn = source.sample(ids, Sampling(samples=4, max_tokens=60), ())
    assert {each.ended for each in drawn} == {True, False}
    for each in drawn:
        assert each.ended == (each.response_ids[-1] == EOS)
        assert EOS not in each.response_ids[:-1]
        assert each.ended or len(each.response_ids) == 60
    short = source.sample(ids, Sampling(max_tokens=60, stop_ids=(semicolon,)), ())
    assert all(each.response_ids[-1] in (EOS, semicolon) for each in short)
    endless = source.sample(ids, Sampling(max_tokens=60, ignore_end=True), ())
    assert {len(each.response_ids) for each in endless} == {60}


def test_states_outside_the_layers_of_a_cache_follow_the_rows(tmp_path: Path) -> None:
    """MiniMax keeps those of linear attention in its own list; half of the rows end early."""
    from contract import Processing, Sampling

    source = engine(checkpoint(tmp_path / "minimax", "minimax"))
    ids = [each["ids"][:6] for each in prompts(8)]
    stops = tuple(range(3, 16))
    drawn = source.sample(ids, Sampling(max_tokens=24, stop_ids=stops), ())
    assert len({len(each.response_ids) for each in drawn}) > 3
    told = source.score(drawn, Processing(), ())
    assert np.abs(joined(drawn) - joined(told)).max() < 2e-5


def test_greedy_samples_are_the_most_probable_tokens(dense_model: Path) -> None:
    from contract import Processing

    drawn = sampled(dense_model, samples=2, temperature=0, want=("ranks",))
    assert drawn[0].response_ids == drawn[1].response_ids
    assert (joined(drawn, "rank") == 0).all()
    told = engine(dense_model).score(drawn, Processing(temperature=0), ())
    assert np.abs(joined(drawn) - joined(told)).max() < 2e-5


def test_a_long_task_shows_signs_of_life(
    dense_model: Path,
    responses: list,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from contract import Processing
    from hf import split_model

    monkeypatch.setattr(split_model, "_PULSE_SECONDS", 0.0)
    engine(dense_model, batch_tokens=1).score(responses, Processing(), ())
    assert f"{len(responses)} forward passes\n" in capfd.readouterr().out


def test_empty_responses(dense_model: Path, responses: list) -> None:
    from contract import Processing, Response

    source, empty = engine(dense_model), Response([5, 6], [])
    told = source.score([empty, responses[0], empty], Processing(), ("entropy",))
    assert [len(each.logprobs or []) for each in told] == [0, len(responses[0].response_ids), 0]
    assert [len(each.extras["entropy"]) for each in told] == [0, len(responses[0].response_ids), 0]
    assert source.score([empty], Processing(), ())[0].extras == {}


def gap(model: Path, responses: Sequence[Any], **options: Any) -> float:
    """Mean |Δp| against float32."""
    from contract import Processing

    exact = joined(engine(model).score(responses, Processing(), ()))
    told = joined(engine(model, **options).score(responses, Processing(), ()))
    return float(np.abs(np.exp(told) - np.exp(exact)).mean())


def test_the_gap_of_each_precision(dense_model: Path, responses: list) -> None:
    gaps = {
        "eager": gap(dense_model, responses, attention="eager"),
        "float16": gap(dense_model, responses, dtype="float16"),
        "autocast": gap(dense_model, responses, autocast="bfloat16"),
        "bfloat16": gap(dense_model, responses, dtype="bfloat16"),
        "int8": gap(dense_model, responses, quantise="int8"),
        "int4": gap(dense_model, responses, quantise="int4"),
    }
    assert gaps["eager"] < 1e-6
    assert 1e-5 < gaps["float16"] < gaps["bfloat16"] < 1e-2
    assert 1e-4 < gaps["autocast"] < 1e-2
    assert 1e-4 < gaps["int8"] < gaps["int4"] / 3 < 1e-1


def test_quantized_weights_have_few_values_per_group() -> None:
    from hf.loading import fake_quantised

    weight = torch.randn(6, 80, generator=torch.Generator().manual_seed(0))
    eight, four = fake_quantised(weight, 8), fake_quantised(weight, 4)
    for row in range(6):
        step = weight[row].abs().max() / 127
        assert torch.allclose((eight[row] / step).round() * step, eight[row], atol=1e-6)
        for start in (0, 32, 64):
            group, original = four[row, start : start + 32], weight[row, start : start + 32]
            assert group.unique().numel() <= 15
            assert (group - original).abs().max() <= original.abs().max() / 14 + 1e-6
    assert (eight - weight).abs().max() <= weight.abs().max() / 254 + 1e-6
    assert torch.equal(fake_quantised(torch.zeros(2, 5), 4), torch.zeros(2, 5))


@pytest.mark.parametrize("which", ["dense_model", "moe_model"])
def test_only_the_requested_modules_are_quantized(
    request: pytest.FixtureRequest, which: str
) -> None:
    model = request.getfixturevalue(which)
    original = engine(model)._model.state_dict()

    def changed(**options: str) -> set[str]:
        now = engine(model, quantise="int4", **options)._model.state_dict()
        return {name for name in now if not torch.equal(now[name], original[name])}

    everything = changed()
    assert not any("lm_head" in name or "embed" in name or "gate.w" in name for name in everything)
    assert all("proj" in name for name in everything)
    assert any("mlp" in name for name in everything)
    down = changed(quantise_only=r"layers\.0\.mlp(\.experts)?$|layers\.0\.mlp\.down")
    assert down
    assert all(name.startswith("model.layers.0.mlp") for name in down)
    assert changed(quantise_skip="mlp|lm_head") == {n for n in everything if "self_attn" in n}


def test_perturb_is_repeatable_and_affects_every_matrix(dense_model: Path) -> None:
    original = engine(dense_model)._model.state_dict()
    noisy = engine(dense_model, perturb=0.1, seed=1)._model.state_dict()
    again = engine(dense_model, perturb=0.1, seed=1)._model.state_dict()
    other = engine(dense_model, perturb=0.1, seed=2)._model.state_dict()
    for name, tensor in original.items():
        assert torch.equal(noisy[name], again[name])
        if tensor.ndim > 1:
            relative = ((noisy[name] - tensor).std() / tensor.std()).item()
            assert relative == pytest.approx(0.1, rel=0.1)
            assert not torch.equal(noisy[name], other[name])


@pytest.mark.parametrize("which", ["dense_model", "moe_model"])
def test_named_tensors_come_from_another_checkpoint(
    request: pytest.FixtureRequest, tmp_path: Path, which: str
) -> None:
    model = request.getfixturevalue(which)
    other = variant(tmp_path / "other", model, perturb=0.2)
    name = "experts.3.up_proj" if which == "moe_model" else "mlp.up_proj"
    pattern = rf"layers\.2\.mlp\.{name.replace('mlp.', '')}"
    assert any(pattern.replace("\\", "") in each for each in load_file(other / "model.safetensors"))
    own, theirs = engine(model)._model.state_dict(), engine(other)._model.state_dict()
    whole = engine(model, weights=str(other))._model.state_dict()
    assert all(torch.equal(whole[each], theirs[each]) for each in own)
    part = engine(model, weights=str(other), weights_only=pattern)._model.state_dict()
    changed = {each for each in own if not torch.equal(part[each], own[each])}
    joint = "experts.gate_up_proj" if which == "moe_model" else "up_proj.weight"
    assert changed == {f"model.layers.2.mlp.{joint}"}
    if which == "moe_model":
        differs = (part[changed.pop()] != own[f"model.layers.2.mlp.{joint}"]).flatten(1).any(dim=1)
        assert differs.nonzero().flatten().tolist() == [3]


def test_prompts_are_tokenized_like_by_transformers(dense_model: Path, tmp_path: Path) -> None:
    plainly = engine(dense_model)
    [text] = texts(1)
    [bare] = plainly.tokenise([{"text": text}])
    assert tokenizer().decode(bare) == text
    [chat] = plainly.tokenise([{"messages": messages(1)[0]}])
    assert tokenizer().decode(chat) == f"<user>{text}<assistant>"
    begun = engine(variant(tmp_path / "begun", dense_model, begin=True))
    assert begun.tokenise([{"text": text}]) == [[BOS, *bare]]
    assert begun.tokenise([{"messages": messages(1)[0]}]) == [chat]  # the template puts none
    assert (plainly.describe()["begin_id"], begun.describe()["begin_id"]) == (None, BOS)


def test_logits_are_capped_and_scaled_by_the_family(tmp_path: Path) -> None:
    from contract import Processing, Response

    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=ROWS,
        hidden_size=32,
        intermediate_size=48,
        head_dim=8,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        final_logit_softcapping=2.0,
        initializer_range=0.5,
        eos_token_id=1,
    )
    Gemma2ForCausalLM(config).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    lines = [Response([5, 6, 7], [8, 9, 10, 11]), Response([9], [10, 3])]
    told = engine(tmp_path).score(lines, Processing(), ())
    assert np.abs(joined(told) - plain(tmp_path, lines)).max() < 1e-5


def tiny_mixture(family: str, folder: Path) -> Path:
    from transformers import AutoConfig

    shape = {"vocab_size": ROWS, "hidden_size": 32, "intermediate_size": 48, "head_dim": 8}
    shape |= {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
    shape |= {"num_experts_per_tok": 2, "moe_intermediate_size": 24, "eos_token_id": 1}
    shape |= {"pad_token_id": 0, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4}
    special = {
        "deepseek_v3": {"n_group": 2, "topk_group": 1, "first_k_dense_replace": 1}
        | {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4}
        | {"v_head_dim": 8, "num_key_value_heads": 4, "head_dim": 4},
        "qwen2_moe": {"shared_expert_intermediate_size": 24},
    }
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**shape, **special.get(family, {})})
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    "family", ["mixtral", "qwen2_moe", "olmoe", "gpt_oss", "deepseek_v3", "granitemoe"]
)
def test_reported_experts_are_those_used_in_each_family(family: str, tmp_path: Path) -> None:
    from contract import Processing, Response

    source = engine(tiny_mixture(family, tmp_path))
    asked: list[torch.Tensor] = []

    def note(_module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        ids = [each for each in arguments if not each.is_floating_point()]
        asked.append(ids[0].sort(dim=-1).values)

    for name, module in source._model.named_modules():
        if name.endswith(".experts"):
            module.register_forward_pre_hook(note)
    response = Response(list(range(4, 12)), list(range(20, 40)))
    [told] = source.score([response], Processing(), ("experts",))
    experts_NLK = np.sort(told.extras["experts"], axis=2)
    assert experts_NLK.shape[1] == len(asked) == (2 if family == "deepseek_v3" else 3)
    for layer, ids_LK in enumerate(asked):
        assert (experts_NLK[:, layer] == ids_LK[7:].numpy()).all()
    margins = told.extras["router_margin"]
    assert family == "deepseek_v3" or (margins >= 0).all()
    assert (margins[~np.isnan(margins)] >= 0).all()


def request(folder: Path, model: str, tasks: list[dict[str, Any]]) -> Path:
    path, answer = folder / "request.json", str(folder / "answer.json")
    told = {"contract": 1, "model": model, "options": {}, "answer": answer, "tasks": tasks}
    path.write_text(json.dumps(told), encoding="utf-8")
    return path


def answer(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "answer.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_program_resumes_a_task(
    dense_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contract import read_responses, serve
    from engine_transformers import load

    prompts = str(prompts_file(tmp_path / "prompts.json", 4))
    drawn, scored = tmp_path / "drawn", tmp_path / "scored"
    sampling = {"samples": 2, "max_tokens": 12}
    tasks = [
        {"kind": "tokenise", "name": "ids", "prompts": prompts, "output": str(tmp_path / "ids")},
        {"kind": "sample", "name": "draw", "prompts": prompts, "output": str(drawn)}
        | {"sampling": sampling, "shard_responses": 4},
        {"kind": "score", "name": "score", "inputs": str(drawn), "output": str(scored)}
        | {"want": ["ranks"], "order": "reversed"},
    ]
    program = [sys.executable, str(PROBES / "engine_transformers.py")]
    subprocess.run(
        [*program, str(request(tmp_path, str(dense_model), tasks))],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        timeout=120,
        check=True,
    )
    told = answer(tmp_path)
    assert (told["error"], told["tasks"]["score"]["responses"]) == (None, 8)
    ids = json.loads((tmp_path / "ids" / "ids.json").read_text())
    before = [read_responses(path) for path in sorted(drawn.iterdir())]
    assert [each.prompt_ids for each in before[1]] == [ids[2], ids[2], ids[3], ids[3]]
    with np.load(drawn / "shard-00001.npz") as one, np.load(scored / "shard-00001.npz") as other:
        assert np.abs(one["logprobs_N"] - other["logprobs_N"]).max() < 2e-5
        assert "rank_N" in other.files

    (drawn / "shard-00001.npz").unlink()
    again = request(tmp_path, str(dense_model), tasks[1:2])
    monkeypatch.setattr(sys, "argv", ["", str(again)])
    serve(load)
    after = read_responses(drawn / "shard-00001.npz")
    assert [each.response_ids for each in after] == [each.response_ids for each in before[1]]


def test_a_refusal_is_in_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from contract import REFUSED, serve
    from engine_transformers import load

    asked = request(tmp_path, str(tmp_path / "nowhere"), [])
    monkeypatch.setattr(sys, "argv", ["", str(asked)])
    with pytest.raises(SystemExit) as end:
        serve(load)
    assert end.value.code == REFUSED
    assert "there is no model" in answer(tmp_path)["error"]["what"]
    assert answer(tmp_path)["error"]["remedy"]


def test_the_test_models_are_reproducible(tmp_path: Path, dense_model: Path) -> None:
    again = load_file(dense(tmp_path) / "model.safetensors")
    first = load_file(dense_model / "model.safetensors")
    assert all(torch.equal(again[name], first[name]) for name in first)
