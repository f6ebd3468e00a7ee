"""The Pythons that engines run in: whether one can run a program, and what is installed in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from grpodoctor.errors import EngineError
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.support.safe_text import printable

_NEEDED = {
    "vllm": ("vllm",),
    "transformers": ("torch", "transformers"),
    "fsdp": ("torch", "transformers"),
    "llama_cpp": ("llama_cpp",),
    "recorded": ("grpodoctor",),
}
"""Packages without which an engine cannot start."""
_BEARING = (
    *("torch", "transformers", "tokenizers", "kernels", "vllm", "flash", "xformers", "triton"),
    *("nvidia", "compressed_tensors", "bitsandbytes", "llama_cpp"),
)
"""Beginnings of the names of packages that bear on an engine's numbers."""
_MOST_BYTES = 4 << 20
_PATIENCE_SECONDS = 60.0
_QUESTION = """
import json, os, sys
from importlib.util import find_spec
places = sys.path[:] = [each for each in sys.path if each]
kept = (name for each in places if os.path.isdir(each) for name in os.listdir(each))
print(json.dumps({
    "version": sys.version_info[:3],
    "has": [name for name in sys.argv[1:] if find_spec(name)],
    "installed": sorted({name for name in kept if name.endswith(("-info", ".egg-link"))}),
}))
"""


def python_of(spec: EngineSpec) -> str:
    """The path of the Python that an engine is to run in.

    Raises:
        EngineError: if there is none, or it cannot run engine programs.
    """
    python = spec.python or sys.executable
    found = shutil.which(os.path.expanduser(python))  # noqa: PTH111 - "~" alone; a Path drops "./"
    if found is None:
        raise EngineError(
            f"there is no Python {printable(python, 200)}",
            where=f"python= of {spec.label}",
            remedy="give the path of the Python that has the engine, such as .venv-vllm/bin/python",
        )
    complaint = _complaint(_asked(found))
    if complaint:
        raise EngineError(
            f"{printable(python, 200)} is not a Python that can run engines: {complaint}",
            where=f"python= of {spec.label}",
            remedy="give the path of the Python that has the engine",
        )
    return found


def check_installed(spec: EngineSpec) -> None:
    """Refuse an engine that the Python it is to run in does not have; nothing is imported.

    Raises:
        EngineError: if there is no such Python, or it lacks the engine.
    """
    python = python_of(spec)
    needed = _NEEDED.get(spec.engine, ())
    lacking = [name for name in needed if name not in _asked(python).get("has", ())]
    if lacking:
        raise EngineError(
            f"{printable(python, 200)} cannot import what the engine needs: it has no {lacking[0]}",
            where=spec.label,
            remedy="install it there, or name the Python that has it with python=",
        )


def installed_for(spec: EngineSpec) -> tuple[str, ...]:
    """Name and version of all packages that bear on an engine's numbers; none if not known."""
    try:
        told = _asked(python_of(spec)).get("installed", ())
    except EngineError:
        return ()
    return tuple(str(each) for each in told if str(each).lower().startswith(_BEARING))


def _complaint(told: Mapping[str, Any]) -> str:
    """Why a Python cannot run an engine program; empty if it can."""
    if "why" in told:
        return str(told["why"])
    if list(told["version"]) < [3, 9]:
        return "it is older than 3.9"
    return "" if "numpy" in told["has"] else "it has no numpy"


@cache
def _asked(path: str) -> Mapping[str, Any]:
    """What a Python says of itself; `why` it does not."""
    names = sorted({"numpy", *(name for each in _NEEDED.values() for name in each)})
    with tempfile.TemporaryFile() as file:
        try:
            process = subprocess.Popen(  # noqa: S603 - what the user has named
                [path, "-c", _QUESTION, *names],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            return {"why": printable(str(error), 120)}
        try:
            process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            return {"why": f"it has not answered within {_PATIENCE_SECONDS:.0f} s"}
        finally:
            # With what it has started: it may be anything that stands at that path.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        file.seek(0)
        return _read(file.read(_MOST_BYTES))


def _read(said: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(said.splitlines()[-1])
        known = {name: list(told[name]) for name in ("version", "has", "installed")}
        known["version"] = [int(each) for each in known["version"]]
    except (IndexError, ValueError, TypeError, KeyError, RecursionError):
        return {"why": "it does not answer as one"}
    return known
