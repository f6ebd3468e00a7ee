import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from grpodoctor.errors import ModelError
from grpodoctor.probe.engines.store import engine_key
from grpodoctor.probe.inputs.checksums import (
    checkpoint_of,
    compare_checkpoints,
    local_model,
    open_checkpoint,
)
from grpodoctor.probe.inputs.engine_spec import EngineSpec


def model(path: Path, *, tied: bool = False, **changes: float) -> Path:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=tied,
    )  # fmt: skip
    network = Qwen2ForCausalLM(config)
    for name, factor in changes.items():
        dict(network.named_parameters())[name.replace("__", ".")].data.mul_(factor)
    network.save_pretrained(path)
    return path


def compared(one: Path, other: Path):
    left, right = open_checkpoint(str(one)), open_checkpoint(str(other))
    assert left is not None
    assert right is not None
    return compare_checkpoints(left, right)


def test_the_same_weights_are_the_same(tmp_path: Path) -> None:
    found = compared(model(tmp_path / "a"), model(tmp_path / "b"))
    assert found.differing == ()
    assert found.tensors == 27
    assert found.settings == ()


def test_a_changed_tensor_is_named_with_how_much(tmp_path: Path) -> None:
    found = compared(
        model(tmp_path / "a"), model(tmp_path / "b", model__layers__1__mlp__up_proj__weight=1.1)
    )
    (gap,) = found.differences
    assert gap.name == "model.layers.1.mlp.up_proj.weight"
    assert gap.relative == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_another_precision_is_decoded(tmp_path: Path, kind: torch.dtype) -> None:
    one = torch.randn(300, 70, generator=torch.Generator().manual_seed(1))
    for name, tensor in (("a", one), ("b", one.to(kind)), ("c", one.to(kind).float())):
        (tmp_path / name).mkdir()
        save_file({"w": tensor}, tmp_path / name / "model.safetensors")
    expected = ((one - one.to(kind).float()).square().sum() / one.square().sum()).sqrt()
    (gap,) = compared(tmp_path / "a", tmp_path / "b").differences
    assert gap.relative == pytest.approx(float(expected), rel=1e-5)
    assert compared(tmp_path / "b", tmp_path / "c").differing == ()


def test_a_tied_output_layer_is_the_embedding(tmp_path: Path) -> None:
    one, other = model(tmp_path / "a", tied=True), model(tmp_path / "b", tied=True)
    stored = open_checkpoint(str(one))
    assert stored is not None
    tensors = {"lm_head.weight": torch.ones(32, 16)}
    save_file(tensors, other / "extra.safetensors")
    assert compared(one, other).differing == ()


def test_what_only_one_has_differs(tmp_path: Path) -> None:
    one, other = model(tmp_path / "a"), model(tmp_path / "b")
    save_file({"more": torch.ones(2)}, other / "extra.safetensors")
    (gap,) = compared(one, other).differences
    assert (gap.name, gap.reason) == ("more", "only the second has it")


def test_settings_that_bear_on_the_numbers_are_told(tmp_path: Path) -> None:
    one, other = model(tmp_path / "a"), model(tmp_path / "b")
    config = json.loads((other / "config.json").read_text())
    config.pop("rope_parameters", None)  # as transformers 4 writes it
    config |= {"rms_norm_eps": 1e-5, "rope_theta": 1e6, "use_cache": False}
    (other / "config.json").write_text(json.dumps(config))
    told = compared(one, other).settings
    assert [line.split()[0] for line in told] == ["rope_theta", "rms_norm_eps"]


def test_rotary_settings_by_kind_of_layer_are_compared(tmp_path: Path) -> None:
    one, other = model(tmp_path / "a"), model(tmp_path / "b")
    for folder, theta in ((one, 1e4), (other, 1e6)):
        config = json.loads((folder / "config.json").read_text())
        config["rope_parameters"] = {"sliding_attention": {"rope_theta": theta}}
        (folder / "config.json").write_text(json.dumps(config))
    (setting,) = compared(one, other).settings
    assert setting.startswith("rope_parameters")


def test_quantised_modules_are_left_to_attribution(tmp_path: Path) -> None:
    one, other = model(tmp_path / "a"), model(tmp_path / "b")
    from safetensors.torch import load_file

    name = "model.layers.0.mlp.up_proj.weight"
    tensors = load_file(other / "model.safetensors")
    tensors[name] = tensors[name].mul(127).to(torch.int8)
    tensors[f"{name}_scale"] = torch.ones(24, 1)
    save_file(tensors, other / "model.safetensors")
    config = json.loads((other / "config.json").read_text())
    quantisation = {"quant_method": "compressed-tensors", "format": "int-quantized"}
    config["quantization_config"] = quantisation
    (other / "config.json").write_text(json.dumps(config))
    found = compared(one, other)
    assert found.quantization == ("", "int-quantized")
    assert found.differences == ()
    assert found.differing is None


def test_other_weights_by_option_are_those_of_the_engine(tmp_path: Path) -> None:
    one = model(tmp_path / "a")
    other = model(tmp_path / "b", model__norm__weight=2, lm_head__weight=2)
    plain = EngineSpec.parse(f"transformers:{one}")
    partly = EngineSpec.parse(f"transformers:{one}?weights={other}&weights_only=norm")
    left, right = checkpoint_of(plain), checkpoint_of(partly)
    assert left is not None
    assert right is not None
    assert compare_checkpoints(left, right).differing == ("model.norm.weight",)


def test_a_name_of_the_hub_is_found_in_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hub" / "models--org--name"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc\n")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert local_model("org/name") == folder / "snapshots" / "abc"
    assert local_model("org/other") is None
    assert local_model("http://127.0.0.1:1/v1") is None
    assert local_model("~nobody-has-this-home/model") is None
    before = engine_key(EngineSpec.parse("vllm:org/name"))
    (folder / "snapshots" / "abc" / "tokenizer.json").write_text("{}")  # another engine's wish
    assert engine_key(EngineSpec.parse("vllm:org/name")) == before
    (folder / "refs" / "main").write_text("def\n")
    (folder / "snapshots" / "def").mkdir()
    assert engine_key(EngineSpec.parse("vllm:org/name")) != before


HOSTILE = {
    "short": b"abc",
    "long header": struct.pack("<Q", 1 << 60) + b"{}",
    "no JSON": struct.pack("<Q", 4) + b"[[[[",
    "a list": struct.pack("<Q", 2) + b"[]",
    "no place": struct.pack("<Q", 8) + b'{"w":{}}',
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="the checkpoint is damaged"):
        open_checkpoint(str(tmp_path))


def test_a_tensor_that_claims_more_than_there_is(tmp_path: Path) -> None:
    save_file({"w": torch.ones(64)}, tmp_path / "model.safetensors")
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-8])
    with pytest.raises(ModelError, match="'w' does not fit in it"):
        open_checkpoint(str(tmp_path))


def test_nothing_is_known_of_other_formats(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    assert open_checkpoint(str(tmp_path)) is None
    assert open_checkpoint("/nowhere") is None
