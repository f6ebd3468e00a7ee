"""Supervised warm start of the built-in model, cached in the user's cache folder.

All runs with the same settings start from the same weights, whatever their seed. Differences
between runs are then differences between their reinforcement learning.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import logging
import math
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from grpodoctor.support.files.atomic_files import write_bytes
from grpodoctor.support.files.locks import Lock, LockHeldError
from grpodoctor.support.progress import progress_bar
from grpodoctor.trainer.model.forward import pack_left, pack_right, response_logits
from grpodoctor.trainer.model.muon import Muon
from grpodoctor.trainer.model.tokenizer import CharTokenizer
from grpodoctor.trainer.task import Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SEED = 20_250_101
_BATCH = 64
_MUON_RATE = 0.012
_ADAM_RATE = 5e-3
_ADAM_BETAS = (0.9, 0.95)
_WARMUP_SHARE = 0.05
_DIGEST_BYTES = 32
_LONGEST_WAIT_SECONDS = 600.0

_log = logging.getLogger(__name__)


def warm_start(model: PreTrainedModel, tokenizer: CharTokenizer, task: Task, steps: int) -> None:
    """Train `model` in place on the task's warm-start texts, or load the weights from the cache.

    Of several processes that need the same weights at the same time, one trains and the others wait
    for its result. The global random state is left unchanged.

    Args:
        model: a newly initialized built-in model.
        tokenizer: the model's tokenizer.
        task: provides problems and texts.
        steps: optimizer steps.
    """
    name = _file_name(model, task, steps)
    weights = _cached_weights(name)
    if weights is None:
        with _one_at_a_time(name):
            weights = _cached_weights(name)  # another process may have written them meanwhile
            if weights is None:
                task_state = task.state()
                _train(model, tokenizer, task, steps)
                task.restore(task_state)  # a run's problems must not depend on the cache
                _write(name, model.state_dict())
                return
    model.load_state_dict(weights)


def is_cached(model: PreTrainedModel, task: Task, steps: int) -> bool:
    """Whether `warm_start` would load the weights from a cache instead of training.

    Args:
        model: a newly initialized built-in model.
        task: the task of the warm start.
        steps: optimizer steps.
    """
    return _cached_weights(_file_name(model, task, steps)) is not None


def warm_start_kind() -> str:
    """Hash of the code and the libraries that train warm starts, without comments.

    Two runs that differ only in this hash have other initial weights, so they are no pair.
    """
    import transformers

    sources = [inspect.getsource(sys.modules[each]) for each in (__name__, Muon.__module__)]
    facts = [ast.dump(ast.parse(each)) for each in sources]
    content = "\n".join([*facts, torch.__version__, transformers.__version__])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/grpodoctor`, by default `~/.cache/grpodoctor`.

    Raises:
        RuntimeError: if the user has no home directory.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "grpodoctor"


def temporary_cache_folder() -> Path:
    """The user's cache below the system's temporary folder, for an unusable `cache_folder`."""
    return Path(tempfile.gettempdir()) / f"grpodoctor-cache-{os.getuid()}"


def _file_name(model: PreTrainedModel, task: Task, steps: int) -> str:
    """The name contains a hash of what determines the weights: settings, code, libraries."""
    import transformers

    facts = [
        model.config.to_diff_dict(),
        task.fingerprint(),
        steps,
        inspect.getsource(sys.modules[__name__]),
        inspect.getsource(sys.modules[Muon.__module__]),
        CharTokenizer.template_hash,
        torch.__version__,
        transformers.__version__,
    ]
    content = json.dumps(facts, sort_keys=True, default=str).encode()
    return f"warm-start-{hashlib.sha256(content).hexdigest()[:24]}.bin"


@contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Hold the lock of a cached warm start, so that one process trains and the others wait.

    Without a writable cache, or if the other process takes too long, nothing is held: then both
    train the same weights.
    """
    lock = None
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        lock = Lock.take(folder / f"{name}.lock", timeout=_LONGEST_WAIT_SECONDS)
    except LockHeldError as holder:
        _log.warning("%s has been training the warm start for long; training it here too", holder)
    except (OSError, RuntimeError):
        pass  # `_write` reports a cache that is not writable
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _cached_weights(name: str) -> dict[str, Tensor] | None:
    """The weights from the user's cache, or else from the temporary one; None if in neither."""
    try:
        weights = _read(cache_folder() / name)
    except RuntimeError:
        weights = None
    folder = temporary_cache_folder()
    if weights is None and _is_private(folder):
        weights = _read(folder / name)
    return weights


def _read(path: Path) -> dict[str, Tensor] | None:
    """The cached weights; None if the file does not exist or is damaged."""
    from safetensors.torch import load

    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return load(body) if hashlib.sha256(body).digest() == digest else None


def _write(name: str, weights: dict[str, Tensor]) -> None:
    """Write to the user's cache, or else to the temporary one; a failure does not stop the run."""
    from safetensors.torch import save

    body = save({key: tensor.clone() for key, tensor in weights.items()})
    content = hashlib.sha256(body).digest() + body
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / name, content)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        _write_temporary(name, content, reason)


def _write_temporary(name: str, content: bytes, reason: str) -> None:
    folder = temporary_cache_folder()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(folder):
            raise PermissionError(0, "it belongs to another user")
        write_bytes(folder / name, content)
    except OSError as error:
        _log.warning("the warm start is not cached: %s; %s: %s", reason, folder, error.strerror)
    else:
        _log.warning("the user's cache is not writable (%s); using %s", reason, folder)


def _is_private(folder: Path) -> bool:
    """Whether only this user can write to the folder; others can create it in a shared place."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    is_folder = folder.is_dir() and not folder.is_symlink()
    return is_folder and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _train(model: PreTrainedModel, tokenizer: CharTokenizer, task: Task, steps: int) -> None:
    rng = random.Random(_SEED)  # noqa: S311  # training texts, no secret
    matrices, others = _split_parameters(model)
    muon = Muon(matrices)
    adam = torch.optim.AdamW(others, betas=_ADAM_BETAS, weight_decay=0.0)
    with progress_bar("warm start of the built-in model", total=steps) as progress:
        for step in range(steps):
            progress.update(step)
            model.zero_grad(set_to_none=True)
            torch.autograd.backward(_loss(model, tokenizer, task, rng))
            rate = _rate(step, steps)
            adam.param_groups[0]["lr"] = _ADAM_RATE * rate
            adam.step()
            muon.step(_MUON_RATE * rate)
    model.zero_grad(set_to_none=True)


def _split_parameters(model: PreTrainedModel) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The matrices of hidden layers, and the rest: embeddings, norms, biases and stacked experts.

    Muon would process the experts' matrices one by one, which takes a quarter more time for the
    same accuracy.
    """
    embedding = next(model.get_input_embeddings().parameters())
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for weight in model.parameters():
        is_hidden_matrix = weight.ndim == 2 and weight is not embedding
        (matrices if is_hidden_matrix else others).append(weight)
    return matrices, others


def _rate(step: int, steps: int) -> float:
    """Learning rate factor: linear warm-up, then a cosine decay to zero."""
    warmup = max(1, round(steps * _WARMUP_SHARE))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def _loss(
    model: PreTrainedModel, tokenizer: CharTokenizer, task: Task, rng: random.Random
) -> Tensor:
    """Mean cross-entropy per response token over a new batch of texts."""
    problems = task.problems(rng, _BATCH)
    end = min(tokenizer.end_ids)
    responses = [
        [*tokenizer.encode(task.warm_start_text(problem, rng)), end] for problem in problems
    ]
    prompts, prompt_attention = pack_left(
        [tokenizer.encode(problem.prompt) for problem in problems], tokenizer.pad_id
    )
    response_BT, mask_BT = pack_right(responses, tokenizer.pad_id)
    logits_BTV = response_logits(
        model,
        torch.cat([prompts, response_BT], dim=1),
        torch.cat([prompt_attention, mask_BT], dim=1),
        prompts.shape[1],
    )
    return torch.nn.functional.cross_entropy(logits_BTV[mask_BT], response_BT[mask_BT])
