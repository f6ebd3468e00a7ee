"""Every format of rollout dumps: summarised as `check` does, and listed as the dashboard does."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from grpodoctor.frameworks.rollout_formats.registry import all_dump_formats, dumps_among
from grpodoctor.monitor.dashboard.responses import index_of
from grpodoctor.runs.reading.opening import FrameworkRun, open_run
from grpodoctor.runs.rollout_dumps import runners
from grpodoctor.runs.rollout_dumps.dump_reader import DumpReader
from grpodoctor.runs.rollout_queries.index import RolloutQuery
from grpodoctor.support.files.regular_files import files_below
from tests.fuzz.mutations import binaries, texts
from tests.fuzz.targets.base import Mutation, Target
from tests.runs.rollout_dumps.samples import WRITERS

_MUTATIONS: dict[str, Mutation] = {
    ".jsonl": texts.json_lines,
    ".parquet": binaries.parquet_columns,
    ".pt": binaries.zip_members,
}

_REFUSED = "SkyRL training input"
"""A pickle of SkyRL's own classes, which is recognised and never loaded."""


def targets() -> list[Target]:
    """One target per registered format."""
    return [_target(each.name) for each in all_dump_formats()]


def _target(name: str) -> Target:
    path, _ = _first_file(name)
    return Target(
        name=f"dump: {name}",
        file=str(path),
        sound=lambda: _first_file(name)[1],
        read=_reader(name),
        mutation=_MUTATIONS.get(path.suffix),
        weight=0.5,
    )


@cache
def _first_file(name: str) -> tuple[Path, bytes]:
    """Path and content of the first file of a sound dump."""
    if name == _REFUSED:
        path = Path("dumped_data/global_step_1_training_input.pkl")
        return path, pickle.dumps({"rewards": [1.0] * 8})
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        WRITERS[name](root)
        path = next(path for form, path in dumps_among(files_below(root)) if form.name == name)
        return path.relative_to(root), path.read_bytes()


def _reader(name: str) -> Callable[[Path], object]:
    form = next(each for each in all_dump_formats() if each.name == name)
    depth = len(_first_file(name)[0].parts)

    def read(path: Path) -> None:
        list(DumpReader([(form, path)], runner=runners.in_process).steps())
        run = open_run(path.parents[depth - 1])
        for _ in run.steps:
            pass
        if isinstance(run, FrameworkRun):
            _list_responses(run)

    return read


def _list_responses(run: FrameworkRun) -> None:
    index = index_of(run.follower.rollouts)
    if index is None:
        return
    index.refresh()
    page = index.page(RolloutQuery(text="a"), 0, 5)
    index.in_full(page.figures)
