"""The command line of an engine program, and checks before it is started."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from grpodoctor.errors import EngineError
from grpodoctor.probe.inputs.checksums import HUB_NAME, lacking, local_model
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.inputs.interpreters import check_installed, python_of
from grpodoctor.support.programs import program
from grpodoctor.support.safe_text import printable

_TOKENIZER_FILE = re.compile(r"token|vocab|merges|spiece|spm|tekken|\.model$")
"""Names of the files of tokenizers."""
_SIDES = ("sampler", "learner")
_MODEL_FILES = "name a directory with config.json and *.safetensors"


def command_of(spec: EngineSpec, request: Path) -> tuple[str, ...]:
    """The command that runs an engine's program.

    Raises:
        EngineError: if the Python, the program or the launcher does not exist.
    """
    path = _program_of(spec)
    if spec.launcher:
        return *_launcher_of(spec), str(path), str(request)
    python = python_of(spec)
    processes = _processes(spec)
    if spec.kind.rank_options or processes > 1:
        torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}")
        return python, *torchrun, str(path), str(request)
    return python, str(path), str(request)


def model_of(spec: EngineSpec) -> tuple[str, dict[str, Any]]:
    """The model and the options of the request."""
    options = dict(spec.options)
    if spec.kind.model == "option":
        return str(options.pop("model", "")), options
    return spec.model, options


def check_start(spec: EngineSpec) -> None:
    """Refuse an engine that cannot start, as far as this shows without starting it.

    Raises:
        EngineError: if its Python, program, launcher or model does not exist, its Python lacks
            the engine, its directory is no model, or a record lacks its side.
    """
    command_of(spec, Path("request.json"))
    if spec.is_record and spec.options.get("side") not in _SIDES:
        remedy = "set side=sampler or side=learner"
        raise EngineError("side= is missing or unknown", where=spec.label, remedy=remedy)
    if spec.launcher:  # it may run on other machines
        return
    check_installed(spec)
    if spec.kind.model in ("url", "option") or Path(spec.model).exists():
        _check_files(spec)
        return
    is_hub_name = spec.kind.model == "hub" and HUB_NAME.fullmatch(spec.model)
    if is_hub_name and not (_is_offline() and local_model(spec.model) is None):
        return
    cached = ", nor in the hub's cache, and HF_HUB_OFFLINE is set" if is_hub_name else ""
    raise EngineError(
        f"there is no model at {printable(spec.model, 200)}{cached}",
        where=spec.label,
        remedy="check the path" + (", or download the model first" if is_hub_name else ""),
    )


def _check_files(spec: EngineSpec) -> None:
    folder = Path(spec.model)
    # Other formats of vLLM need no files, or files of another kind.
    if spec.kind.model != "hub" or not folder.is_dir() or "load_format" in spec.options:
        return
    if reason := lacking(folder):
        raise EngineError(
            f"{printable(spec.model, 200)} {reason}", where=spec.label, remedy=_MODEL_FILES
        )


def check_tokenizer(spec: EngineSpec, prompts: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a model directory without a tokenizer if the sampler has to encode prompts.

    Raises:
        EngineError: if a prompt has no ids, and no file of the directory may be a tokenizer.
    """
    folder, is_needed = Path(spec.model), any("ids" not in prompt for prompt in prompts)
    if spec.launcher or "tokenizer" in spec.options or not is_needed:
        return
    if spec.kind.model != "hub" or not (folder / "config.json").is_file():
        return
    if any(_TOKENIZER_FILE.search(file.name) for file in folder.iterdir()):
        return
    raise EngineError(
        f"{printable(spec.model, 200)} has no tokenizer",
        where=spec.label,
        remedy="pass --prompts with prompt_token_ids, or add the files of the tokenizer",
    )


def _is_offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def _launcher_of(spec: EngineSpec) -> list[str]:
    try:
        words = shlex.split(spec.launcher)
    except ValueError:  # an unclosed quote
        words = []
    if not words or shutil.which(words[0]) is None:
        raise EngineError(
            f"there is no program {printable(words[0] if words else spec.launcher, 200)}",
            where=f"launcher= of {spec.label}",
            remedy="name one that is on the PATH",
        )
    return words


def _program_of(spec: EngineSpec) -> Path:
    if spec.kind.model != "option":
        return program("probes", f"engine_{spec.engine}.py")
    path = Path(spec.model)
    if not path.is_file():
        raise EngineError(
            "there is no such engine program", where=spec.model, remedy="write program:PATH?model=…"
        )
    return path


def _processes(spec: EngineSpec) -> int:
    """Processes under torchrun: as given, otherwise the product of the parallel degrees."""
    if not spec.kind.rank_options or spec.processes > 1:
        return spec.processes
    degrees = (spec.options.get(name, 1) for name in spec.kind.rank_options)
    return max(1, math.prod(degree if isinstance(degree, int) else 1 for degree in degrees))
