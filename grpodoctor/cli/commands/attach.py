"""`grpodoctor attach`: the lines that connect a training to grpodoctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from grpodoctor.cli.options import OnlyJsonOption
from grpodoctor.cli.pages import json_text

if TYPE_CHECKING:
    from grpodoctor.hooks.adapter import Adapter

_ANY_LOOP = """\
any other loop in torch
  with grpodoctor.Doctor("runs/mine") as doctor:
      for number in range(steps):
          with doctor.step(number) as step:
              step.rollouts(tokens=..., mask=..., rewards=..., groups=...)
              step.logits(logits)
              step.update(loss=..., grad_norm=..., learning_rate=...)
"""


def attach(
    framework: Annotated[
        str | None,
        typer.Option(help="Framework that trains (trl, verl, ...). \\[default: list all]"),
    ] = None,
    as_json: OnlyJsonOption = False,
) -> None:
    """Print the lines that connect a training to grpodoctor.

    The training then records itself; `grpodoctor watch` follows and treats it.
    """
    from grpodoctor.hooks.adapter import adapter_named, adapters

    chosen = list(adapters().values()) if framework is None else [adapter_named(framework)]
    if as_json:
        print(json_text([_to_json(adapter) for adapter in chosen]))
        return
    blocks = [_block(adapter) for adapter in chosen]
    print("\n".join(blocks if framework else [*blocks, _ANY_LOOP]).rstrip())


def _block(adapter: type[Adapter]) -> str:
    versions = ", ".join(adapter.verified_versions)
    head = f"{adapter.framework}, verified on {versions}" if versions else adapter.framework
    lines = adapter.instructions.strip("\n").splitlines()
    return "\n".join([head, *(f"  {line}".rstrip() for line in lines)]) + "\n"


def _to_json(adapter: type[Adapter]) -> dict[str, object]:
    return {
        "framework": adapter.framework,
        "verified_versions": list(adapter.verified_versions),
        "instructions": adapter.instructions,
    }
