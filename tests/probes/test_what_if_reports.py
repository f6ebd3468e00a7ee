"""What-if edits of faults that engines were reported to have; each equals an independent one."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

from contract import Processing, Sampling
from hf.what_if.rounding import rounded

from tests.probe.plants import planted_engine
from tests.probe.plants.families import adapter, checkpoint, prompts
from tests.probe.plants.set_checks import mostly_slow
from tests.probes.test_what_if_layers import compared, loaded, responses, scores

CASES = [
    (
        "laguna",
        "yarn_factor:1.4159",
        ("rope_amplitude", ["full_attention", 0.1 * math.log(64) + 1]),
    ),
    ("ministral3", "head_tied", ("tied_head", True)),
    ("mimo_v2_flash", "sinks_twice", ("sink_shift", math.log(2))),
    ("longcat_flash", "zero_experts_lost", ("lost_experts", ["*", "identity"])),
    ("exaone_moe", "experts_exchanged:1,0,2", ("experts_from", ["1", "0<>2"])),
    ("laguna", "awq:16", ("weight_rounding", "int4/zero16")),
    ("gemma4", "norm_bf16", ("norm_rounding", "bfloat16")),
    ("gemma4", "router_root:1", ("setting", ["scalar_root_size", 1.0])),
    ("zamba2", "gate_after_norm", ("gated_norm", "after")),
]
ADAPTED = [
    ("mellum", "adapter_dropped:FOLDER,v_proj", ("adapter_part", ["v_proj", 0.0])),
    ("ernie4_5_moe", "adapter_shifted:FOLDER", ("adapter_moved", "next in a circle")),
    ("granite_swa", "adapter_exchanged:FOLDER", ("adapter_moved", "v_proj>>k_proj")),
]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.mark.parametrize(
    ("family", "fault", "edit"),
    mostly_slow(CASES + ADAPTED, 2),
)
def test_an_edit_equals_a_fault_written_without_it(
    root: Path, family: str, fault: str, edit: tuple[str, Any]
) -> None:
    folder = checkpoint(root / family, family)
    options: dict[str, str] = {}
    if "FOLDER" in fault:
        options["adapter"] = str(root / "adapter")
        adapter(root / "adapter", folder, alpha=4)
    engine = loaded(folder, **options)
    rows = responses(engine)
    faults = fault.replace("FOLDER", options.get("adapter", ""))
    plain, edited, wanted = compared(engine, rows, [edit], folder, faults, **options)
    away, left = np.abs(wanted - plain), np.abs(wanted - edited)
    assert away.max() > 0.02
    if "bf16" in fault:  # on some processors, a value near the middle of two is rounded otherwise
        assert np.median(left) < 0.3 * np.median(away)
    else:
        assert left.max() < 2e-4
    listed = [[e["name"], value] for e in engine.what_ifs() for value in e["values"]]
    assert list(edit) in listed
    assert np.array_equal(scores(engine, rows), plain)


@pytest.mark.parametrize(
    ("family", "fault", "edit"),
    [
        ("nanochat", "prefix_restart:4", ("position_jump", ["again", 4])),
        ("ministral3", "prefix_gap:8", ("position_jump", ["1", 8])),
    ],
)
def test_positions_after_a_cached_prefix(
    root: Path, family: str, fault: str, edit: tuple[str, Any]
) -> None:
    """Only generation has the fault, but an edit of positions imitates it in one pass."""
    folder = checkpoint(root / family, family)
    faulty = planted_engine.load(str(folder), {"threads": 1, "faults": fault})
    ids = [prompt["ids"] for prompt in prompts(6)]
    drawn = faulty.sample(ids, Sampling(samples=1, max_tokens=16), ())
    faulty.close()
    engine = loaded(folder)
    with engine.altered([edit]):
        edited = scores(engine, drawn)
    wanted = np.concatenate([each.logprobs for each in drawn])
    assert np.abs(scores(engine, drawn) - wanted).max() > 0.02
    assert np.abs(edited - wanted).max() < 2e-4
    assert list(edit) in [[e["name"], value] for e in engine.what_ifs() for value in e["values"]]


def test_parts_of_attention_that_are_merged_keep_the_sinks(root: Path) -> None:
    """One part holds all tokens, so that the merge of two parts changes nothing."""
    engine = loaded(checkpoint(root / "gpt_oss", "gpt_oss"))
    rows = responses(engine)
    plain = scores(engine, rows)
    with engine.altered([("split_attention", 200)]):
        merged = scores(engine, rows)
    with engine.altered([("sink_shift", 1e4), ("split_attention", 200)]):
        all_in_sinks = scores(engine, rows)
    with engine.altered([("without_sinks", True)]):
        without = scores(engine, rows)
    assert np.abs(merged - plain).max() > 1e-3
    assert np.abs(merged - without).max() > 1e-3
    assert np.abs(all_in_sinks - plain).max() > 0.1


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("gemma4", {}),
        (
            "mamba2",
            {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2, "chunk_size": 32},
        ),
    ],
)
def test_a_family_with_other_outputs_can_be_probed(
    root: Path, family: str, config: dict[str, int]
) -> None:
    """Heads read further fields of the trunk's output; families without attention have a state."""
    folder = root / family
    if config:
        made = transformers.Mamba2Config(
            vocab_size=64, hidden_size=64, num_hidden_layers=3, eos_token_id=1, **config
        )
        transformers.AutoModelForCausalLM.from_config(made).save_pretrained(folder)
    else:
        checkpoint(folder, family)
    engine = loaded(folder)
    rows = responses(engine)
    plain = transformers.AutoModelForCausalLM.from_pretrained(folder)
    drawn = np.concatenate([each.logprobs for each in rows])
    assert np.abs(scores(engine, rows) - drawn).max() < 1e-4
    for row, values in zip(rows, engine.score(rows, Processing(), ()), strict=True):
        ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
        with torch.no_grad():
            logprobs = plain(ids).logits[0, :-1].log_softmax(-1)
        wanted = logprobs.gather(1, ids[0, 1:, None])[len(row.prompt_ids) - 1 :, 0]
        assert np.abs(np.array(values.logprobs) - wanted.numpy()).max() < 1e-5


def test_four_bit_floats() -> None:
    """The largest value of a group decides its scale: 6 is the largest four-bit float."""
    values = torch.tensor([[6.0, 5.2, -2.4, 0.3, *[0.0] * 28, 0.75, 0.26, *[0.0] * 30]])
    assert rounded(values, "mxfp4")[0, [0, 1, 2, 3, 32, 33]].tolist() == [
        6.0, 6.0, -2.0, 0.5, 0.75, 0.25,
    ]  # fmt: skip
    near = rounded(values, "nvfp4")[0, [0, 1, 2, 3, 32, 33]]
    assert torch.allclose(near, torch.tensor([6.0, 6.0, -2.0, 0.5, 0.75, 0.25]), rtol=0.07)
    steps = torch.linspace(-1.0, 2.0, 16)[None]
    assert torch.allclose(rounded(steps, "int4/zero16"), steps, atol=1e-6)


def test_squares_with_a_scale_each() -> None:
    values = torch.ones(32, 32)
    values[:16, 16:] = 8.0
    values[16:, :16] = 0.125
    assert torch.equal(rounded(values, "fp8/block16"), values)
    exchanged = rounded(values, "fp8/transposed16")
    assert torch.equal(exchanged[:16, 16:], torch.full((16, 16), 0.125))
    assert torch.equal(exchanged[16:, :16], torch.full((16, 16), 8.0))
    assert torch.equal(exchanged[:16, :16], values[:16, :16])
    # The grid of a matrix that is no square cannot be read the other way round.
    assert torch.equal(rounded(values[:16], "fp8/transposed16"), values[:16])
    odd = values[:, :20] + 0.01
    assert torch.equal(rounded(odd, "fp8/block16"), odd)
