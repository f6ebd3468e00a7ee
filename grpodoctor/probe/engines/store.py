"""Where a probe keeps what engines have answered, and under what key.

    FOLDER/
      probe.json                 the result, replaced after every cell
      lock                       held by the probe that works here
      prompts/<hash>.json        the prompts as the engines get them; .chat.json: of which kind
      engines/<key>.json         what an engine has said of itself
      engines/<key>.alias.json   the key it had before its model was downloaded
      tokenised/<hash>/ids.json
      sampled/<hash>/shard-*.npz, job.json, done.json
      scored/<hash>/…            the same
      parts/<hash>/…             the first shards of another folder
      cells/<hash>.json          finished cells
      requests/, logs/           what programs were told, and what they printed

A hash is over all that bears on the content: the engine with its options, the files of its model,
the packages of its Python, the job, the prompts or the responses it works on. So what is there
under a key need not be done again, whichever probe has done it, and another model under the same
name is not taken for it. What lies behind a URL is taken to be what it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from grpodoctor import __version__
from grpodoctor.errors import RunError
from grpodoctor.probe.engines.jobs import Job, SampleJob, ScoreJob
from grpodoctor.probe.inputs.checksums import local_model
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.inputs.interpreters import installed_for
from grpodoctor.support.locks import Lock, LockHeldError

JOB = "job.json"
DONE = "done.json"
RESULT = "probe.json"
_MOST_FILES = 20_000
"""Of a model's directory; a checkpoint has hundreds."""
_BEARING = ("VLLM_", "TORCH_", "CUBLAS_", "NVIDIA_TF32")
"""Beginnings of variables that change what engines compute."""
_HASH_DIGITS = 20


def content_key(*parts: object) -> str:
    """A hash of anything that JSON can say; 20 hexadecimal digits."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def fingerprint(path: Path) -> list[tuple[str, int, int]]:
    """Name, bytes and time of change of the files below a path, or of the file that it is."""
    if path.is_file():
        return [(path.name, path.stat().st_size, path.stat().st_mtime_ns)]
    files = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    present = islice((file for file in files if file.exists()), _MOST_FILES)
    return sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in present)


def files_of(spec: EngineSpec) -> dict[str, object]:
    """What is on this machine of all that an engine names: files, of the hub's cache a revision."""
    texts = [spec.model, *(each for each in spec.options.values() if isinstance(each, str))]
    places = {text: _place(text) for text in texts}
    files: dict[str, object] = {text: fingerprint(path) for text, path in places.items() if path}
    cached = {text: local_model(text) for text, path in places.items() if path is None}
    # What has the name of a revision does not change, though files of it may be fetched later.
    return files | {text: path.name for text, path in cached.items() if path}


def engine_key(spec: EngineSpec) -> str:
    """The key of an engine: its spec, all on this machine that it names, what it runs in."""
    return content_key(__version__, spec.key, files_of(spec), installed_for(spec), _settings())


def _settings() -> dict[str, str]:
    """What engines read of the environment that bears on their numbers."""
    return {name: value for name, value in os.environ.items() if name.startswith(_BEARING)}


def _place(text: str) -> Path | None:
    """What a text names on this machine, if it is a path."""
    try:
        path = Path(text).expanduser()
        return path if text and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, nobody's home
        return None


class Store:
    """The folder of a probe.

    Args:
        folder: made if it is not there.

    Raises:
        RunError: if another probe works in it, or it cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = Lock.take(self.folder / "lock")
        except LockHeldError as held:
            raise RunError(
                f"another probe works in this folder: {held}",
                where=str(folder),
                remedy="wait for it, or give another --output",
            ) from None
        except OSError as error:
            raise RunError(
                f"the folder cannot be used: {error.strerror}",
                where=str(folder),
                remedy="give another --output",
            ) from error

    def close(self) -> None:
        """Let the next probe in."""
        self._lock.release()

    def prompts(self, prompts: Sequence[Mapping[str, Any]]) -> Path:
        """The file with these prompts."""
        path = self.folder / "prompts" / f"{content_key(list(prompts))}.json"
        if not path.exists():
            write_json(path, list(prompts))
        return path

    def folder_of(self, engine: str, job: Job, prompts: Path) -> Path:
        """Where the answer of a job belongs; its name is the hash of all that bears on it.

        Args:
            engine: the key of the engine.
            job: the job.
            prompts: the probe's prompts.
        """
        if isinstance(job, SampleJob):
            key = content_key("sample", engine, asdict(job), prompts.name)
            return self.folder / "sampled" / key
        if isinstance(job, ScoreJob):
            what = asdict(job) | {"rollouts": rollouts_key(job.rollouts)}
            return self.folder / "scored" / content_key("score", engine, what)
        return self.folder / "tokenised" / content_key("tokenise", engine, prompts.name)

    def part_of(self, rollouts: Path, shards: Sequence[Path]) -> Path:
        """A folder with some shards of another, made of hard links."""
        key = content_key("part", rollouts_key(rollouts), [each.name for each in shards])
        folder = self.folder / "parts" / key
        folder.mkdir(parents=True, exist_ok=True)
        for each in shards:
            if not (folder / each.name).exists():
                _link(each, folder / each.name)
        write_json(folder / JOB, read_json(rollouts / JOB) | {"key": key})
        return folder


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        aside = target.with_suffix(".tmp")
        aside.write_bytes(source.read_bytes())
        aside.replace(target)


def rollouts_key(rollouts: Path) -> str:
    """What stands for the content of a folder of shards: its key, or its files if it has none."""
    key = read_json(rollouts / JOB).get("key")
    if isinstance(key, str):
        return key
    if rollouts.parent.name in ("sampled", "scored"):
        return rollouts.name  # to be filled by an earlier task of the same request
    shards = sorted(rollouts.glob("shard-*.npz"))
    return content_key([(each.name, *fingerprint(each)[0][1:]) for each in shards])


def write_json(path: Path, data: object) -> None:
    """Write aside and rename, so that nobody reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    aside.write_text(json.dumps(data), encoding="utf-8")
    aside.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """An object from a file of ours; empty if there is none or it is damaged."""
    data = _read(path)
    return data if isinstance(data, dict) else {}


def read_json_list(path: Path) -> list[Any]:
    """A list from a file of ours; empty if there is none or it is damaged."""
    data = _read(path)
    return data if isinstance(data, list) else []


def _read(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
