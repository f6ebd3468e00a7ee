"""Responses from TRL's completion files, for trainers whose reward functions cannot be observed.

With `log_completions`, TRL writes `completions/completions_<step>.parquet` after the callbacks got
the row of the step. A file contains the latest generation of all ranks, without token ids. An
evaluation overwrites it with its own responses.
"""

from __future__ import annotations

from pathlib import Path

from grpodoctor.frameworks.rollout_formats.base import FilePart
from grpodoctor.frameworks.trl.rollouts import FORMAT
from grpodoctor.measure.response_table import table_readings
from grpodoctor.runs.rollout_dumps.shards import Shard
from grpodoctor.runs.rollout_dumps.summarize import summarize_shard
from grpodoctor.vocabulary.values import Reading

LARGEST = 8 << 20
"""Bytes of a file that is read: reading and measuring it takes well below a second."""


class CompletionFiles:
    """Reads the file of a step once it exists.

    Args:
        output_dir: `output_dir` of the trainer's arguments.
    """

    def __init__(self, output_dir: Path) -> None:
        self._folder = output_dir / "completions"
        self._latest: tuple[object, ...] = ()
        """What identifies the responses of the latest file."""

    def readings(self, step: int) -> dict[str, Reading]:
        """What the responses of a step give; empty without a file, or if they are not new.

        Args:
            step: TRL's counter in the row.
        """
        path = self._folder / f"completions_{step:05d}.parquet"
        if not path.is_file() or path.stat().st_size > LARGEST:
            return {}
        pieces = [FilePart(str(path), *cut, step) for cut in FORMAT.cut(path, LARGEST)]
        table = summarize_shard(Shard(FORMAT.name, tuple(pieces))).table
        columns = [table.columns.get(name) for name in ("prompt", "text")]
        found = tuple(each.tobytes() for each in columns if each is not None)
        is_new, self._latest = found != self._latest, found
        return table_readings(table) if is_new and len(table) else {}
