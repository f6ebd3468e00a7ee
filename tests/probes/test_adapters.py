"""LoRA adapters and fake quantization to 8-bit floats, in transformers."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import engine_transformers
from contract import RefusalError, Sampling

from grpodoctor.probe.attribution.investigate import investigate
from tests.probe.attribution.cases import measured, plain
from tests.probe.attribution.in_process import InProcess
from tests.probe.plants.families import checkpoint, prompts
from tests.probes.adapter_files import write_adapter
from tests.probes.test_what_if import loaded, responses, scores


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("base") / "llama", "llama")


@pytest.fixture(scope="module")
def adapter(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(model, tmp_path_factory.mktemp("adapter"))


def engine(model: Path, **options: Any) -> Any:
    return engine_transformers.load(str(model), {"threads": 1} | options)


def test_merged_and_unmerged_adapters_agree(model: Path, adapter: Path) -> None:
    rows = responses(loaded(model))
    base = scores(loaded(model), rows)
    unmerged = scores(engine(model, adapter=str(adapter)), rows)
    merged = scores(engine(model, adapter=str(adapter), adapter_use="merged"), rows)
    twice = engine(model, adapter=str(adapter), adapter_use="merged_twice")
    assert np.abs(merged - unmerged).max() < 1e-4
    assert np.abs(unmerged - base).max() > 0.05
    assert np.abs(scores(twice, rows) - unmerged).max() > 0.05


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft's call of transformers
def test_ranks_and_scales_of_layers_are_those_of_peft(model: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    ranks, alphas = {"layers.0.self_attn.q_proj": 8, "v_proj": 2}, {"0.self_attn.v_proj": 5}
    config: dict[str, Any] = {"alpha_pattern": alphas, "use_rslora": True}
    adapter = write_adapter(model, tmp_path, ranks=ranks, **config)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    whole = peft.PeftModel.from_pretrained(network, str(adapter)).eval()
    rows = responses(loaded(model))
    expected = []
    for row in rows:
        ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
        with torch.no_grad():
            logprobs_TV = whole(ids).logits[0, len(row.prompt_ids) - 1 : -1].log_softmax(-1)
        expected += logprobs_TV.gather(1, ids[0, len(row.prompt_ids) :, None])[:, 0].tolist()
    found = scores(engine(model, adapter=str(adapter)), rows)
    assert np.abs(found.ravel() - expected).max() < 1e-4


@pytest.mark.parametrize("use", ["unmerged", "merged"])
def test_the_edit_applies_the_adapter_another_number_of_times(
    model: Path, adapter: Path, use: str
) -> None:
    rows = responses(loaded(model))
    once = engine(model, adapter=str(adapter), adapter_use=use)
    before = scores(once, rows)
    with once.altered([("adapter", 0.0)]):
        assert np.abs(scores(once, rows) - scores(loaded(model), rows)).max() < 1e-4
    with once.altered([("adapter", 2.0)]):
        twice = engine(model, adapter=str(adapter), adapter_use="merged_twice")
        assert np.abs(scores(once, rows) - scores(twice, rows)).max() < 1e-4
    with twice.altered([("adapter", 1.0)]):  # in all, not once more
        assert np.abs(scores(twice, rows) - before).max() < 1e-4
    assert np.array_equal(scores(once, rows), before)


def test_lost_ranks_of_an_adapter_equal_cut_files(
    model: Path, adapter: Path, tmp_path: Path
) -> None:
    rows = responses(loaded(model))
    whole = engine(model, adapter=str(adapter))
    tensors = load_file(adapter / "adapter_model.safetensors")
    for name, tensor in tensors.items():
        if "lora_A" in name:
            tensor[2:] = 0
    cut = tmp_path / "cut"
    shutil.copytree(adapter, cut)
    save_file(tensors, cut / "adapter_model.safetensors")
    wanted = scores(engine(model, adapter=str(cut)), rows)
    assert np.abs(wanted - scores(whole, rows)).max() > 0.01
    listed = [each["values"][0] for each in whole.what_ifs() if each["name"] == "adapter_part"]
    assert ["ranks above 2", 0.0] in listed
    with whole.altered([("adapter_part", ["ranks above 2", 0.0])]):
        assert np.abs(wanted - scores(whole, rows)).max() < 1e-4


@pytest.mark.slow
def test_an_adapter_that_is_merged_twice_is_named(
    model: Path, adapter: Path, tmp_path: Path
) -> None:
    sampler = plain(model, adapter=str(adapter), adapter_use="merged_twice")
    learner = plain(model, adapter=str(adapter))
    with InProcess(tmp_path, prompts(16)) as runner:
        case = measured(runner, sampler, learner, Sampling(samples=2, max_tokens=32))
        (named,) = investigate(runner, case).causes
    assert (named.cause, named.confidence) == ("adapter", "proven")
    assert "with the adapter times 2" in named.summary


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "IA3"}, "not a LoRA adapter"),
        ({"use_dora": True}, "sets use_dora"),
        ({"alpha_pattern": {"(": 1}}, "is not a mapping of names to numbers"),
        ({"rank_pattern": ["q_proj"]}, "is not a mapping of names to numbers"),
        ({"r": 0}, "r or lora_alpha is not a number"),
        ({"lora_alpha": None}, "r or lora_alpha is not a number"),
    ],
)
def test_other_adapters_are_refused(
    model: Path, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(RefusalError, match=message):
        engine(model, adapter=str(write_adapter(model, tmp_path, **config)))


def test_adapters_that_do_not_fit_are_refused(model: Path, adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(RefusalError, match="cannot be read"):
        engine(model, adapter=str(tmp_path))
    with pytest.raises(RefusalError, match="adapter_use='half' is unknown"):
        engine(model, adapter=str(adapter), adapter_use="half")
    other = checkpoint(tmp_path / "neox", "gpt_neox")
    with pytest.raises(RefusalError, match="which the model lacks"):
        engine(other, adapter=str(adapter))
    (tmp_path / "adapter_config.json").write_text((adapter / "adapter_config.json").read_text())
    save_file({"lora_A": torch.zeros(2, 2)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(RefusalError, match="tensors other than pairs"):
        engine(model, adapter=str(tmp_path))


@pytest.mark.parametrize(("scheme", "least"), [("fp8", 1e-3), ("fp8_e5m2", 1e-3)])
def test_weights_in_8_bit_floats(model: Path, scheme: str, least: float) -> None:
    plain_weights = dict(loaded(model)._model.named_parameters())
    coarse = dict(engine(model, quantise=scheme)._model.named_parameters())
    name = next(name for name in plain_weights if "q_proj" in name)
    relative = (coarse[name] - plain_weights[name]).abs().max() / plain_weights[name].abs().max()
    bits = {"fp8": 3, "fp8_e5m2": 2}[scheme]
    assert least < relative <= 2.0 ** -(bits + 1) + 1e-6, "half a step of the mantissa"
    assert torch.equal(coarse["lm_head.weight"], plain_weights["lm_head.weight"])
