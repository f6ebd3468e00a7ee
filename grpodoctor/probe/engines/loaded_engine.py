"""The engine that is loaded: consecutive requests to one engine share a program and its model.

Only one engine is loaded at a time, so that the running engine has all the memory. Experiments of a
kind ask the same engine many times, and loading it takes longer than most of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from grpodoctor.probe.engines.commands import command_of
from grpodoctor.probe.engines.engine_run import EngineRun
from grpodoctor.probe.engines.processes import Limits, Program, ProgramExit
from grpodoctor.probe.engines.store import write_json
from grpodoctor.probe.inputs.engine_spec import EngineSpec

_IDLE_SECONDS = 120.0
"""A loaded engine that gets no request for so long ends: a launcher may outlive a killed probe. The
arithmetic between two experiments takes seconds."""
_GRACE_SECONDS = 10.0
"""For an engine that ends by itself: vLLM shuts down its workers."""


class LoadedEngine:
    """Runs requests, and keeps the last engine loaded.

    Args:
        mark: see `processes.MARK`.
    """

    idle_seconds = _IDLE_SECONDS

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._program: Program | None = None
        self._key = ""
        self._first = Path()
        """The request with which the program was started."""
        self._requests = 0

    def log_of(self, engine: EngineSpec) -> Path | None:
        """The log of the loaded program if it is this engine's."""
        return self._program.log if self._program and self._is_loaded(engine) else None

    def run(self, run: EngineRun, deadline: float, watch: Callable[[], None]) -> ProgramExit:
        """Run a request in the loaded program if it is the same engine's, else in a new one.

        Args:
            run: the request.
            deadline: on the monotonic clock.
            watch: called several times a second.

        Raises:
            EngineError: if the program cannot be started.
        """
        limits = run.limits(deadline)
        if self._program is not None and self._is_loaded(run.engine):
            request_file = self._following()
            self._requests += 1
            self._write(run, request_file)
            program_exit = self._wait(self._program, limits, watch)
            if program_exit.reason != "ended" or run.answer().get("error"):
                return program_exit
            # It may have ended before it saw the request, or by lack of memory: load it again.
        return self._start(run, limits, watch)

    def close(self) -> None:
        """Let the loaded program end."""
        if self._program is None:
            return
        program, self._program = self._program, None
        if program.is_running:
            write_json(self._following(), {})
        program.end(_GRACE_SECONDS)

    def _is_loaded(self, engine: EngineSpec) -> bool:
        return self._program is not None and self._program.is_running and engine.key == self._key

    def _following(self) -> Path:
        return self._first.with_suffix(f".next-{self._requests}.json")

    def _start(self, run: EngineRun, limits: Limits, watch: Callable[[], None]) -> ProgramExit:
        self.close()
        command = command_of(run.engine, run.files.request)
        self._key, self._first, self._requests = run.engine.key, run.files.request, 0
        self._write(run, run.files.request)
        self._program = Program(
            command, run.files.log, self._mark, holds_input=not run.engine.launcher
        )
        return self._wait(self._program, limits, watch)

    def _write(self, run: EngineRun, request_file: Path) -> None:
        run.write(request_file, self._following(), self.idle_seconds)

    def _wait(self, program: Program, limits: Limits, watch: Callable[[], None]) -> ProgramExit:
        try:
            program_exit = program.wait(limits, watch)
        except BaseException:  # an interrupt; the program has been ended
            self._program = None
            raise
        if program_exit.reason != "waiting":
            self._program = None
        return program_exit
