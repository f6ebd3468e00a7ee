"""An engine with another model, or on one device."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpodoctor.probe.engines.commands import model_of
from grpodoctor.probe.inputs.checksums import local_model
from grpodoctor.probe.inputs.engine_spec import EngineSpec


def model_path(engine: EngineSpec) -> Path:
    """The model directory of an engine; a hub name gives a path that does not exist."""
    return local_model(model_of(engine)[0]) or Path(model_of(engine)[0])


def with_model(engine: EngineSpec, model: Path) -> EngineSpec:
    """The same engine with another model."""
    if engine.kind.model == "option":
        return engine.with_options(model=str(model))
    return replace(engine, model=str(model))


_PARALLEL_OPTIONS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def on_one_device(engine: EngineSpec) -> EngineSpec:
    """The same engine on one device."""
    kind = engine.kind
    if kind.single_process:
        single = replace(engine, engine=kind.single_process, processes=1, launcher="")
        return single.with_options(**dict.fromkeys(kind.rank_options))
    given = {name: None for name in _PARALLEL_OPTIONS if name in engine.options}
    return replace(engine, processes=1).with_options(**given)


def config_overrides(engine: EngineSpec) -> dict[str, Any]:
    """Keys of `config.json` that vLLM's `hf_overrides` sets."""
    try:
        overrides = json.loads(str(engine.options.get("hf_overrides", "{}")))
    except (ValueError, RecursionError):
        return {}
    return overrides if isinstance(overrides, dict) else {}
