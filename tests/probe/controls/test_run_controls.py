import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from grpodoctor.probe.comparison.compare import compare
from grpodoctor.probe.contract import Sampling
from grpodoctor.probe.controls.controls import stale_control
from grpodoctor.probe.controls.run_controls import (
    NOISE,
    SampledRollouts,
    Weights,
    repeat_of,
    self_scoring_of,
    stale_of,
    stale_spec,
)
from grpodoctor.probe.engines.commands import command_of
from grpodoctor.probe.engines.engine_facts import EngineFacts
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.probe_state import labels_of
from tests.probe.pairs import random_responses, write

parse = EngineSpec.parse


def test_torchrun_starts_one_rank_per_part_of_the_layout() -> None:
    command = command_of(parse("fsdp:m?fsdp=2&tensor_parallel=2"), Path("request.json"))
    assert command[1:4] == ("-m", "torch.distributed.run", "--standalone")
    assert command[4] == "--nproc-per-node=4"
    assert Path(command[5]).name == "engine_fsdp.py"
    given = command_of(parse("fsdp:m?processes=3"), Path("request.json"))
    assert "--nproc-per-node=3" in given
    plain = command_of(parse("transformers:m"), Path("request.json"))
    assert [Path(each).name for each in plain[1:]] == ["engine_transformers.py", "request.json"]


def test_a_launcher_replaces_the_python() -> None:
    command = command_of(parse("fsdp:m?launcher=env%20-u%20X%20python&processes=2"), Path("r"))
    assert command[:4] == ("env", "-u", "X", "python")
    assert "torch.distributed.run" not in command


def test_the_spec_of_wrong_weights() -> None:
    noisy, what = stale_spec(parse("transformers:m?dtype=bfloat16"), None)
    assert noisy is not None
    assert noisy.options == {"dtype": "bfloat16", "perturb": NOISE}
    assert "noise" in what
    older, what = stale_spec(parse("vllm:m?dtype=bfloat16&sync=x"), Path("ckpt/step-100"))
    assert older is not None
    assert (older.model, dict(older.options)) == ("ckpt/step-100", {"dtype": "bfloat16"})
    assert what == "the checkpoint step-100"
    for spec in ("fsdp:m", "vllm:m"):
        noisy, _ = stale_spec(parse(spec), None)
        assert noisy is not None
        assert dict(noisy.options) == {"perturb": NOISE}
    for spec in ("recorded:run?side=learner", "openai_server:http://h:1"):
        for stale in (Path("ckpt"), None):
            none, why = stale_spec(parse(spec), stale)
            assert none is None
            assert why == f"the engine {spec.partition(':')[0]} cannot load other weights"


@pytest.mark.parametrize(
    ("dtype", "autocast", "passed"),
    [("float32", "bfloat16", True), ("float32", "", False), ("bfloat16", "", True)],
)
def test_the_tolerance_depends_on_the_precision(
    tmp_path: Path, dtype: str, autocast: str, passed: bool
) -> None:
    """Weights in float32 under autocast are how most trainers learn."""
    drawn, again = write(tmp_path, random_responses(40, 1, gap=0.002))
    settings = {"autocast": autocast} if autocast else {}
    facts = EngineFacts(
        name="fsdp", version="1", model="m", dtype=dtype, device="cpu", layout={}, vocab_size=9,
        end_ids=(1,), begin_id=None, context=99, logprobs="processed", settings=settings,
        python="3.11", load_seconds=0.1,
    )  # fmt: skip
    rollouts = SampledRollouts(Sampling(), drawn, drawn, facts, again)
    assert self_scoring_of(rollouts).passed is passed
    assert repeat_of(drawn, again, facts).passed is passed


def test_a_wrong_learner_is_compared_on_its_own_responses(tmp_path: Path) -> None:
    """The first prompts of a file may be easy: even wrong weights differ by little there."""
    easy = [
        replace(each, sampler=each.sampler / 500, learner=each.learner / 500)
        for each in random_responses(64, 1, gap=0.02)
    ]
    wrong = [
        replace(each, learner=each.sampler + 6 * (each.learner - each.sampler)) for each in easy
    ]
    hard = random_responses(64, 2, gap=0.01)
    whole = compare(*write(tmp_path / "whole", [*easy, *hard]))
    part, scored = write(tmp_path / "part", easy)
    _, outcome = write(tmp_path / "wrong", wrong)
    assert stale_control(whole, compare(part, outcome), what="noise").passed is not True
    control = stale_of(part, scored, outcome, "noise")
    assert control.passed
    assert "on the same tokens" in control.summary


def checkpoint(folder: Path, **config: object) -> Path:
    folder.mkdir(parents=True)
    save_file({"w": torch.ones(2)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_weights_control_reports_settings_and_quantization(tmp_path: Path) -> None:
    plain = parse(f"vllm:{checkpoint(tmp_path / 'a', rms_norm_eps=1e-6)}")
    other = parse(f"vllm:{checkpoint(tmp_path / 'b', rms_norm_eps=1e-5)}")
    weights = Weights()
    same = weights.control(plain, plain.with_options(dtype="float32"))
    assert (same.passed, same.summary) == (
        True,
        "All 1 tensors have the same checksums on both sides.",
    )
    noisy = weights.control(plain, plain.with_options(perturb=0.05))
    assert noisy.passed is None, "its files are the same, and its weights are not"
    settings = weights.control(plain, other)
    assert settings.passed is False
    assert "rms_norm_eps 1e-06 | 1e-05" in settings.summary
    quantisation = {"quant_method": "compressed-tensors", "format": "int-quantized"}
    packed = parse(f"vllm:{checkpoint(tmp_path / 'c', quantization_config=quantisation)}")
    hidden = weights.control(packed, plain)
    assert hidden.passed is None
    assert "int-quantized against plain weights" in hidden.summary
    assert weights.differing(packed, plain) is None
    (tmp_path / "a" / "model.safetensors").write_bytes(b"damaged")
    damaged = Weights().control(plain, other)
    assert damaged.passed is None
    assert "the checkpoint is damaged" in damaged.summary


def test_routers_are_read_from_the_config(tmp_path: Path) -> None:
    weights = Weights()
    assert weights.has_routers(str(checkpoint(tmp_path / "a", num_experts=8)))
    assert weights.has_routers(
        str(checkpoint(tmp_path / "b", text_config={"num_local_experts": 4}))
    )
    assert not weights.has_routers(str(checkpoint(tmp_path / "c", num_experts=1)))
    assert not weights.has_routers("/nowhere")


def test_labels_are_unique() -> None:
    specs = [
        parse("vllm:a/model"), parse("vllm:b/model"),
        parse("vllm:b/model?python=one"), parse("vllm:b/model?python=two"),
        parse("transformers:a/model"),
    ]  # fmt: skip
    labels = labels_of([*specs, specs[0]])
    assert len(set(labels.values())) == len(specs)
    assert labels[specs[0].key] == "vllm:a/model"
    assert labels[specs[3].key] == "vllm:b/model in two"
    assert labels[specs[4].key] == "transformers:model"
