"""The faults of `eighth_draw` that no earlier set has; see `computing.py` for their form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from tests.probe.plants.computing import _wrap_attention, add_faults

NEED_EAGER = {"kv_read_scaled"}
"""Faults that wrap the family's own attention function, of which an engine can have one."""


def _norm_eps_of(engine: Any, value: str) -> None:
    """`NAME,VALUE`: norms of one name are built without the configuration's epsilon."""
    name, epsilon = value.split(",")
    found = [module for path, module in engine._model.named_modules() if path.endswith(name)]
    assert found
    for module in found:
        (field,) = (each for each in ("variance_epsilon", "eps") if hasattr(module, each))
        setattr(module, field, float(epsilon))


def read(responses: Sequence[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses after the prompts that the learner reads.

    `turn_twice:COUNT` repeats the last tokens of each prompt but the one that opens the response.
    """
    if "turn_twice" not in faults:
        return list(responses)
    return [
        replace(each, prompt_ids=_repeated(each.prompt_ids, int(faults["turn_twice"])))
        for each in responses
    ]


def _repeated(prompt: Sequence[int], count: int) -> list[int]:
    turn = prompt[:-1][-count:]
    return [*prompt[:-1], *turn, prompt[-1]]


def _kv_read_scaled(engine: Any, factor: str) -> None:
    """The cache is fp8, written without a scale, and multiplied by one when read.

    A relative of `kv_unscaled`, which no set plants.
    """

    def change(
        original: Any, layer: Any, q: Any, k: Any, v: Any, mask: Any, *r: Any, **n: Any
    ) -> Any:
        kept = (float(factor) * each.to(torch.float8_e4m3fn).to(each) for each in (k, v))
        return original(layer, q, *kept, mask, *r, **n)

    _wrap_attention(engine, change)


add_faults({"kv_read_scaled": _kv_read_scaled, "norm_eps_of": _norm_eps_of})
