"""What-if edits: each equals the change of config.json that it imitates, and is undone."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import engine_transformers
from contract import InapplicableError, Processing, Response, Sampling

from tests.probe.plants import planted_engine
from tests.probe.plants.families import FAMILIES, checkpoint, prompts

Model = Callable[..., Path]
RESPONSES, TOKENS = 4, 24


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    root = tmp_path_factory.mktemp("families")

    def made(family: str, changed: float = 0.0, **config: Any) -> Path:
        plain = checkpoint(root / f"{family}-{changed}", family, changed=changed)
        if not config:
            return plain
        folder = root / f"{family}-{abs(hash(json.dumps(config)))}"
        shutil.copytree(plain, folder, dirs_exist_ok=True)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
        return folder

    return made


def loaded(folder: Path) -> Any:
    return engine_transformers.load(str(folder), {"threads": 1})


def responses(engine: Any) -> list[Response]:
    ids = [prompt["ids"] for prompt in prompts(RESPONSES)]
    sampling = Sampling(samples=1, max_tokens=TOKENS, ignore_end=True)
    drawn: list[Response] = engine.sample(ids, sampling, ())
    return drawn


def scores(engine: Any, rows: list[Response]) -> np.ndarray:
    scored = engine.score(rows, Processing(), ())
    return np.concatenate([each.logprobs for each in scored])


def rope(theta: float) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}


@pytest.mark.parametrize(
    ("family", "edit", "config"),
    [
        ("mistral", ("window", 7), {"sliding_window": 7}),
        ("mistral", ("full_attention", True), {"sliding_window": None}),
        ("llama", ("rope_base", 300.0), rope(300.0)),
        ("llama", ("rope_scaling", 2.0),
         {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}),
        ("llama", ("norm_epsilon", 0.05), {"rms_norm_eps": 0.05}),
        ("llama", ("activation", "gelu"), {"hidden_act": "gelu"}),
        ("gemma2", ("attention_scale", (24 / 16) ** 0.5), {"query_pre_attn_scalar": 16}),
        ("gemma2", ("setting", ["final_logit_softcapping", 5.0]), {"final_logit_softcapping": 5.0}),
        ("gemma2", ("attention_soft_cap", 2.0), {"attn_logit_softcapping": 2.0}),
        ("mixtral", ("setting", ["top_k", 1]), {"num_experts_per_tok": 1}),
        ("qwen3_moe", ("router_weights", "raw"), {"norm_topk_prob": False}),
        ("gpt_neox", ("setting", ["use_parallel_residual", False]),
         {"use_parallel_residual": False}),
    ],
)  # fmt: skip
def test_an_edit_equals_the_changed_configuration(
    model: Model, family: str, edit: tuple[str, Any], config: dict[str, Any]
) -> None:
    engine, other = loaded(model(family)), loaded(model(family, **config))
    rows = responses(engine)
    before = scores(engine, rows)
    with engine.altered([edit]):
        edited = scores(engine, rows)
    assert np.abs(edited - scores(other, rows)).max() < 1e-4
    assert np.abs(edited - before).max() > 1e-3
    assert np.array_equal(scores(engine, rows), before)


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_in_plain_operations_equals_the_familys(model: Model, family: str) -> None:
    engine = loaded(model(family))
    rows = responses(engine)
    with engine.altered([("attention_scale", 1.0)]):
        plain = scores(engine, rows)
    assert np.abs(plain - scores(engine, rows)).max() < 1e-4


@pytest.mark.parametrize("family", ["phi", "deepseek_v3"])
def test_every_listed_edit_is_undone(model: Model, family: str) -> None:
    engine = loaded(model(family))
    rows = responses(engine)[:1]
    before = scores(engine, rows)
    listed = [(each["name"], each["values"][0]) for each in engine.what_ifs()]
    fitting = 0
    for edit in listed:
        try:
            with engine.altered([edit]):
                fitting += not np.array_equal(scores(engine, rows), before)
        except InapplicableError:
            pass
        assert np.array_equal(scores(engine, rows), before), edit
    assert fitting > 20


def test_a_module_of_unknown_form_costs_no_other_edit(
    model: Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hf.what_if import norm_kinds

    engine = loaded(model("llama"))
    before = {each["name"] for each in engine.what_ifs()}

    def fails(_: Any) -> list[str]:
        raise AttributeError("no such form")

    monkeypatch.setattr(norm_kinds, "mean_kinds", fails)
    left = {each["name"] for each in engine.what_ifs()}
    assert {"rope_base", "kv_cache", "layer_scale", "repetition_penalty"} <= left
    assert "norm_mean" in before - left
    assert "incomplete: no such form" in capsys.readouterr().out


def test_tensors_of_another_checkpoint(model: Model) -> None:
    engine, old = loaded(model("qwen3")), model("qwen3", changed=0.2)
    rows = responses(engine)
    with engine.altered([("other_weights", {"from": str(old), "only": ""})]):
        edited = scores(engine, rows)
    assert np.abs(edited - scores(loaded(old), rows)).max() < 1e-5
    with engine.altered([("other_weights", {"from": str(old), "only": "lm_head"})]):
        tied_head_only = scores(engine, rows)
    assert np.abs(tied_head_only - edited).max() > 1e-2


def test_an_edit_that_does_not_fit_is_refused(model: Model) -> None:
    engine = loaded(model("llama"))
    for edit in [("no_such_edit", 1), ("router_weights", "raw"), ("missing_layer", 99)]:
        with pytest.raises(InapplicableError), engine.altered([edit]):
            pass


def test_penalties_follow_vllms_definition(model: Model) -> None:
    import torch
    from hf.what_if.processors import History, ProcessorEdits

    logits = torch.tensor([[2.0, -1.0, 0.5]])
    past = History(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.0, 2.0, 0.0]]),
                   torch.tensor([1]))  # fmt: skip
    edits = ProcessorEdits(repetition_penalty=2.0, presence_penalty=0.25, frequency_penalty=0.5)
    assert edits.processed(logits, past, []).tolist() == [[1.0, -2.0 - 1.0 - 0.25, 0.5]]
    early = ProcessorEdits(min_tokens=2).processed(logits, past, [2])
    assert early[0, 2] == -torch.inf


@pytest.mark.parametrize(
    ("part", "counts"),
    [("both", [2, 2, 0, 0]), ("prompt", [2, 0, 0, 0]), ("3", [1, 2, 0, 0]), ("9", [2, 2, 0, 0])],
)
def test_penalties_can_count_other_tokens(part: str, counts: list[int]) -> None:
    import torch
    from hf.what_if.processors import ProcessorEdits, histories

    logits, response = torch.zeros(1, 4), Response([0, 0], [1, 1, 3])
    *_, past = histories([response], 1, 4, torch.device("cpu"))
    by_name = {"part_frequency": counts, "part_presence": [min(each, 1) for each in counts]}
    for name, expected in by_name.items():
        edits = ProcessorEdits(**{name: [part, 0.5]})
        assert edits.changes_logits
        lower = -0.5 * torch.tensor(expected)
        assert edits.processed(logits, past, [])[0].tolist() == lower.tolist()


@pytest.mark.parametrize(
    ("family", "edit", "fault"),
    [
        ("llama", ("rope_share", -1.0), "rope_reversed"),
        ("llama", ("rope_share", 0.5), "partial_rotary:0.5"),
        ("mistral", ("rope_precision", "bfloat16"), "rope_bf16"),
        ("llama", ("layer_window", ["1", 8]), "window_layer:1,8"),
        ("gpt_neox", ("layer_window", ["odd", 8]), "window_layer:1,8"),  # it has three layers
        ("qwen3", ("distance_bias", 0.1), "distance_bias:0.1"),
        ("qwen3", ("qk_norm_order", "after"), "norm_after_rope"),
        ("deepseek_v3", ("output_scale", ["shared_experts", 0.0]), "without_shared"),
        ("llama", ("output_scale", ["mlp", 0.8]), "residual_scale:0.8"),
        ("qwen3", ("logit_rounding", "bfloat16/inputs"), "head_bf16"),
        ("phi", ("logit_rounding", "bfloat16"), "logits_bf16"),
        ("llama", ("logit_clamp", 2.5), "logits_clamped:2.5"),
        ("gemma2", ("padded_vocabulary", 16), "padded_vocabulary:16"),
    ],
)
def test_an_edit_equals_a_fault_written_without_it(
    model: Model, family: str, edit: tuple[str, Any], fault: str
) -> None:
    engine = loaded(model(family))
    rows = responses(engine)
    before = scores(engine, rows)
    with engine.altered([edit]):
        edited = scores(engine, rows)
    assert np.array_equal(scores(engine, rows), before)
    planted = planted_engine.load(str(model(family)), {"threads": 1, "faults": fault})
    try:
        assert np.abs(edited - scores(planted, rows)).max() < 1e-4
    finally:
        planted.close()
    assert np.abs(edited - before).max() > 1e-4


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (("epsilon_cutoff", 0.04), "epsilon_cutoff:0.04"),
        (("top_n_sigma", 1.5), "top_n_sigma:1.5"),
        (("typical_p", 0.8), "typical:0.8"),
        (("position_gap", 8), "position_gap:8"),
        (("no_repeat_ngram", 2), "ngram_ban:2"),
        (("no_repeat_ngram", 3), "ngram_ban:3"),
        (("dry_penalty", ["2/1.75", 3.0]), "dry:3,1.75,2"),
        (("dry_penalty", ["1/2.0", 1.3]), "dry:1.3,2,1"),
    ],
)
def test_an_edit_equals_the_values_that_a_faulty_sampler_reports(
    model: Model, edit: tuple[str, Any], fault: str
) -> None:
    engine = loaded(model("llama"))
    planted = planted_engine.load(str(model("llama")), {"threads": 1, "faults": fault})
    rows = responses(planted)
    reported = np.concatenate([each.logprobs for each in rows])
    with engine.altered([edit]):
        assert np.abs(scores(engine, rows) - reported).max() < 1e-4
    assert np.abs(scores(engine, rows) - reported).max() > 0.05
