"""How long engines take: measured in earlier probes, otherwise estimated from the model's size."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from grpodoctor.probe.engines.commands import model_of
from grpodoctor.probe.engines.store import DONE, JOB, engine_key, read_json
from grpodoctor.probe.inputs.checksums import local_model
from grpodoctor.probe.inputs.engine_spec import EngineSpec

_MOST_FOLDERS, _MOST_JOBS = 20, 400
"""Earlier probes and jobs that are read: a forecast must not take longer than a second."""
_START_SECONDS = {"vllm": 30.0, "transformers": 6.0, "fsdp": 10.0}
"""Seconds in which an engine with a tiny model started on two CPU cores."""
_OTHER_START_SECONDS = 3.0
_READ_BYTES = 5e8
"""Bytes of weights read per second: a solid-state disk, with conversion."""
_BYTES_PER_WEIGHT = 2
_SAMPLING_SLOWDOWN = 10.0
"""Sampling reads all weights for each token of a batch, scoring once for all tokens of it."""
_ACCELERATOR_FLOPS = 2e13
"""Usable operations per second of a small accelerator."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How long an engine takes."""

    load_seconds: float
    sampled_per_second: float
    """Tokens."""
    scored_per_second: float
    is_measured: bool

    def slower(self, factor: float) -> Speed:
        """The same engine on a machine that is slower by a factor."""
        return Speed(
            self.load_seconds * factor,
            self.sampled_per_second / factor,
            self.scored_per_second / factor,
            is_measured=self.is_measured,
        )

    def seconds(self, *, loads: int = 1, sampled: float = 0, scored: float = 0) -> float:
        """Time for loads of the engine, and for tokens to sample and to score."""
        time_sampled = sampled / self.sampled_per_second
        return loads * self.load_seconds + time_sampled + scored / self.scored_per_second


class Speeds:
    """The speeds of engines.

    Args:
        folder: the folder of the probe; the folders next to it may hold earlier probes.
    """

    def __init__(self, folder: Path) -> None:
        self._folders = [folder, *islice(_newest(folder.parent), _MOST_FOLDERS)]
        self._tokens: dict[tuple[str, str], float] = defaultdict(float)
        self._seconds: dict[tuple[str, str], float] = defaultdict(float)
        jobs = (path for each in self._folders for path in each.glob(f"s[ac]*ed/*/{DONE}"))
        self._here = frozenset(path.stem for path in folder.glob("engines/*.json"))
        """Keys of the engines that ran in this probe."""
        for path in islice(jobs, _MOST_JOBS):
            self._count(path)

    def of(self, engine: EngineSpec) -> Speed | None:
        """The speed of an engine; None if it never ran and its model is not on this machine."""
        load = self._load_seconds(engine)
        sampled, scored = (self._rate(engine, kind) for kind in ("sample", "score"))
        if load is not None and (sampled or scored):
            speed = Speed(load, sampled or scored, scored or sampled, is_measured=True)
            return speed if engine_key(engine) in self._here else speed.slower(self._slowdown)
        return self.estimated(engine)

    @cached_property
    def _slowdown(self) -> float:
        """How many times as long the engines of this probe took to load as in earlier probes.

        Other programs on the machine slow all engines down.
        """
        ratios = []
        for key in self._here:
            known = [seconds for each in self._folders if (seconds := _load_of(each, key))]
            if len(known) > 1:
                ratios.append(known[0] / float(np.median(known[1:])))
        return max([1.0, *ratios])

    def estimated(self, engine: EngineSpec) -> Speed | None:
        """Its speed from the size of its model; None if that is not on this machine."""
        return _estimated(engine)

    def _count(self, done: Path) -> None:
        result, job = read_json(done), read_json(done.parent / JOB)
        tokens, seconds = result.get("tokens"), result.get("seconds")
        if isinstance(tokens, int) and isinstance(seconds, float) and seconds > 0:
            key = str(job.get("engine")), str(job.get("kind"))
            self._tokens[key] += tokens
            self._seconds[key] += seconds

    def _rate(self, engine: EngineSpec, kind: str) -> float:
        key = engine.label, kind
        return self._tokens[key] / self._seconds[key] if self._seconds[key] else 0.0

    def _load_seconds(self, engine: EngineSpec) -> float | None:
        key = engine_key(engine)
        for folder in self._folders:
            if seconds := _load_of(folder, key):
                return seconds + 1.0  # the interpreter's start and end
        return None


def _load_of(folder: Path, key: str) -> float:
    """Seconds that an engine took to load in a probe; 0 if it did not run there."""
    seconds = read_json(folder / "engines" / f"{key}.json").get("load_seconds")
    return seconds if isinstance(seconds, float) else 0.0


def _newest(folder: Path) -> Iterator[Path]:
    """Folders of probes, the newest first."""
    probes = [path.parent for path in folder.glob("*/engines") if path.is_dir()]
    yield from sorted(probes, key=lambda path: -path.stat().st_mtime)


def _estimated(engine: EngineSpec) -> Speed | None:
    start = _START_SECONDS.get(engine.engine, _OTHER_START_SECONDS)
    if engine.is_record:
        return Speed(start, 1e6, 1e6, is_measured=False)
    folder = local_model(model_of(engine)[0])
    if folder is None:
        return None
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if not size:
        return None
    scored = _operations_per_second() / (2 * size / _BYTES_PER_WEIGHT)
    return Speed(start + size / _READ_BYTES, scored / _SAMPLING_SLOWDOWN, scored, is_measured=False)


@cache
def _operations_per_second() -> float:
    """What the machine computes: an accelerator is assumed to be small, a CPU is measured."""
    if Path("/proc/driver/nvidia").exists():
        return _ACCELERATOR_FLOPS
    width = 512
    matrix = np.ones((width, width), np.float32)
    began = time.perf_counter()
    for _ in range(4):
        matrix @ matrix
    return 4 * 2 * width**3 / (time.perf_counter() - began)
