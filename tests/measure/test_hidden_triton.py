"""The Triton kernels agree with the torch functions; `make test-triton` installs what they need.

Without a GPU the kernels run in Triton's interpreter, on the CPU.
"""

from __future__ import annotations

import os
from types import ModuleType

import pytest
import torch
from torch import Tensor

from grpodoctor.measure.hidden import Head, score_hidden, tiles
from grpodoctor.measure.hidden import score as score_module

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported
pytest.importorskip("triton", reason="Triton is not installed; run make test-triton")

HEADS = {
    "plain": (False, 1.0, None),
    "bias": (True, 1.0, None),
    "scale": (False, 0.25, None),
    "softcap": (False, 1.0, 3.0),
    "everything": (True, 2.0, 5.0),
}
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 0.01}
"""Largest error relative to the largest value. In bfloat16 a gradient is rounded to eight bits."""


@pytest.fixture
def triton_tiles(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    from grpodoctor.measure.hidden import triton_tiles

    monkeypatch.setattr(triton_tiles, "_BLOCK", 64)
    monkeypatch.setitem(score_module._CHUNK_TOKENS, DEVICE, 16)
    monkeypatch.setitem(score_module._TILE_ELEMENTS, DEVICE, 16 * 150)
    monkeypatch.setattr(score_module, "_FEWEST_COLUMNS", 1)
    return triton_tiles


def scores_and_gradients(head: Head, dtype: torch.dtype, *, with_entropy: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden_ND = torch.randn(37, 16, generator=generator).to(DEVICE, dtype).requires_grad_()
    ids_N = torch.randint(300, (37,), generator=generator).to(DEVICE)
    weights_N = torch.linspace(-1.0, 2.0, 37, device=DEVICE)
    scores = score_hidden(hidden_ND, head, ids_N, temperature=0.6)
    loss = (weights_N * scores.logprobs_N).sum()
    if with_entropy:
        loss = loss + (weights_N.flip(0) * scores.entropy_N).sum()
    inputs = [hidden_ND, head.weight_VD, *([] if head.bias_V is None else [head.bias_V])]
    return [*scores, *torch.autograd.grad(loss, inputs)]


@pytest.mark.parametrize("with_entropy", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", HEADS)
def test_kernels_agree_with_torch(
    kind: str,
    dtype: torch.dtype,
    with_entropy: bool,
    triton_tiles: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_bias, scale, softcap = HEADS[kind]
    generator = torch.Generator().manual_seed(0)
    weight_VD = torch.randn(300, 16, generator=generator).mul(0.3).to(DEVICE, dtype)
    bias_V = torch.randn(300, generator=generator).to(DEVICE, dtype).requires_grad_()
    head = Head(weight_VD.requires_grad_(), bias_V if has_bias else None, scale, softcap)
    results = []
    for module in (tiles, triton_tiles):
        monkeypatch.setattr(score_module, "_kernels", lambda _device, module=module: module)
        results.append(scores_and_gradients(head, dtype, with_entropy=with_entropy))
    for right, own in zip(*results, strict=True):
        error = (own.float() - right.float()).abs().max() / right.float().abs().max()
        assert float(error.detach()) < TOLERANCE[dtype]
