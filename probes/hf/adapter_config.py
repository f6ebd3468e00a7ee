"""The configuration of a LoRA adapter in the files of peft; needs no torch."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract import RefusalError

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
_UNSUPPORTED = ("use_dora", "fan_in_fan_out")


@dataclass(frozen=True)
class AdapterConfig:
    """Ranks and scales of an adapter's layers."""

    rank: int
    alpha: float
    ranks: Mapping[str, int]
    """peft's `rank_pattern`: patterns of the ends of layer names, with their rank."""
    alphas: Mapping[str, float]
    """peft's `alpha_pattern`."""
    is_rank_stabilized: bool = False

    @property
    def largest_rank(self) -> int:
        """The largest rank of a layer."""
        return max((self.rank, *self.ranks.values()))

    def scale_of(self, layer: str) -> float:
        """The factor of a layer's update: alpha / rank, or alpha / sqrt(rank)."""
        rank = _matching(self.ranks, layer, self.rank)
        alpha = _matching(self.alphas, layer, self.alpha)
        return float(alpha) / (math.sqrt(rank) if self.is_rank_stabilized else rank)


def _matching(patterns: Mapping[str, float], layer: str, default: float) -> float:
    """The value of the first pattern that a layer's name, or an end of it, matches, as in peft."""
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", layer):
            return float(value)
    return default


def read_adapter_config(folder: Path) -> AdapterConfig:
    """The configuration of an adapter.

    Raises:
        RefusalError: if it is missing, damaged or not plain LoRA.
    """
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise unreadable(folder, error) from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise RefusalError("the adapter is not a LoRA adapter", "merge it, and name the model")
    for name in _UNSUPPORTED:
        if config.get(name):
            raise RefusalError(
                f"the adapter sets {name}, which is not supported",
                "merge it with peft, and name the merged model",
            )
    rank: Any = config.get("r")
    alpha: Any = config.get("lora_alpha")
    if not _is_rank(rank) or not _is_number(alpha):
        raise RefusalError("the adapter's r or lora_alpha is not a number", f"check its {CONFIG}")
    ranks, alphas = config.get("rank_pattern") or {}, config.get("alpha_pattern") or {}
    if not (_is_pattern(ranks, _is_rank) and _is_pattern(alphas, _is_number)):
        raise RefusalError(
            "the adapter's rank_pattern or alpha_pattern is not a mapping of names to numbers",
            f"check its {CONFIG}",
        )
    return AdapterConfig(rank, float(alpha), ranks, alphas, bool(config.get("use_rslora")))


def unreadable(folder: Path, error: Exception) -> RefusalError:
    """The error of a directory without a readable adapter."""
    return RefusalError(
        f"the adapter {folder} cannot be read: {' '.join(str(error).split())[:200]}",
        f"name a directory with {CONFIG} and {WEIGHTS}",
    )


def _is_rank(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_pattern(patterns: Any, is_valid: Any) -> bool:
    if not isinstance(patterns, dict):
        return False
    try:
        for pattern in patterns:
            re.compile(pattern)
    except re.error:
        return False
    return all(map(is_valid, patterns.values()))
