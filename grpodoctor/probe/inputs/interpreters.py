"""The Pythons that run engines: whether they can run engine programs, and what they contain."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from grpodoctor.errors import EngineError
from grpodoctor.probe.inputs.engine_kinds import ENGINES
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.support.safe_text import printable
from grpodoctor.support.subprocesses import kill_group
from grpodoctor.support.suggestions import near_names

_NUMERIC_PACKAGES = (
    *("torch", "transformers", "tokenizers", "kernels", "vllm", "flash", "xformers", "triton"),
    *("nvidia", "compressed_tensors", "bitsandbytes", "llama_cpp"),
)
"""Prefixes of packages that affect an engine's numbers."""
_OLDEST_PYTHON = (3, 10)
_MAX_BYTES = 4 << 20
_TIMEOUT_SECONDS = 60.0
_VERY_CLOSE = 0.8
"""Similarity from which an unknown option of vLLM is misspelt: its source may not show all."""
_REPORT_PROGRAM = """
import ast, json, os, sys
from importlib.util import find_spec
def names_in(path, classname):
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for node in (part for top in tree.body if getattr(top, "name", "") == classname
                 for part in top.body):
        if isinstance(node, ast.AnnAssign):
            yield node.target.id
        elif getattr(node, "name", "") == "__init__":
            yield from (each.arg for each in node.args.args + node.args.kwonlyargs)
def vllm_arguments():
    try:
        folder = os.path.dirname(find_spec("vllm").origin)
        return [*names_in(os.path.join(folder, "engine", "arg_utils.py"), "EngineArgs"),
                *names_in(os.path.join(folder, "entrypoints", "llm.py"), "LLM")]
    except Exception:
        return []
folders = sys.path[:] = [folder for folder in sys.path if folder]
names = (name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder))
print(json.dumps({
    "version": sys.version_info[:3],
    "has": [name for name in sys.argv[1:] if find_spec(name)],
    "installed": sorted({name for name in names if name.endswith(("-info", ".egg-link"))}),
    "vllm_arguments": vllm_arguments(),
}))
"""


def python_of(spec: EngineSpec) -> str:
    """The path of the Python that runs an engine.

    Raises:
        EngineError: if it does not exist, or cannot run engine programs.
    """
    python = spec.python or sys.executable
    path = shutil.which(os.path.expanduser(python))  # noqa: PTH111 - "~" alone; a Path drops "./"
    if path is None:
        raise EngineError(
            f"there is no Python interpreter {printable(python, 200)}",
            where=f"python= of {spec.label}",
            remedy="pass the path of an interpreter that has the engine, such as "
            ".venv-vllm/bin/python",
        )
    problem = _problem(_report_of(path))
    if problem:
        raise EngineError(
            f"{printable(python, 200)} cannot run engines: {problem}",
            where=f"python= of {spec.label}",
            remedy="pass the path of an interpreter that has the engine",
        )
    return path


def check_installed(spec: EngineSpec) -> None:
    """Refuse an engine whose Python lacks its packages or an option; nothing is imported.

    Raises:
        EngineError: if there is no such Python, or it lacks the engine, or an option is misspelt.
    """
    python = python_of(spec)
    installed = _report_of(python).get("has", ())
    missing = [name for name in spec.kind.packages if name not in installed]
    if missing:
        raise EngineError(
            f"{printable(python, 200)} cannot run {spec.engine}: it has no package {missing[0]}",
            where=spec.label,
            remedy="install it there, or select an interpreter that has it with python=PATH",
        )

    if spec.engine == "vllm":
        _check_vllm_options(spec, _report_of(python).get("vllm_arguments", ()))


def _check_vllm_options(spec: EngineSpec, arguments: Collection[str]) -> None:
    """Refuse an option that vLLM's source does not have, but one with a similar name."""
    known = {*arguments, *spec.kind.own_options} - {"self", "kwargs"}
    for name in spec.options:
        near = near_names(name, known, _VERY_CLOSE) if arguments and name not in known else []
        if near:
            raise EngineError(
                f"vLLM has no option {printable(name, 60)!r}",
                where=spec.label,
                remedy=f"did you mean {' or '.join(near)}?",
            )


def installed_for(spec: EngineSpec) -> tuple[str, ...]:
    """Name and version of all packages that affect an engine's numbers; empty if not known."""
    try:
        names = _report_of(python_of(spec)).get("installed", ())
    except EngineError:
        return ()
    return tuple(str(name) for name in names if str(name).lower().startswith(_NUMERIC_PACKAGES))


def _problem(report: Mapping[str, Any]) -> str:
    """Why a Python cannot run an engine program; empty if it can."""
    if "error" in report:
        return str(report["error"])
    if list(report["version"]) < list(_OLDEST_PYTHON):
        return f"it is older than {'.'.join(map(str, _OLDEST_PYTHON))}"
    return "" if "numpy" in report["has"] else "it has no numpy"


@cache
def _report_of(path: str) -> Mapping[str, Any]:
    """The report of `_REPORT_PROGRAM`, or an `error`."""
    names = sorted({"numpy", *(name for kind in ENGINES.values() for name in kind.packages)})
    with tempfile.TemporaryFile() as file:
        try:
            process = subprocess.Popen(  # noqa: S603 - the Python that the user named
                [path, "-c", _REPORT_PROGRAM, *names],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
        except OSError as error:
            return {"error": printable(str(error), 120)}
        try:
            process.wait(_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return {"error": f"it did not answer within {_TIMEOUT_SECONDS:.0f} s"}
        finally:
            kill_group(process)  # the path may name any program, which may have started others
            process.wait()
        file.seek(0)
        return _parse(file.read(_MAX_BYTES))


def _parse(output: bytes) -> Mapping[str, Any]:
    try:
        data = json.loads(output.splitlines()[-1])
        report = {name: list(data[name]) for name in ("version", "has", "installed")}
        report["version"] = [int(part) for part in report["version"]]
        report["vllm_arguments"] = [str(each) for each in data.get("vllm_arguments", ())]
    except (IndexError, ValueError, TypeError, KeyError, RecursionError):
        return {"error": "it does not answer like a Python"}
    return report
