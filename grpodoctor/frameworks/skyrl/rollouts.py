"""SkyRL's `dumped_data/global_step_<N>_training_input.pkl`, which is recognized and refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from grpodoctor.errors import RunError
from grpodoctor.frameworks.rollout_formats import pickles
from grpodoctor.frameworks.rollout_formats.base import DamageLog, DumpFormat, FilePart, Responses

_FILE = re.compile(r"global_step_(\d{1,12})_training_input")


def _read(part: FilePart, damage_log: DamageLog) -> Iterator[Responses]:
    del damage_log
    raise RunError(
        "a pickle of SkyRL's classes can run any code when it is loaded, so it is not loaded",
        where=part.path[:200],
        remedy="use trainer.dump_eval_results, which writes JSON lines",
    )
    yield  # makes this a generator, as all readers are


def _step_of(path: Path) -> int | None:
    match = _FILE.fullmatch(path.stem)
    return int(match[1]) if match else None


def _claims(path: Path, head: bytes) -> bool:
    return path.suffix == ".pkl" and _step_of(path) is not None and head.startswith(pickles.PICKLE)


FORMAT = DumpFormat(
    "SkyRL training input", "skyrl", 30, _claims, _step_of, pickles.whole_file, _read
)
