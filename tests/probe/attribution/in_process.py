"""An engine runner that runs the programs of transformers in this process: torch is imported once.

Requests, answers, shards, checks and storage are those of the real engine runner. Other engines run
as subprocesses.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from grpodoctor.probe.engines import engine_runner
from grpodoctor.probe.engines.commands import command_of
from grpodoctor.probe.engines.engine_run import EngineRun
from grpodoctor.probe.engines.loaded_engine import LoadedEngine
from grpodoctor.probe.engines.processes import ProgramExit

PROBES = Path(__file__).parents[3] / "probes"
HERE = ("engine_transformers.py", "engine_recorded.py", "faulty.py", "planted_engine.py")


class InProcess(engine_runner.EngineRunner):
    """See the module."""

    starts = 0
    """Engines that were loaded."""

    def _start(self, run: Any) -> ProgramExit:
        self.starts += 1
        with transformers_in_process():
            return super()._start(run)


@contextmanager
def transformers_in_process() -> Iterator[None]:
    """Run the programs of transformers in this process, whoever starts them."""
    with mock.patch.object(LoadedEngine, "run", _run):
        yield


_run_loaded = LoadedEngine.run


def _run(
    loaded: LoadedEngine, run: EngineRun, deadline: float, watch: Callable[[], None]
) -> ProgramExit:
    *_, program, request = map(str, command_of(run.engine, run.files.request))
    if Path(program).name not in HERE:
        return _run_loaded(loaded, run, deadline, watch)
    run.files.log.parent.mkdir(parents=True, exist_ok=True)
    run.files.log.touch()
    run.write(run.files.request)
    engine = _module(program)
    with mock.patch.object(sys, "argv", [program, request]):
        try:
            importlib.import_module("contract").serve(engine.load)
        except SystemExit as ended:
            return ProgramExit("ended", int(ended.code or 0))
    return ProgramExit("ended", 0)


@lru_cache
def _module(program: str) -> ModuleType:
    if str(PROBES) not in sys.path:
        sys.path.insert(0, str(PROBES))
    spec = importlib.util.spec_from_file_location(f"in_process_{Path(program).stem}", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module
