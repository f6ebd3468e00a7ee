"""Edits of number formats and of weights: precision, quantization, another checkpoint's tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from contract import InapplicableError
from torch import Tensor, nn

from hf.hooks import until_end
from hf.loading import ROUTERS, Settings, load_model
from hf.what_if.modules import replaced
from hf.what_if.optimizer_state import LastUpdates, is_optimizer_state, last_updates
from hf.what_if.partial_updates import coarse_update, partial_update
from hf.what_if.rounding import rounded, saturated
from hf.what_if.tensor_parts import with_parts

_MOST_LOADED = 3
"""Other checkpoints in memory."""
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@contextmanager
def compute_dtype(model: nn.Module, value: Any) -> Iterator[None]:
    """Compute in another precision."""
    dtype = _DTYPES[str(value)]
    floats = [weight for weight in model.parameters() if weight.is_floating_point()]
    with replaced(floats, lambda weight: weight.to(dtype)):
        yield


@contextmanager
def weight_rounding(model: Any, value: Any) -> Iterator[None]:
    """Round the matrices of the layers, `scheme` or `[scheme, regular expression]`."""
    scheme, only = value if isinstance(value, list | tuple) else (value, "")
    head = model.get_output_embeddings()
    skipped = {id(head.weight), id(model.get_input_embeddings().weight)} if not only else set()
    routers = re.compile(ROUTERS)
    chosen = [
        weight
        for name, weight in model.named_parameters()
        if weight.ndim > 1
        and id(weight) not in skipped
        and (re.search(only, name) if only else not routers.search(name.rpartition(".")[0]))
    ]
    if not chosen:
        raise InapplicableError(f"no matrix has a name with {only!r}")
    with replaced(chosen, lambda weight: rounded(weight, scheme)):
        yield


@contextmanager
def activation_rounding(model: Any, value: Any) -> Iterator[None]:
    """Round the inputs of all linear layers except the output head."""
    head = model.get_output_embeddings()
    linear = [m for m in model.modules() if isinstance(m, nn.Linear) and m is not head]
    with changed_inputs(linear, lambda inputs: rounded(inputs, str(value))):
        yield


@contextmanager
def input_saturation(model: Any, value: Any) -> Iterator[None]:
    """Inputs of linear layers in fp8 with a scale fixed before, which cuts those above a limit.

    The output head and routers keep their precision.
    """
    linear = quantised_layers(model)
    with changed_inputs(linear, lambda inputs: saturated(inputs, float(value))):
        yield


@contextmanager
def linear_rounding(model: Any, value: Any) -> Iterator[None]:
    """Round the weights of linear layers and their inputs, as engines that multiply in 8 bits do.

    The output head and routers keep their precision. Inputs have a scale for each token, or for
    each group of numbers where weights have one for each block; `fp8/block128/row`: for each token.
    """
    linear = quantised_layers(model)
    scheme = str(value).removesuffix("/row") if "/block" in value else str(value)
    inner = f"{scheme.partition('/')[0]}/row" if scheme != value else scheme
    inner = inner.replace("/block", "/group")
    with (
        changed_inputs(linear, lambda inputs: rounded(inputs, inner)),
        replaced([module.weight for module in linear], lambda data: rounded(data, scheme)),
    ):
        yield


def quantised_layers(model: Any) -> list[nn.Linear]:
    """The linear layers that engines compute in 8 bits: not the output head, and no router.

    Raises:
        InapplicableError: if there are none.
    """
    head, routers = model.get_output_embeddings(), re.compile(ROUTERS)
    linear = [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head and not routers.search(name)
    ]
    if not linear:
        raise InapplicableError("this model has no linear layers")
    return linear


@contextmanager
def changed_inputs(
    modules: Sequence[nn.Module], change: Callable[[Tensor], Tensor]
) -> Iterator[None]:
    """Modules read other inputs."""

    def hook(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...]:
        return (change(inputs[0]), *inputs[1:])

    with until_end([module.register_forward_pre_hook(hook) for module in modules]):
        yield


class OtherCheckpoints:
    """Models of other checkpoints; the last few stay loaded.

    In place of a directory, edits can name the file of an optimizer's state: its checkpoint is that
    before the model's last update.

    Args:
        settings: how this program's model was loaded.
        model: it, whose weights are those after the last update.
    """

    def __init__(self, settings: Settings, model: nn.Module) -> None:
        self._settings = settings
        self._model = model
        self._tensors: dict[str, Mapping[str, Tensor]] = {}
        self._undone: dict[str, LastUpdates] = {}

    def edit(self) -> Callable[[nn.Module, Any], Any]:
        """The edit that takes tensors `{"from": directory, "only": regular expression}`.

        `"parts": ["lm_head.weight[1/4]"]` takes parts of further tensors; see `tensor_parts`.
        """

        @contextmanager
        def other_weights(model: nn.Module, value: Any) -> Iterator[None]:
            tensors = self._of(str(value["from"]))
            wanted = re.compile(str(value["only"]))
            everything = owned_weights(model)
            owned = [entry for entry in everything if wanted.search(entry[0])]
            own = {path: weight for path, _, _, weight in everything}
            mixed = with_parts(model, own, tensors, value.get("parts", ()))
            owned += [entry for entry in everything if entry[0] in mixed]
            with _taken(owned, {**tensors, **mixed}):
                yield

        return other_weights

    def update_scale(self, model: nn.Module, value: Any) -> AbstractContextManager[None]:
        """The edit `["part|directory", factor]`: the update since a checkpoint, times a factor.

        The part is one of `UPDATED`, or empty for all tensors.
        """
        (part, _, folder), factor = str(value[0]).partition("|"), float(value[1])
        if part not in UPDATED:
            raise InapplicableError(f"there is no part {part!r}")
        of_part = re.compile(UPDATED[part])
        owned, older = owned_weights(model), self._of(folder)
        known = self._undone.get(folder)
        if known is not None and 1 - factor > known.steps:
            raise InapplicableError(f"the optimizer has made {known.steps} updates only")
        scaled = {
            path: _on_line(before, weight.detach(), factor)
            for path, _, _, weight in owned
            if path in older and of_part.search(path)
            if weight.ndim > 1 or part != "projections"
            if (before := older[path]).shape == weight.shape
        }
        return _taken(owned, scaled)

    def update_moved(self, model: nn.Module, value: Any) -> AbstractContextManager[None]:
        """The edit `[directory, move]`: the update of a tensor is added to another one.

        `up_proj>gate_proj`: also to its own update; `up_proj>>gate_proj`: in its place;
        `up_proj<>gate_proj`: both exchanged; `1:up_proj>gate_proj`: in one layer. `next` and
        `previous`: each layer has the update of the layer before it, or after it.
        """
        own, older = self._both(model, str(value[0]))
        return _taken(owned_weights(model), _moved_updates(own, older, value[1]))

    def update_part(self, model: nn.Module, value: Any) -> AbstractContextManager[None]:
        """The edit `["how|directory", share]`: a share of the elements of an update arrived.

        See `partial_update` for which.
        """
        how, _, folder = str(value[0]).partition("|")
        own, older = self._both(model, folder)
        return _taken(owned_weights(model), partial_update(own, older, how, float(value[1])))

    def update_format(self, model: nn.Module, value: Any) -> AbstractContextManager[None]:
        """The edit `[directory, scheme]`: an update was sent in a coarse format."""
        own, older = self._both(model, str(value[0]))
        return _taken(owned_weights(model), coarse_update(own, older, str(value[1])))

    def _both(self, model: nn.Module, folder: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The model's tensors that another checkpoint has, too, and those of this checkpoint."""
        others = self._of(folder)
        own = {
            path: weight.detach()
            for path, _, _, weight in owned_weights(model)
            if path in others and others[path].shape == weight.shape
        }
        return own, {path: others[path].to(weight) for path, weight in own.items()}

    def _of(self, folder: str) -> Mapping[str, Tensor]:
        if is_optimizer_state(folder):
            return self._before_update(folder)
        if folder in self._tensors:  # the last one that is used is the last one that is dropped
            self._tensors[folder] = self._tensors.pop(folder)
        else:
            plain = Settings(
                dtype=self._settings.dtype,
                attention=self._settings.attention,
                trust_remote_code=self._settings.trust_remote_code,
            )
            loaded = load_model(folder, plain)
            self._tensors[folder] = {name: weight for name, _, _, weight in owned_weights(loaded)}
            if len(self._tensors) > _MOST_LOADED:
                self._tensors.pop(next(iter(self._tensors)))
        return self._tensors[folder]

    def _before_update(self, file: str) -> Mapping[str, Tensor]:
        """The weights before the last update."""
        if file not in self._undone:
            self._undone[file] = last_updates(self._model, Path(file))
        undone = self._undone[file].tensors
        changes = {
            id(weight): undone[name]
            for name, weight in self._model.named_parameters()
            if name in undone
        }
        return _BeforeUpdate(
            {
                place: (weight, changes[id(weight)])
                for place, _, _, weight in owned_weights(self._model)
                if id(weight) in changes
            }
        )


class _BeforeUpdate(Mapping[str, Tensor]):
    """Weights before an update, in 32 bits: it may be smaller than their steps.

    Each is computed when it is read, so that the model is not in memory once more.
    """

    def __init__(self, parts: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        self._parts = parts

    def __getitem__(self, place: str) -> Tensor:
        weight, undone = self._parts[place]
        return weight.detach().float() + undone.to(weight.device)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def _on_line(older: Tensor, weight: Tensor, factor: float) -> Tensor:
    """A weight on the line from its older value (factor 0) to its present one (factor 1)."""
    wide = torch.promote_types(older.dtype, weight.dtype)
    older = older.to(weight.device, wide)
    return (older + factor * (weight.to(wide) - older)).to(weight.dtype)


def _moved_updates(
    own: Mapping[str, Tensor], older: Mapping[str, Tensor], move: str
) -> dict[str, Tensor]:
    """The tensors that change if updates are added to other tensors."""
    if move in ("next", "previous"):
        far = 1 if move == "next" else -1
        targets = {path: _LAYER.sub(lambda m: f"{m[1]}{int(m[2]) + far}.", path) for path in own}
        pairs = [
            (path, to)
            for path, to in targets.items()
            if to != path and to in own and own[to].shape == own[path].shape
        ]
        return {to: older[to] + own[path] - older[path] for path, to in pairs}
    found = _MOVE.fullmatch(move)
    if found is None:
        raise InapplicableError(f"there is no move {move!r}")
    layer, source, how, target = found.groups()
    moved: dict[str, Tensor] = {}
    for path, weight in own.items():
        parent, _, rest = path.partition(f".{source}.")
        to = f"{parent}.{target}.{rest}"
        number = _LAYER.search(path)
        is_elsewhere = layer is not None and (number is None or number[2] != layer[:-1])
        if not rest or to not in own or own[to].shape != weight.shape or is_elsewhere:
            continue
        update = weight - older[path]
        moved[path] = older[path] + own[to] - older[to] if how == "<>" else older[path]
        moved[to] = (own if how == ">" else older)[to] + update
    if not moved:
        raise InapplicableError(f"no {target} has the shape of {source}")
    return moved


UPDATED = {
    "": "",
    "layers": r"\.(?:layers|h|blocks)\.\d+\.",
    "projections": r"\.(?:layers|h|blocks)\.\d+\.",
    "attention": r"attn|attention",
    "mlp": r"mlp|feed_forward|experts",
}
"""Tensors that an update may concern: those of an adapter are projections."""
_LAYER = re.compile(r"(\.(?:layers|h|blocks)\.)(\d+)\.")
_MOVE = re.compile(r"(\d+:)?([^:<>]+)(>>?|<>)([^<>]+)")


def owned_weights(model: nn.Module) -> list[tuple[str, nn.Module, str, nn.Parameter]]:
    """Each parameter with its module and its name there; a tied head is listed on its own."""
    return [
        (f"{path}.{name}" if path else name, module, name, weight)
        for path, module in model.named_modules()
        for name, weight in module.named_parameters(recurse=False)
    ]


def other_values(model: nn.Module, tensors: Mapping[str, Tensor]) -> AbstractContextManager[None]:
    """Other values of the weights with these paths; a tied head keeps its own."""
    return _taken(owned_weights(model), tensors)


@contextmanager
def _taken(
    owned: list[tuple[str, nn.Module, str, nn.Parameter]], tensors: Mapping[str, Tensor]
) -> Iterator[None]:
    """Weights replaced in their modules, so that a tied head and embeddings can differ."""
    fitting = [
        (module, name, weight, tensors[path])
        for path, module, name, weight in owned
        if path in tensors and tensors[path].shape == weight.shape
    ]
    if not fitting:
        raise InapplicableError("the other checkpoint has no such tensors")
    try:
        for module, name, weight, tensor in fitting:
            setattr(module, name, nn.Parameter(tensor.to(weight), requires_grad=False))
        yield
    finally:
        for module, name, weight, _ in fitting:
            setattr(module, name, weight)
