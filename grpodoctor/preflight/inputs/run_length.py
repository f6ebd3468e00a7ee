"""How many steps a run has, from its config and the number of prompts."""

from __future__ import annotations

import math
from collections.abc import Mapping

from grpodoctor.vocabulary.knobs import Setting


def amount(value: object) -> float:
    """A setting as a number; 0 if it is unknown or no finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0.0
    return float(value)


def fewest_prompts(known: Mapping[str, Setting]) -> float:
    """Prompts of a step, or those of a single process if the number of processes is not known."""
    group = amount(known.get("group_size"))
    responses = amount(known.get("responses_per_process"))
    return amount(known.get("prompts_per_batch")) or (responses / group if group else 0.0)


def most_steps(known: Mapping[str, Setting], prompts: int) -> int:
    """Optimizer steps that the epochs have at most; 0 if the config does not say it."""
    epochs, batch = amount(known.get("epochs")), fewest_prompts(known)
    if not epochs or not batch:
        return 0
    return int(prompts / batch * epochs * max(amount(known.get("updates_per_batch")), 1.0))


def advice_for_unknown(known: Mapping[str, Setting], keys: str) -> str:
    """What gives a check the settings that it lacks."""
    return f"state {keys} in the config" if known else "pass --run-config FILE"
