"""The folder of a probe: the engines' answers, stored under hashes of everything they depend on.

    FOLDER/
      probe.json                 the result, replaced after every cell
      lock                       held by the running probe
      prompts/<hash>.json        the prompts as the engines receive them; .chat.json: their kind
      engines/<key>.json         an engine's description of itself
      engines/<key>.alias.json   the engine's key before its model was downloaded
      tokenised/<hash>/ids.json
      sampled/<hash>/shard-*.npz, job.json, done.json
      scored/<hash>/…            the same files
      parts/<hash>/…             the first shards of another folder
      cells/<hash>.json          finished cells
      requests/, logs/           the programs' requests and answers, and their output

A hash covers everything that affects the content: the engine with its options, the files of its
model, the packages of its Python, the job, and the prompts or responses. So a job whose folder
exists need not run again, whichever probe ran it, and another model under the same name has another
key. The answer of a URL is assumed not to change.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from grpodoctor import __version__
from grpodoctor.errors import RunError
from grpodoctor.probe.contract import shard_paths
from grpodoctor.probe.engines.shards import read_shard
from grpodoctor.probe.inputs.checksums import local_model
from grpodoctor.probe.inputs.engine_spec import EngineSpec
from grpodoctor.probe.inputs.interpreters import installed_for
from grpodoctor.support.files.atomic_files import write_bytes, write_text
from grpodoctor.support.files.locks import Lock, LockHeldError
from grpodoctor.support.files.regular_files import read_regular

JOB = "job.json"
DONE = "done.json"
RESULT = "probe.json"
_MAX_FILES = 20_000
"""Most files of a model's directory that a fingerprint covers; a checkpoint has hundreds."""
_NUMERIC_VARIABLES = ("VLLM_", "TORCH_", "CUBLAS_", "NVIDIA_TF32")
"""Prefixes of environment variables that change what engines compute."""
_HASH_DIGITS = 20


def content_key(*parts: object) -> str:
    """A hash of anything that JSON can represent; 20 hexadecimal digits."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]


def fingerprint(path: Path) -> list[tuple[str, int, int]]:
    """Name, size and modification time of a file, or of the files below a directory."""
    if path.is_file():
        return [(path.name, path.stat().st_size, path.stat().st_mtime_ns)]
    files = (Path(folder) / name for folder, _, names in os.walk(path) for name in names)
    present = islice((file for file in files if file.exists()), _MAX_FILES)
    return sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in present)


def files_of(spec: EngineSpec) -> dict[str, object]:
    """The local content that a spec names: files, or a revision in the hub's cache."""
    texts = [spec.model, *(value for value in spec.options.values() if isinstance(value, str))]
    paths = {text: _existing_path(text) for text in texts}
    files: dict[str, object] = {text: fingerprint(path) for text, path in paths.items() if path}
    cached = {text: local_model(text) for text, path in paths.items() if path is None}
    # A revision does not change, although some of its files may be downloaded later.
    return files | {text: path.name for text, path in cached.items() if path}


def engine_key(spec: EngineSpec) -> str:
    """The key of an engine: its spec, the local files it names, and what it runs in."""
    variables = {
        name: value for name, value in os.environ.items() if name.startswith(_NUMERIC_VARIABLES)
    }
    return content_key(__version__, spec.key, files_of(spec), installed_for(spec), variables)


def _existing_path(text: str) -> Path | None:
    try:
        path = Path(text).expanduser()
        return path if text and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, an unknown user's home
        return None


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run of an engine program."""

    request: Path
    answer: Path
    log: Path


class Store:
    """The folder of a probe.

    Args:
        folder: created if it does not exist; locked until `close`.

    Raises:
        RunError: if another probe uses the folder, or it cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._keys: dict[str, str] = {}
        self._files: dict[str, dict[str, object]] = {}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = Lock.take(self.folder / "lock")
        except LockHeldError as held:
            raise RunError(
                f"another probe is running in this folder: {held}",
                where=str(folder),
                remedy="wait for it, or pass another folder with --output",
            ) from None
        except OSError as error:
            raise RunError(
                f"the folder cannot be used: {error.strerror}",
                where=str(folder),
                remedy="pass another folder with --output",
            ) from error
        # Names are not reused: the answer of an earlier run must not be taken for a new one.
        self._runs = sum(1 for _ in (self.folder / "requests").glob("*.json"))

    def close(self) -> None:
        """Release the folder."""
        self._lock.release()

    def prompts(self, prompts: Sequence[Mapping[str, Any]]) -> Path:
        """The file with these prompts."""
        path = self.folder / "prompts" / f"{content_key(list(prompts))}.json"
        if not path.exists():
            write_json(path, list(prompts))
        return path

    def run_files(self, engine: EngineSpec) -> RunFiles:
        """Files for the next run of an engine's program."""
        self._runs += 1
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{self._runs:03d}-{engine.engine}"
        requests = self.folder / "requests"
        return RunFiles(
            request=requests / f"{name}.json",
            answer=requests / f"{name}.answer.json",
            log=self.folder / "logs" / f"{name}.log",
        )

    def engine_key(self, engine: EngineSpec) -> str:
        """The engine's key; the files of its model are read once per probe."""
        if engine.key not in self._keys:
            self._files[engine.key] = files_of(engine)
            key = engine_key(engine)
            alias = read_json(self._alias_path(key)).get("key")
            self._keys[engine.key] = alias if isinstance(alias, str) else key
        return self._keys[engine.key]

    def keep_key(self, engine: EngineSpec) -> None:
        """Let the next probe find an engine's answers although it has downloaded its model now."""
        before, now = self._files[engine.key], files_of(engine)
        if before != now and before.items() <= now.items():
            write_json(self._alias_path(engine_key(engine)), {"key": self.engine_key(engine)})

    def facts_path(self, engine: EngineSpec) -> Path:
        """The file with the engine's description of itself."""
        return self.folder / "engines" / f"{self.engine_key(engine)}.json"

    def _alias_path(self, key: str) -> Path:
        return self.folder / "engines" / f"{key}.alias.json"

    def part_of(self, rollouts: Path, responses: int) -> Path:
        """A folder with the first shards of another, with at least `responses` responses if any.

        Raises:
            EngineError: if a shard is damaged.
        """
        paths, count = shard_paths(rollouts), 0
        for number, path in enumerate(paths, start=1):
            count += len(read_shard(path).prompt_B)
            if count >= responses and number < len(paths):
                return self._linked(rollouts, paths[:number])
        return rollouts

    def _linked(self, rollouts: Path, shards: Sequence[Path]) -> Path:
        """A folder with hard links to some shards of another."""
        key = content_key("part", rollouts_key(rollouts), [shard.name for shard in shards])
        folder = self.folder / "parts" / key
        folder.mkdir(parents=True, exist_ok=True)
        for shard in shards:
            if not (folder / shard.name).exists():
                _link(shard, folder / shard.name)
        write_json(folder / JOB, read_json(rollouts / JOB) | {"key": key})
        return folder


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        write_bytes(target, source.read_bytes())


def rollouts_key(rollouts: Path) -> str:
    """A key for the content of a folder of shards: its own, or a hash of its files."""
    key = read_json(rollouts / JOB).get("key")
    if isinstance(key, str):
        return key
    if rollouts.parent.name in ("sampled", "scored"):
        return rollouts.name  # an earlier task of the same request will fill it
    return content_key([(path.name, *fingerprint(path)[0][1:]) for path in shard_paths(rollouts)])


def write_json(path: Path, data: object) -> None:
    """Write JSON atomically, and create the folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(data))


def read_json(path: Path) -> dict[str, Any]:
    """An object from a file of the store; empty if the file is missing or damaged."""
    data = _read(path)
    return data if isinstance(data, dict) else {}


def read_json_list(path: Path) -> list[Any]:
    """A list from a file of the store; empty if the file is missing or damaged."""
    data = _read(path)
    return data if isinstance(data, list) else []


def _read(path: Path) -> object:
    try:
        return json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return None
