"""The log of a Kaggle notebook: a JSON list with one entry per piece of printed text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from grpodoctor.runs.log_formats.base import LogRow
from grpodoctor.runs.log_formats.registry import LogFormat
from grpodoctor.runs.log_formats.trainer_state import TrainerState
from grpodoctor.support.files.growing_files import Chunk
from grpodoctor.support.json_text import loads

KAGGLE = "kaggle"
"""Name of the format."""

_BEGINNING = b'[{"stream_name"'


class KaggleLog(TrainerState):
    """Reads the text that a notebook printed while it ran on Kaggle.

    Kaggle offers the output of a run as `<notebook>.log`. Each line is an entry of a JSON list:
    the stream, the seconds since the start, and a piece of text that may end anywhere in a line.

    Args:
        path: the file.
        keys: keys of the step and the time.
    """

    name = KAGGLE

    def _parse(self, text: bytes) -> Chunk[LogRow]:
        from grpodoctor.runs.log_formats.decoding.console_reader import Console

        console = Console(self.path, self._keys)
        rows, notes = console.parse("".join(_printed(text)).split("\n"))
        self.config = console.config
        fresh = rows[self._read_entries :]
        self._read_entries = max(self._read_entries, len(rows))
        return Chunk(fresh, size=len(text), notes=notes)


def _printed(text: bytes) -> Iterator[str]:
    """The pieces of text, in their order; entries that are cut off are left out."""
    for line in text.split(b"\n"):
        try:
            entry = loads(line.strip().lstrip(b"[,").rstrip(b"]"))
        except ValueError:
            continue
        data = entry.get("data") if isinstance(entry, dict) else None
        if isinstance(data, str):
            yield data


def _claims(path: Path, head: bytes) -> bool:
    del path
    return head.lstrip().replace(b" ", b"")[: len(_BEGINNING)] == _BEGINNING


FORMAT = LogFormat(KAGGLE, 4, _claims, KaggleLog)
