"""Reads from a config, or from what the engine printed, whether the sampler is quantized."""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import KnobMapping
from grpodoctor.frameworks.written_settings import Settings
from grpodoctor.vocabulary.knobs import Setting

PRINTED_QUANTIZATION = "printed_engine.quantization"
"""Key of what vLLM or SGLang printed about its weights when it started; see
`grpodoctor.runs.log_formats.decoding.printed_settings`."""

_NOT_QUANTIZED = ("", "none", "null", "auto", "false", "bf16", "bfloat16", "fp16", "float16",
                  "half", "fp32", "float32")  # fmt: skip
"""Values that leave the weights as they are, in lower case."""


def sampler_quantized(*keys: str) -> KnobMapping:
    """The fact `sampler_quantized`, for the keys that name the quantization or the precision.

    Args:
        keys: the framework's keys, the most specific first.
    """
    first, *others = (*keys, PRINTED_QUANTIZATION)
    return KnobMapping(
        "sampler_quantized", first, read=_read_quantization, other_keys=tuple(others)
    )


def _read_quantization(setting: Setting, _: Settings) -> Setting:
    return str(setting).lower() not in _NOT_QUANTIZED
