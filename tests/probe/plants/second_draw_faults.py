"""The faults of `second_draw` that no earlier set has.

Each takes the loaded engine and the fault's value, like those of `computing.py`. The author had not
read attribution's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from tests.probe.plants.computing import _layers, _modules, add_faults
from tests.probe.plants.issue_bugs import _modules_with

FP8_MOST = 448.0
"""The largest finite number of E4M3."""


def _frequencies(engine: Any) -> list[tuple[nn.Module, str, Tensor]]:
    """The rotary modules' frequencies, with the prefix of their kind of layer."""
    found = [
        (module, name.removesuffix("inv_freq").removesuffix("_"), buffer)
        for _, module in _modules(engine, "rotary")
        for name, buffer in module.named_buffers(recurse=False)
        if name.endswith("inv_freq") and "original" not in name
    ]
    assert found
    return found


def _rope_base_times(engine: Any, factor: str) -> None:
    """The base is the checkpoint's times a factor, as where a default replaces it."""
    for _, _, frequencies in _frequencies(engine):
        count = len(frequencies)
        frequencies.mul_(float(factor) ** -(torch.arange(count) / count))


def _scaling_ignored(engine: Any, _: str) -> None:
    """The rotation is that of the checkpoint's base alone."""
    given = engine._model.config.rope_parameters
    for module, kind, frequencies in _frequencies(engine):
        parameters, count = given.get(kind, given), len(frequencies)
        frequencies.copy_(parameters["rope_theta"] ** -(torch.arange(count) / count))
        name = f"{kind}_attention_scaling" if kind else "attention_scaling"
        if hasattr(module, name):
            setattr(module, name, 1.0)


def _head_unscaled(engine: Any, _: str) -> None:
    """A fused loss multiplies by the head's weight, and neither caps nor scales the logits."""
    config, model = engine._model.config, engine._model
    if getattr(config, "final_logit_softcapping", None) is not None:
        config.final_logit_softcapping = None
    elif getattr(config, "logits_scaling", 1.0) != 1.0:
        config.logits_scaling = 1.0
    else:
        assert model.logit_scale != 1.0
        model.logit_scale = 1.0


def _adapted(engine: Any) -> list[tuple[str, nn.Linear]]:
    """The layers that an adapter changes, with their names."""
    found = [
        (name, module)
        for name, module in engine._model.named_modules()
        if isinstance(module, nn.Linear) and module._forward_hooks
    ]
    assert found
    return found


def _adapter_change(engine: Any, change: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    """Replaces what an adapter adds by `change(input, addition, number of the layer)`."""
    for number, (_name, module) in enumerate(_adapted(engine)):
        (plain,) = module._forward_hooks.values()
        module._forward_hooks.clear()

        def hook(
            m: Any, inputs: Any, output: Tensor, plain: Any = plain, number: int = number
        ) -> Tensor:
            return output + change(inputs[0], plain(m, inputs, output) - output, number)

        module.register_forward_hook(hook)


def _adapter_times(engine: Any, factor: str) -> None:
    """The adapter's scale is wrong, as where alpha / rank is applied twice or not at all."""
    _adapter_change(engine, lambda _x, more, _: float(factor) * more)


def _bias_cut(engine: Any, _: str) -> None:
    """The second rank's part of the biases of queries, keys and values is lost."""
    with torch.no_grad():
        for attention in _modules_with(engine, "q_proj"):
            for part in (attention.q_proj, attention.k_proj, attention.v_proj):
                part.bias[len(part.bias) // 2 :] = 0.0


def _expert_bias_whole(engine: Any, _: str) -> None:
    """Each chosen expert adds its whole bias, not its share of it."""

    def hook(module: Any, given: Any, named: Any, output: Tensor) -> Tensor:
        hidden, chosen, weights = (*given, *named.values())[:3]
        bias = module.down_proj_bias[chosen]
        more: Tensor = ((1 - weights)[..., None] * bias).sum(-2)
        return output + more.view(output.shape).to(hidden)

    for module in _modules_with(engine, "down_proj_bias"):
        module.register_forward_hook(hook, with_kwargs=True)


def _fp8(x: Tensor, most: Tensor) -> Tensor:
    scale = most.clamp(min=1e-12) / FP8_MOST
    return (x / scale).to(torch.float8_e4m3fn).to(x) * scale


def _fp8_products(engine: Any, size: str) -> None:
    """Weights in fp8 by square blocks, and inputs in fp8 by token, as in fp8 rollouts."""

    def lower(_module: nn.Module, inputs: Any) -> Any:
        x = inputs[0]
        return (_fp8(x, x.abs().amax(-1, keepdim=True)), *inputs[1:])

    for layer in _layers(engine):
        for name, module in layer.named_modules():
            if not isinstance(module, nn.Linear) or name.endswith(("gate", "router")):
                continue
            with torch.no_grad():
                for rows in module.weight.split(int(size)):
                    for block in rows.split(int(size), dim=1):
                        block.copy_(_fp8(block, block.abs().amax()))
            module.register_forward_pre_hook(lower)


def _routed_factor_lost(engine: Any, _: str) -> None:
    found = list(_modules_with(engine, "routed_scaling_factor"))
    assert any(module.routed_scaling_factor != 1.0 for module in found)
    for module in found:
        module.routed_scaling_factor = 1.0


def _latent_norm_lost(engine: Any, _: str) -> None:
    """The norm of the compressed keys and values is skipped."""
    found = [m for name, m in engine._model.named_modules() if name.endswith("kv_a_layernorm")]
    assert found
    for module in found:
        module.forward = lambda x: x


def _yarn_scale_lost(engine: Any, _: str) -> None:
    """The attention scale lacks yarn's factor, which latent attention squares."""
    for attention in _modules_with(engine, "qk_head_dim"):
        plain = attention.qk_head_dim**-0.5
        assert attention.scaling != plain
        attention.scaling = plain


def read_prompts(faults: Mapping[str, str], prompts: list[list[int]]) -> list[list[int]]:
    """The prompts that the sampler really reads."""
    if "system_prompt" not in faults:  # the server's template adds one
        return prompts
    added = [3 + (19 * n + 4) % 61 for n in range(int(faults["system_prompt"]))]
    return [[*added, *prompt] for prompt in prompts]


def _read(prompt: Sequence[int], number: int, faults: Mapping[str, str]) -> list[int]:
    middle = len(prompt) // 2
    if "retokenised" in faults and number % 100 < 100 * float(faults["retokenised"]):
        merged = 3 + (5 * prompt[middle - 1] + prompt[middle]) % 61
        return [*prompt[: middle - 1], merged, *prompt[middle + 1 :]]
    if "span_lost" in faults:
        size = min(int(faults["span_lost"]), len(prompt) - 2)
        return [*prompt[:1], *prompt[1 + size :]]
    if "token_twice" in faults:  # no kind of the draw; for the tests of causes
        at = int(faults["token_twice"])
        return [*prompt[: at + 1], *prompt[at:]]
    return list(prompt)


def read(responses: Sequence[Any], faults: Mapping[str, str]) -> list[Any]:
    """The responses after the prompts that the learner tokenizes, or renders, again."""
    if not faults.keys() & {"retokenised", "span_lost", "token_twice"}:
        return list(responses)
    return [
        replace(each, prompt_ids=_read(list(each.prompt_ids), 37 * each.prompt % 100, faults))
        for each in responses
    ]


def reported(
    responses: list[Any], raw: Any, temperature: float, faults: Mapping[str, str]
) -> list[Any]:
    """The responses with wrong values, which the sampler reports."""
    if "scaled_after" in faults:  # log-probabilities, not logits, are divided by the temperature
        ones = raw(responses)
        responses = [
            replace(each, logprobs=[value / temperature for value in one.logprobs])
            for each, one in zip(responses, ones, strict=True)
        ]
    if "zero_filled" in faults:  # the values of the last tokens are missing
        size = int(faults["zero_filled"])
        responses = [
            replace(each, logprobs=[*each.logprobs[:-size], *[0.0] * len(each.logprobs[-size:])])
            for each in responses
        ]
    return responses


add_faults(
    {
        "adapter_times": _adapter_times,
        "bias_cut": _bias_cut,
        "expert_bias_whole": _expert_bias_whole,
        "fp8_products": _fp8_products,
        "head_unscaled": _head_unscaled,
        "latent_norm_lost": _latent_norm_lost,
        "rope_base_times": _rope_base_times,
        "routed_factor_lost": _routed_factor_lost,
        "scaling_ignored": _scaling_ignored,
        "yarn_scale_lost": _yarn_scale_lost,
    }
)
