"""SkyRL's `dumped_data/global_step_<N>_training_input.pkl`: its own classes, refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from grpodoctor.errors import RunError
from grpodoctor.frameworks.rollout_formats import pickles
from grpodoctor.frameworks.rollout_formats.base import DumpFormat, Notes, Piece, Responses

_FILE = re.compile(r"global_step_(\d{1,12})_training_input")


def _read(piece: Piece, notes: Notes) -> Iterator[Responses]:
    del notes
    raise RunError(
        "a pickle of SkyRL's own classes can run any code when it is loaded, and is not",
        where=piece.path[:200],
        remedy="use trainer.dump_eval_results, which writes JSON lines",
    )
    yield  # an iterator, as every reader's result


def _step_of(path: Path) -> int | None:
    found = _FILE.fullmatch(path.stem)
    return int(found[1]) if found else None


def _claims(path: Path, head: bytes) -> bool:
    return path.suffix == ".pkl" and _step_of(path) is not None and head.startswith(pickles.PICKLE)


FORMAT = DumpFormat(
    "SkyRL training input", "skyrl", 30, _claims, _step_of, pickles.whole_file, _read
)
