"""The faults of `eighth_draw` that no earlier set has; see `computing.py` for their form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.probe.plants.computing import add_faults


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


add_faults({"norm_eps_of": _norm_eps_of})
