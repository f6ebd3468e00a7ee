"""The weights before the last update, computed from the optimizer's state next to a checkpoint.

AdamW keeps two means of the gradients for each parameter. Together with the learning rate they are
the last update, so adding it back gives the weights before it. The state names no tensors: they are
matched by the order in which optimizers receive parameters, and by all shapes.
"""

from __future__ import annotations

import json
import math
import pickle
import re
import stat
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

FILES = ("optimizer.pt", "optimizer.bin")
"""Names of the state's file: of the Trainer of transformers, and of accelerate."""
_LOG = "trainer_state.json"
_MOST_LOG_BYTES = 64 << 20
_BYTES_PER_WEIGHT = 16
"""Two means in 32 bits take 8; the rest is room for further entries."""
_SLACK = 64 << 20
_DAMAGE = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError, OSError,
    RuntimeError, TypeError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile,
)  # fmt: skip
"""What torch raises for a damaged file, whose instructions it executes one by one."""
_WITHOUT_DECAY: tuple[tuple[str, ...], ...] = (
    (r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"),
    (r"bias",),
    (r"bias", r"layernorm\.weight"),
    (r"bias", r"norm", r"(?:^|\.)ln_"),
)
"""Names that do not decay: in transformers from 4.50 on, in earlier ones, and in other loops. Norms
of torch's own class never decay there."""


@dataclass(frozen=True, slots=True)
class _Group:
    """The parameters of one group of the optimizer, with what it keeps of each."""

    settings: Mapping[str, Any]
    states: tuple[Mapping[str, Any], ...]
    names: tuple[str, ...]
    """The parameters' names; empty if the file has none."""


def is_optimizer_state(path: str) -> bool:
    """Whether a path is that of an optimizer's state, not of a checkpoint's directory."""
    return Path(path).name in FILES


@dataclass(frozen=True, slots=True)
class LastUpdates:
    """The last update of each parameter."""

    tensors: Mapping[str, Tensor]
    """What to add to undo it, in 32 bits and in the CPU's memory, by the parameter's name."""
    steps: int
    """The updates that the optimizer has made."""


def last_updates(model: nn.Module, path: Path) -> LastUpdates:
    """The last update of each parameter, by the optimizer's state.

    Raises:
        InapplicableError: if the file cannot be read safely, holds no state of AdamW, or does not
            show which tensors its entries belong to.
    """
    groups = _groups(path, sum(weight.numel() for weight in model.parameters()))
    steps = _steps(groups)
    logged = _logged_rate(path.with_name(_LOG), steps)
    largest = max(_rate(group.settings) for group in groups)
    undone = {
        name: _undone(weight.detach(), state, group.settings, logged, largest)
        for name, weight, state, group in _matched(model, groups, path)
    }
    return LastUpdates(undone, steps)


def _undone(
    weight: Tensor,
    state: Mapping[str, Any],
    settings: Mapping[str, Any],
    logged: float | None,
    largest: float,
) -> Tensor:
    """The last update of a parameter, negated."""
    rate = _rate(settings)
    if logged is not None and largest > 0:
        rate *= logged / largest
    first, second = (float(beta) for beta in settings["betas"])
    step = float(state["step"])
    mean: Tensor = state["exp_avg"].to("cpu", torch.float32) / (1 - first**step)
    square: Tensor = state["exp_avg_sq"].to("cpu", torch.float32) / (1 - second**step)
    update = mean / (square.sqrt() + float(settings["eps"]))
    if settings.get("maximize"):
        update = -update
    decay = rate * float(settings.get("weight_decay") or 0.0)  # of the weight before the update
    return (rate * update + decay * weight.cpu().float()) / (1 - decay)


def _rate(settings: Mapping[str, Any]) -> float:
    """A group's learning rate; its first one if a schedule has ended at 0."""
    return float(settings["lr"]) or float(settings.get("initial_lr") or 0.0)


def _logged_rate(path: Path, step: int) -> float | None:
    """The learning rate that the Trainer logged for the last step; None if it did not."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_LOG_BYTES:
            return None
        entries = json.loads(path.read_text(encoding="utf-8"))["log_history"]
        rates = [float(e["learning_rate"]) for e in entries if e.get("step") == step and
                 "learning_rate" in e]  # fmt: skip
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    return rates[-1] if rates and math.isfinite(rates[-1]) and rates[-1] > 0 else None


def _steps(groups: Sequence[_Group]) -> int:
    return int(max(float(state["step"]) for group in groups for state in group.states))


def _groups(path: Path, weights: int) -> list[_Group]:
    """The groups of a file."""
    content = _loaded(path, weights * _BYTES_PER_WEIGHT + _SLACK)
    try:
        states, groups = content["state"], content["param_groups"]
        found = [
            _Group(
                group,
                tuple(states[number] for number in group["params"]),
                tuple(map(str, group.get("param_names") or ())),
            )
            for group in groups
        ]
        is_adam = all(_is_adam(group) for group in found) and any(g.states for g in found)
    except _DAMAGE:
        is_adam = False
    if not is_adam:
        raise InapplicableError(f"{path.name} holds no state of AdamW for each parameter")
    return [group for group in found if group.states]


def _is_adam(group: _Group) -> bool:
    settings = group.settings
    first, second = (float(beta) for beta in settings["betas"])
    is_valid = 0 <= first < 1 and 0 <= second < 1 and math.isfinite(_rate(settings))
    is_plain = not settings.get("amsgrad") and float(settings["eps"]) >= 0
    is_plain &= 0 <= _rate(settings) * float(settings.get("weight_decay") or 0.0) < 1
    return is_valid and is_plain and all(
        isinstance(each["exp_avg"], Tensor)
        and isinstance(each["exp_avg_sq"], Tensor)
        and each["exp_avg"].is_floating_point()
        and each["exp_avg"].shape == each["exp_avg_sq"].shape
        and float(each["step"]) >= 1
        for each in group.states
    )  # fmt: skip


def _loaded(path: Path, limit: int) -> Any:
    """The content of a file; no code in it is run."""
    try:
        is_archive = path.is_file() and zipfile.is_zipfile(path)
        _check_size(path, limit, is_archive=is_archive)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive or None)
    except InapplicableError:
        raise
    except pickle.UnpicklingError as error:  # torch's message explains how to run the code
        what = f"{path.name} is damaged or holds more than data; no code in it was run"
        raise InapplicableError(what) from error
    except _DAMAGE as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"[:120]
        raise InapplicableError(f"{path.name} cannot be read: {what}") from error


def _check_size(path: Path, limit: int, *, is_archive: bool) -> None:
    """Refuse what is no file, and a file that is larger, or unpacks to more, than a limit."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise InapplicableError(f"{path.name} is no file")
    size = status.st_size
    if is_archive:
        with zipfile.ZipFile(path) as archive:
            size = max(size, sum(entry.file_size for entry in archive.infolist()))
    if size > limit:
        gigabytes = f"{size / 2**30:.1f} GiB"
        raise InapplicableError(f"{path.name} is too large for this model's state: {gigabytes}")


_Match = tuple[str, nn.Parameter, Mapping[str, Any], _Group]


def _matched(model: nn.Module, groups: Sequence[_Group], path: Path) -> list[_Match]:
    """Each parameter with its entry, if one order alone fits all shapes."""
    fitting: dict[tuple[str, ...], list[_Match]] = {}
    for order in _orders(model, groups):
        names = tuple(name for part in order for name in part)
        match = _fitted(model, groups, order)
        if match:
            fitting.setdefault(names, match)
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    reason = "several orders fit its shapes" if fitting else "its shapes are not the model's"
    raise InapplicableError(f"{path.name} does not show which tensor is which: {reason}")


def _fitted(
    model: nn.Module, groups: Sequence[_Group], order: Sequence[Sequence[str]]
) -> list[_Match]:
    """The parameters in an order with their entries; empty if a shape does not fit."""
    own = dict(model.named_parameters())
    if [len(part) for part in order] != [len(group.states) for group in groups]:
        return []
    match = [
        (name, own[name], state, group)
        for part, group in zip(order, groups, strict=True)
        for name, state in zip(part, group.states, strict=True)
        if name in own
    ]
    fits = all(weight.shape == state["exp_avg"].shape for _, weight, state, _ in match)
    return match if fits and len(match) == sum(len(part) for part in order) else []


def _orders(model: nn.Module, groups: Sequence[_Group]) -> Iterator[list[list[str]]]:
    """The orders in which an optimizer of this model may have received its parameters."""
    if all(group.names for group in groups):
        yield [[_plain(name) for name in group.names] for group in groups]
        return
    names = [name for name, _ in model.named_parameters()]
    if len(groups) == 1:
        yield [names]
    decays = [_decays_by_name(model, patterns) for patterns in _WITHOUT_DECAY]
    decays.append(lambda name: dict(model.named_parameters())[name].ndim > 1)
    for decay in decays:
        parts = [[n for n in names if decay(n)], [n for n in names if not decay(n)]]
        yield [part for part in parts if part]


def _decays_by_name(model: nn.Module, patterns: Sequence[str]) -> Callable[[str], bool]:
    norms = tuple(f"{n}." for n, m in model.named_modules() if isinstance(m, nn.LayerNorm))
    expressions = [re.compile(pattern) for pattern in patterns]

    def decays(name: str) -> bool:
        is_named = any(each.search(name.lower()) for each in expressions)
        return not is_named and not name.startswith(norms)

    return decays


def _plain(name: str) -> str:
    """A parameter's name without the wrappers of distributed training."""
    return re.sub(r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module)\.", "", name)
