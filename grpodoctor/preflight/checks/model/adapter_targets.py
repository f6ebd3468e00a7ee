"""OPT105."""

from __future__ import annotations

import ast
import json
from contextlib import suppress
from typing import ClassVar

from grpodoctor.preflight.base import Check
from grpodoctor.preflight.context import PreflightContext
from grpodoctor.preflight.inputs.config_columns import listed_settings
from grpodoctor.preflight.results.check_results import CheckFinding, CheckResult, SkippedCheck
from grpodoctor.support.numbers import part_of

_KEYS = ("lora_target_modules", "target_modules")
_ALL = frozenset({"all-linear", "all", "auto"})
_LLAMA = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj lm_head embed_tokens"
_FAMILIES = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "smollm3"), _LLAMA),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text"), _LLAMA),
    "phi3": "qkv_proj o_proj gate_up_proj down_proj lm_head embed_tokens",
    "gpt2": "c_attn c_proj c_fc lm_head wte wpe",
    "gpt_neox": "query_key_value dense dense_h_to_4h dense_4h_to_h embed_in embed_out",
}
"""Names of the linear layers and embeddings of families, as transformers names them."""
_INDEX = "model.safetensors.index.json"


class AdapterTargets(Check):
    """The adapter's target modules do not exist in the model.

    What it sees:
        The target modules of the config's adapter, and the names of the model's layers: those of
        its index of weights, or those of its family.

    Why it matters:
        The adapter cannot be created, or only a part of the layers is trained.

    What to do:
        Use `all-linear`, or the names of this model's layers.

    When it is wrong:
        The model's code gives its layers other names than its family.

    References:
        peft, LoraConfig.target_modules.
    """

    code: ClassVar[str] = "OPT105"
    name: ClassVar[str] = "adapter-targets-missing"
    summary: ClassVar[str] = "The adapter's target modules do not exist in the model."

    def examine(self, context: PreflightContext) -> CheckResult:
        """Compare the names."""
        if not context.flat_config:
            return SkippedCheck("no config was given", "pass --run-config FILE")
        wanted = _targets(context)
        modules = _modules(context) if wanted else frozenset()
        if not wanted or not modules:
            return SkippedCheck(
                "the config names no target modules, or the model's are not known",
                "pass --run-config and --model",
            )
        missing = [name for name in wanted if name.rpartition(".")[2] not in modules]
        if not missing:
            return ()
        return (
            CheckFinding(
                "critical" if len(missing) == len(wanted) else "warning",
                f"{part_of(len(missing), len(wanted), 'target modules of the adapter', 'do')} "
                "not exist in "
                f"the model: {', '.join(missing[:4])}.",
                (f"Use all-linear, or names such as {', '.join(sorted(modules)[:4])}.",),
            ),
        )


def _targets(context: PreflightContext) -> list[str]:
    """The names that the config lists; empty for a pattern or a word for all layers."""
    for key, value in listed_settings(context.config_contents):
        if key in _KEYS:
            names = [str(each) for each in value]
            return [] if _ALL.intersection(names) else names
    for key, text in context.flat_config.items():
        if key.rpartition(".")[2] in _KEYS and isinstance(text, str) and text[:1] == "[":
            with suppress(ValueError, SyntaxError):
                listed = ast.literal_eval(text)
                return [str(each) for each in listed] if isinstance(listed, list) else []
    return []


def _modules(context: PreflightContext) -> frozenset[str]:
    """The last parts of the names of the model's layers; empty if they are not known."""
    index = context.model / _INDEX
    if index.is_file():
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            weights = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            names = frozenset(name.split(".")[-2] for name in weights if "." in name)
            return names | {"lm_head"} if names else names  # tied models store no weights of it
    return frozenset(_FAMILIES.get(str(context.config.get("model_type")), "").split())
