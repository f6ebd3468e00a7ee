"""Supervised warm start of the built-in model, once per setting, kept in the user's cache.

Every run with the same setting begins with the very same weights, whatever its seed: differences
between runs are then differences between their reinforcement learning.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import math
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from grpodoctor.trainer.data.tasks.base import Task
from grpodoctor.trainer.model.forward import pack_left, pack_right, response_logits
from grpodoctor.trainer.model.tokenizer import CharTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SEED = 20_250_101
_BATCH = 64
_MUON_RATE = 0.012
_ADAM_RATE = 5e-3
_ADAM_BETAS = (0.9, 0.95)
_WARMUP_SHARE = 0.05
_DIGEST_BYTES = 32

_log = logging.getLogger(__name__)


def warm_start(model: PreTrainedModel, tokenizer: CharTokenizer, task: Task, steps: int) -> None:
    """Train `model` in place on the task's warm-start texts, or take the weights from the cache.

    The global random state is left as it was.

    Args:
        model: a freshly initialised built-in model.
        tokenizer: its tokenizer.
        task: gives problems and texts.
        steps: optimizer steps.
    """
    path = cache_folder() / f"warm-start-{_key(model, task, steps)}.bin"
    weights = _read(path)
    if weights is None:
        stream = task.state()
        _train(model, tokenizer, task, steps)
        task.restore(stream)  # the run's problems must not depend on whether there was a cache
        _write(path, model.state_dict())
    else:
        model.load_state_dict(weights)


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/grpodoctor`, by default `~/.cache/grpodoctor`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "grpodoctor"


def _key(model: PreTrainedModel, task: Task, steps: int) -> str:
    """A hash of all that decides the weights: settings, the code here, the libraries' versions."""
    import transformers

    facts = [
        model.config.to_diff_dict(),
        task.fingerprint(),
        steps,
        inspect.getsource(sys.modules[__name__]),
        CharTokenizer.template_hash,
        torch.__version__,
        transformers.__version__,
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:24]


def _read(path: Path) -> dict[str, Tensor] | None:
    """The cached weights; None if there are none, or the file is damaged."""
    from safetensors.torch import load

    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return load(body) if hashlib.sha256(body).digest() == digest else None


def _write(path: Path, weights: dict[str, Tensor]) -> None:
    """Write aside and rename; without a cache every run trains anew, which is no reason to stop."""
    from safetensors.torch import save

    body = save({name: tensor.clone() for name, tensor in weights.items()})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as aside:
            aside.write(hashlib.sha256(body).digest() + body)
        Path(aside.name).replace(path)
    except OSError as error:
        _log.warning("the warm start is not cached (%s): %s", path.parent, error.strerror)


def _train(model: PreTrainedModel, tokenizer: CharTokenizer, task: Task, steps: int) -> None:
    from rich.console import Console
    from rich.progress import Progress

    rng = random.Random(_SEED)  # noqa: S311  # training texts, no secret
    matrices, others = _divide(model)
    muon = torch.optim.Muon(matrices, weight_decay=0.0, adjust_lr_fn="original")
    adam = torch.optim.AdamW(others, betas=_ADAM_BETAS, weight_decay=0.0)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for step in progress.track(range(steps), description="warm start of the built-in model"):
            model.zero_grad(set_to_none=True)
            torch.autograd.backward(_loss(model, tokenizer, task, rng))
            rate = _rate(step, steps)
            for optimizer, peak in ((adam, _ADAM_RATE), (muon, _MUON_RATE)):
                optimizer.param_groups[0]["lr"] = peak * rate
                optimizer.step()
    model.zero_grad(set_to_none=True)


def _divide(model: PreTrainedModel) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The matrices of hidden layers, and the rest: embeddings, norms, biases and stacked experts.

    Muon would take the experts' matrices one by one: a quarter more time for the same accuracy.
    """
    embedding = next(model.get_input_embeddings().parameters())
    parameters = list(model.parameters())
    hidden = [each.ndim == 2 and each is not embedding for each in parameters]
    matrices = [each for each, inside in zip(parameters, hidden, strict=True) if inside]
    return matrices, [each for each, inside in zip(parameters, hidden, strict=True) if not inside]


def _rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine down to nothing."""
    warmup = max(1, round(steps * _WARMUP_SHARE))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def _loss(
    model: PreTrainedModel, tokenizer: CharTokenizer, task: Task, rng: random.Random
) -> Tensor:
    """Mean cross-entropy per response token over a fresh batch of texts."""
    problems = task.problems(rng, _BATCH)
    end = min(tokenizer.end_ids)
    responses = [[*tokenizer.encode(task.warm_start_text(each, rng)), end] for each in problems]
    prompts, prompt_attention = pack_left(
        [tokenizer.encode(each.prompt) for each in problems], tokenizer.pad_id
    )
    response_BT, mask_BT = pack_right(responses, tokenizer.pad_id)
    logits_BTV = response_logits(
        model,
        torch.cat([prompts, response_BT], dim=1),
        torch.cat([prompt_attention, mask_BT], dim=1),
        prompts.shape[1],
    )
    return torch.nn.functional.cross_entropy(logits_BTV[mask_BT], response_BT[mask_BT])
