"""Faults of sampling: hidden settings, prompts that are changed, and logits processors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch

from tests.probe.plants import (
    engine_bugs,
    exclusions,
    fifth_draw_faults,
    fourth_draw_faults,
    further,
    issue_bugs,
    report_bugs,
    seventh_draw_faults,
    sixth_draw_faults,
    third_draw_serving,
    upstream_bugs,
)

PAD, END, BOS = 0, 1, 2
PROCESSORS = ("repetition", "presence", "frequency", "bias", "banned", "min_tokens")
PROCESSORS += (
    *further.PROCESSORS,
    *engine_bugs.ROW_PROCESSORS,
    *report_bugs.ROW_PROCESSORS,
    *issue_bugs.ROW_PROCESSORS,
    *upstream_bugs.ROW_PROCESSORS,
    *third_draw_serving.ROW_PROCESSORS,
    *fourth_draw_faults.ROW_PROCESSORS,
    *fifth_draw_faults.ROW_PROCESSORS,
    *sixth_draw_faults.ROW_PROCESSORS,
    *seventh_draw_faults.ROW_PROCESSORS,
    *exclusions.ROW_PROCESSORS,
)


class Settings:
    """The sampling faults among an engine's faults."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        self._faults = faults
        self.is_raw = "raw" in faults
        """Whether the values of the model without processors are reported."""

    def sampling(self, asked: Any) -> Any:
        """The settings that are really used."""
        changes: dict[str, Any] = {}
        for name, kind in (("top_p", float), ("top_k", int), ("min_p", float)):
            if f"hidden_{name}" in self._faults:
                changes[name] = kind(self._faults[f"hidden_{name}"])
        if "hidden_temperature" in self._faults:
            changes["temperature"] = asked.temperature * float(self._faults["hidden_temperature"])
        return replace(asked, **changes)

    def prompts(self, prompts: list[list[int]]) -> list[list[int]]:
        """The prompts that are really read."""
        if "begun" in self._faults:
            return [[BOS, *prompt] for prompt in prompts]
        if "first_lost" in self._faults:
            return [prompt[1:] for prompt in prompts]
        if "padded" in self._faults:  # attended padding on the left
            width = max(map(len, prompts))
            return [[PAD] * (width - len(prompt)) + prompt for prompt in prompts]
        return further.read_prompts(self._faults, prompts)

    @contextmanager
    def processors(self, engine: Any) -> Iterator[None]:
        """Apply logits processors while the engine samples."""
        mine = {name: self._faults[name] for name in PROCESSORS if name in self._faults}
        split = engine._split
        plain = split.next_logits
        seen: dict[str, Any] = {}

        def next_logits(ids: torch.Tensor, mask: torch.Tensor, cache: Any) -> Any:
            logits, kept = plain(ids, mask, cache)
            if cache is None:
                seen["all"], seen["start"] = ids.where(mask.bool(), -1), ids.shape[1]
                reorder = kept.reorder_cache

                def reordered(rows: torch.Tensor) -> None:
                    seen["all"] = seen["all"][rows]
                    reorder(rows)

                kept.reorder_cache = reordered
            else:
                seen["all"] = torch.cat([seen["all"], ids], dim=1)
            return _processed(logits.float(), seen["all"], seen["start"], mine), kept

        if not mine:
            yield
            return
        with mock.patch.object(split, "next_logits", next_logits):
            yield


def _processed(logits: Any, ids: Any, start: int, mine: Mapping[str, str]) -> Any:
    """The logits after the processors, row by row."""
    for row in range(len(logits)):
        everything = [token for token in ids[row].tolist() if token >= 0]
        drawn = ids[row, start:].tolist()
        logits[row] = _row(logits[row], everything, drawn, mine)
    return logits


def _row(logits: Any, everything: Sequence[int], drawn: Sequence[int], mine: Any) -> Any:
    logits = logits.clone()
    if "repetition" in mine:
        penalty = float(mine["repetition"])
        for token in set(everything):
            logits[token] = (
                logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
            )
    if "presence" in mine:
        logits[list(set(drawn))] -= float(mine["presence"])
    if "frequency" in mine:
        for token in drawn:
            logits[token] -= float(mine["frequency"])
    if "bias" in mine:
        logits[int(mine["bias"].split(",")[0])] += float(mine["bias"].split(",")[1])
    if "banned" in mine:
        logits[[int(token) for token in mine["banned"].split(",")]] = -torch.inf
    if "min_tokens" in mine and len(drawn) < int(mine["min_tokens"]):
        logits[END] = -torch.inf
    logits = engine_bugs.changed_row(logits, everything, drawn, mine)
    logits = report_bugs.changed_row(logits, drawn, mine)
    logits = issue_bugs.changed_row(logits, everything, mine)
    logits = upstream_bugs.changed_row(logits, everything, drawn, mine)
    logits = third_draw_serving.changed_row(logits, everything, drawn, mine)
    logits = fourth_draw_faults.changed_row(logits, mine)
    logits = fifth_draw_faults.changed_row(logits, mine)
    logits = sixth_draw_faults.changed_row(logits, everything, mine)
    logits = seventh_draw_faults.changed_row(logits, everything, mine)
    logits = exclusions.changed_row(logits, everything, mine)
    return further.changed_row(logits, mine)
