"""Edits of the scaling of rotary positions: another method, none, or the model's own twice."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from contract import InapplicableError
from torch import nn

from hf.what_if.positions import changed_frequencies, plain_frequencies, rotary_modules

TWICE = "twice"
_UNREADABLE = (KeyError, ValueError, TypeError, AttributeError, RuntimeError)
"""What a scaling raises if the configuration lacks what it needs."""


@contextmanager
def rope_type(model: Any, value: Any) -> Iterator[None]:
    """Scale frequencies by a method of transformers, such as `yarn/4`; `twice`: its own again."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind, _, factor = str(value).partition("/")
    config = copy.deepcopy(model.config.get_text_config())
    try:
        if kind == "default":
            frequencies, scale = plain_frequencies(model, config.rope_parameters["rope_theta"]), 1.0
        elif kind == TWICE:
            plain = plain_frequencies(model, config.rope_parameters["rope_theta"])
            now = getattr(*rotary_modules(model)[0])
            frequencies, scale = now**2 / plain.to(now), _amplitude(model)
        elif factor == "long":
            most = int(config.rope_parameters["original_max_position_embeddings"])
            frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config, None, seq_len=most + 1)
        else:
            config.rope_parameters = _parameters(config, kind, float(factor or 1))
            frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    except _UNREADABLE as error:
        raise InapplicableError(f"this model has no {kind} scaling: {error}") from error
    with _scaled_as(model, frequencies, scale):
        yield


@contextmanager
def rope_parameter(model: Any, value: Any) -> Iterator[None]:
    """Another number of the scaling that the model has, `[name, number]`."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    name, number = str(value[0]), value[1]
    now = own_parameters(model)
    if name not in now:
        raise InapplicableError(f"the scaling of this model has no {name}")
    config = copy.deepcopy(model.config.get_text_config())
    number = max(1, round(number)) if isinstance(now[name], int) else float(number)
    config.rope_parameters = {**dict(config.rope_parameters), name: number}
    kind = config.rope_parameters["rope_type"]
    try:
        frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    except _UNREADABLE as error:
        raise InapplicableError(f"its scaling allows no {name} of {number}: {error}") from error
    with _scaled_as(model, frequencies, scale):
        yield


@contextmanager
def _scaled_as(model: nn.Module, frequencies: torch.Tensor, scale: float) -> Iterator[None]:
    """Rotate with frequencies, and a factor on sines and cosines."""
    modules = {id(module): module for module, _ in rotary_modules(model)}.values()
    with ExitStack() as stack:
        for module in modules:
            if isinstance(getattr(module, "attention_scaling", None), int | float):
                stack.enter_context(mock.patch.object(module, "attention_scaling", scale))
        stack.enter_context(changed_frequencies(model, frequencies.to))
        yield


def own_parameters(model: Any) -> dict[str, int | float]:
    """The numbers of the scaling that the model has; empty without one."""
    parameters = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    if parameters.get("rope_type", "default") == "default":
        return {}
    return {n: one for n, one in parameters.items() if type(one) in (int, float) and one > 0}


def own_types(model: Any) -> list[str]:
    """Other forms of the scaling that the model has: none, and the one for long contexts."""
    parameters = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    kind = parameters.get("rope_type", "default")
    if kind == "default" or "rope_theta" not in parameters:
        return []
    return ["default", TWICE, *([f"{kind}/long"] if "long_factor" in parameters else [])]


def _amplitude(model: nn.Module) -> float:
    """The factor on sines and cosines that the model's scaling has."""
    return float(getattr(rotary_modules(model)[0][0], "attention_scaling", 1.0))


def _parameters(config: Any, kind: str, factor: float) -> dict[str, Any]:
    context = int(config.max_position_embeddings)
    return {
        **dict(config.rope_parameters),
        "rope_type": kind,
        "factor": factor,
        "original_max_position_embeddings": max(1, int(context / factor)),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
