"""The arithmetic of memory, against the bytes that torch really holds."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from grpodoctor.preflight.catalogue import all_checks
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.prompt_rows import PromptRow
from grpodoctor.preflight.inputs.run_settings import RunSettings
from grpodoctor.preflight.results.check_results import CheckFinding, SkippedCheck
from tests.probes.models import variant

Make = Callable[..., PreflightContext]
Findings = Callable[[str, PreflightContext], list[CheckFinding]]

ROW = PromptRow("line 1", "12345+1=", answer="12346")
SETTINGS = RunSettings(max_tokens=20)


def _bytes(tensors: object) -> int:
    return sum(each.nbytes for each in tensors)  # type: ignore[attr-defined]


def _trained(model: torch.nn.Module, masters: list[torch.nn.Parameter]) -> int:
    """Bytes of weights, gradients, other master weights and moments after a step of AdamW."""
    own = list(model.parameters())
    model(torch.zeros(1, 4, dtype=torch.long)).logits.sum().backward()
    for master, weight in zip(masters, own, strict=True):
        master.grad = weight.grad.to(master.dtype)
    optimizer = torch.optim.AdamW(masters)
    optimizer.step()
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg",
               "exp_avg_sq")]  # fmt: skip
    copies = [master for master in masters if all(master is not weight for weight in own)]
    return _bytes(own) + _bytes(weight.grad for weight in own) + _bytes([*copies, *moments])


def test_memory_of_the_learner_is_exact(
    dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    (finding,) = findings_of("OPT101", context_of(dense_model, [ROW], settings=SETTINGS))
    told = finding.figures["learner: weights, gradients and Adam (bytes)"]
    model = AutoModelForCausalLM.from_pretrained(dense_model, dtype=torch.bfloat16)
    masters = [torch.nn.Parameter(each.detach().float()) for each in model.parameters()]
    assert _trained(model, masters) == told
    slim = _trained(model, list(model.parameters()))
    assert told - slim == pytest.approx(
        (finding.figures["gib"] - finding.figures["gib_bfloat16"]) * 2**30
    )


@pytest.mark.parametrize("window", [None, 16])
def test_memory_of_the_kv_cache_is_exact(
    window: int | None, tmp_path: Path, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    kinds = ["sliding_attention", "full_attention"] * 2
    settings = {"use_sliding_window": True, "sliding_window": window, "layer_types": kinds}
    folder = variant(tmp_path / "m", dense_model, config=settings if window else {})
    context = context_of(folder, [ROW], settings=SETTINGS)
    (finding,) = findings_of("OPT101", context)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    tokens = len(context.render(ROW)) + SETTINGS.max_tokens
    cache = model(torch.zeros(1, tokens, dtype=torch.long), use_cache=True).past_key_values
    held = _bytes(each for layer in cache.layers for each in (layer.keys, layer.values))
    if window:  # which transformers keeps one less of than attention sees
        held += _bytes(
            each[:, :, :1] for layer in cache.layers[::2] for each in (layer.keys, layer.values)
        )
    assert finding.figures["key-value cache of one response (bytes)"] == held
    logits = model(torch.zeros(1, tokens, dtype=torch.long)).logits.float()
    assert finding.figures["logits of one response (bytes)"] == logits.nbytes


def test_available_memory_decides(
    dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    (free,) = findings_of("OPT101", context_of(dense_model, [ROW], settings=SETTINGS))
    severities = []
    for room in (2 * free.figures["gib"], 1.1 * free.figures["gib"], 0.9 * free.figures["gib"],
                 0.9 * free.figures["gib_bfloat16"]):  # fmt: skip
        settings = RunSettings(max_tokens=20, memory_gib=room)
        (finding,) = findings_of("OPT101", context_of(dense_model, [ROW], settings=settings))
        severities.append(finding.severity)
    assert severities == ["info", "warning", "warning", "critical"]


def test_unknown_sizes_are_not_zero(
    tmp_path: Path, dense_model: Path, context_of: Make, findings_of: Findings
) -> None:
    folder = variant(tmp_path / "m", dense_model)
    settings = json.loads((folder / "config.json").read_text())
    kinds = ["linear_attention"] * 4
    (folder / "config.json").write_text(json.dumps(settings | {"layer_types": kinds}))
    (finding,) = findings_of("OPT101", context_of(folder, [ROW], settings=SETTINGS))
    assert "key-value cache of one response: unknown for this architecture" in finding.details
    endless = settings | {"num_hidden_layers": 2**62, "layer_types": None}
    context = context_of(dense_model, [ROW], settings=SETTINGS)
    context = replace(context, files=replace(context.model_files, config=endless))
    (finding,) = findings_of("OPT101", context)
    assert finding.figures["gib"] > 1e9
    quantised = settings | {"quantization_config": {"quant_method": "gptq"}}
    (folder / "config.json").write_text(json.dumps(quantised))
    (check,) = (each for each in all_checks() if each.code == "OPT101")
    outcome = check.examine(context_of(folder, [ROW], settings=SETTINGS))
    assert isinstance(outcome, SkippedCheck)
    assert "gptq" in outcome.reason
