"""What each generic edit does to log-probabilities, to first order.

An edit changes what one operation or module returns by some amount. The gradient of a token's
log-probability there, times this amount, is the edit's effect to first order. One traced forward
pass and a backward pass for a token of each response give the effects of all edits in all layers,
which would take a pass each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from contract import InapplicableError, Response
from torch import Tensor, nn

from hf.hooks import until_end
from hf.localisation.passes import (
    FAILURES,
    Batch,
    GradientPasses,
    chosen_tokens,
    token_indices,
)
from hf.localisation.places import read_input, tensor_of
from hf.what_if import rank_parts, row_orders, sites
from hf.what_if.modules import layers, replaced
from hf.what_if.operation_edits import Forms, accumulations, changed
from hf.what_if.operations import Site, Trace

_MOST_NUMBERS = 1e9
"""Numbers of all gradients that are kept together."""
_MOST_IN_PASS = 1.5e9
"""Numbers that the operations of one pass may return."""
_MOST_WAITING = 2e7
"""Numbers of changes that wait to be computed together."""
_BOUNDS = (0.3, 1.0, 3.0)
_SAME = 1e-9
"""Square of an effect below which an edit changes nothing."""
_TOGETHER = 24
"""Edits of one tensor whose effects are computed together."""
_Key = tuple[str, str, str, str]
Effects = dict[_Key, dict[int | None, np.ndarray]]
"""By name, site without a layer, change and kind: the effect in each layer, (N,); None outside."""


@dataclass
class _Use:
    """What a module read and returned in the traced pass."""

    arguments: tuple[Any, ...]
    named: dict[str, Any]
    output: Any


@dataclass
class _Changing:
    """What changes at one end of a module."""

    made: Tensor
    """What the module returned. Others may read its input, so that its output shows the effect."""
    old: Tensor
    read: Tensor | None
    module: nn.Module
    use: _Use | None = None
    """To compute the module again with another input; None if its output changes."""

    def by(self, change: Callable[[Tensor], Tensor]) -> list[tuple[Tensor, Any]]:
        """The output before and after a change."""
        return [(self.made, lambda: self._after(change(self.old)))]

    def named(self, name: str) -> list[tuple[Tensor, Any]]:
        """The same of a change of sites."""
        return self.by(lambda old: sites.changed_by(name, old, self.read, self.module))

    def _after(self, new: Tensor) -> Tensor | None:
        if self.use is None:
            return new
        return tensor_of(self.module.forward(new, *self.use.arguments[1:], **self.use.named))


def _within(bound: float, x: Tensor) -> Tensor:
    return x.clamp(-bound, bound)


class FirstOrder(GradientPasses):
    """Estimates a model's generic edits; see `GradientPasses` for the arguments."""

    def __init__(
        self,
        model: Any,
        device: torch.device,
        forward: Callable[[Tensor, Tensor], Tensor],
        temperature: float,
    ) -> None:
        super().__init__(model, device, forward, temperature)
        self._sites = sites.sites(model)
        self._paths = {id(weight): name for name, weight in model.named_parameters()}
        self._layers = {
            id(inner): number
            for number, layer in enumerate(layers(model))
            for inner in layer.modules()
        }
        self._changes: dict[str, dict[str, list[Any]]] = {}
        for path, names in sites.changes(model):
            where, _, end = path.rpartition("/")
            self._changes.setdefault(where, {})[end] = names

    def measured(
        self, responses: Sequence[Response], tokens: int
    ) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
        """The edits, and arrays by name.

        - `token_N`: the index of each measured token among all tokens of the responses
        - `logprob_N`, `entropy_N`
        - `effects_EN`: the effect of each edit; of a factor, that of adding 1 to it

        Edits without an estimate come last, without a row.

        Raises:
            InapplicableError: if the model allows no gradients.
        """
        chosen = chosen_tokens(responses, tokens)
        batches = self._batches(responses, chosen)
        effects: Effects = {}
        facts: list[Tensor] = []
        extra: list[dict[str, Any]] = []
        with self._gradients_allowed():
            first, count = 0, sum(len(batch.rows_T) for batch in batches)
            for batch in batches:
                facts_T, found = self._of_batch(batch, effects, first, count)
                order = torch.cat(batch.columns)
                facts.append(facts_T[order].cpu())
                first += len(order)
                extra = extra or found
        own = torch.cat(facts).numpy() if facts else np.zeros((0, 2))
        listed, rows = _listed(effects, len(layers(self._model)))
        return [*listed, *extra], {
            "token_N": token_indices(responses, chosen, batches),
            "logprob_N": own[:, 0],
            "entropy_N": own[:, 1],
            "effects_EN": np.stack(rows) if rows else np.zeros((0, count), np.float32),
        }

    def _of_batch(
        self, batch: Batch, effects: Effects, first: int, count: int
    ) -> tuple[Tensor, list[dict[str, Any]]]:
        """Add a batch's effects; returns facts of its tokens, (T, 2), and unestimated edits."""
        trace = Trace(self._model, keeps=True)
        uses: dict[nn.Module, _Use] = {}
        with self._recorded(uses), trace.following(), torch.enable_grad():
            model_TV = self._model_logits(batch)
        logits_TV = self._scaled(model_TV)
        own_T = logits_TV.gather(1, batch.targets_T[:, None])[:, 0] - logits_TV.logsumexp(-1)
        gradients = _Gradients(self._tensors(trace, uses), batch, own_T, first)
        add = _Adder(effects, gradients, count)
        with torch.no_grad():
            self._operations(trace, add)
            for site in self._sites:
                self._site(site, uses, add)
            self._parameters(uses, add)
            self._rows(uses, add)
            add.finish()
            extra = [
                {"name": "operation", "attribute": site, "value": form, "kind": "choice"}
                for site, form in accumulations(trace)
            ]
            log_TV = logits_TV.log_softmax(-1)
            entropy_T = -(log_TV.exp() * log_TV.clamp(min=-100)).sum(-1)
        return torch.stack([own_T.detach(), entropy_T], dim=1), extra

    @contextmanager
    def _recorded(self, uses: dict[nn.Module, _Use]) -> Iterator[None]:
        def keep(module: nn.Module, arguments: Any, named: Any, output: Any) -> None:
            uses[module] = _Use(arguments, named, output)

        handles = [
            module.register_forward_hook(keep, with_kwargs=True) for module in self._model.modules()
        ]
        with until_end(handles):
            yield

    def _tensors(self, trace: Trace, uses: dict[nn.Module, _Use]) -> list[Tensor]:
        """The tensors whose gradients are needed."""
        found = [
            one for calls in trace.calls.values() for call in calls.values() for one in call.outputs
        ]
        for use in uses.values():
            found += [x for x in (tensor_of(use.output), read_input(use.arguments, use.named))
                      if x is not None]  # fmt: skip
        return [one for one in {id(one): one for one in found}.values() if one.requires_grad]

    def _operations(self, trace: Trace, add: _Adder) -> None:
        accumulating = {path for [site, _] in accumulations(trace) for path in [Site.of(site).path]}
        forms = Forms(trace)
        for layer, calls in trace.calls.items():
            for call in calls.values():
                if call.site.path in accumulating or not any(o.requires_grad for o in call.outputs):
                    continue  # the calls there depend on the tokens' experts
                for form in forms.of(call):
                    try:
                        new = changed(call, trace, form)
                    except torch.OutOfMemoryError:
                        raise
                    except (*FAILURES, InapplicableError):
                        continue
                    if new is None:
                        continue
                    pairs = _pairs(call.output, new)
                    site = Site(None, call.site.path, call.site.number, call.site.name)
                    add(("operation", str(site), form, "choice"), layer, pairs)

    def _site(self, site: str, uses: dict[nn.Module, _Use], add: _Adder) -> None:
        for module in sites.modules_at(self._model, f"{site}/out")[0]:
            use = uses.get(module)
            made = None if use is None else tensor_of(use.output)
            if use is None or made is None:
                continue
            layer = self._layers.get(id(module))
            read = read_input(use.arguments, use.named)
            is_same = read is not None and read.shape == made.shape
            for end, names in self._changes.get(site, {}).items():
                if end == "out":
                    changing = _Changing(made, made, read if is_same else None, module)
                elif read is not None:
                    changing = _Changing(made, read, None, module, use)
                else:
                    continue
                path = f"{site}/{end}"
                add(("site_scale", path, "", "number"), layer, changing.by(lambda x: x * 2))
                for bound in _BOUNDS:
                    key = ("site_bound", path, str(bound), "number")
                    add(key, layer, changing.by(partial(_within, bound)))
                for name in names:
                    add(("site_change", path, name, "choice"), layer, changing.named(name))

    def _parameters(self, uses: dict[nn.Module, _Use], add: _Adder) -> None:
        owners = {
            id(weight): module
            for module in self._model.modules()
            for weight in module.parameters(recurse=False)
        }
        for site, names in sites.parameters(self._model):
            if site.endswith(f".{sites.EVERY}/weight"):
                continue
            for weight in sites.weights_at(self._model, site):
                owner = owners[id(weight)]
                use = uses.get(owner)
                old = None if use is None else tensor_of(use.output)
                if use is None or old is None or not old.requires_grad:
                    continue
                layer = self._layers.get(id(owner))

                def rerun(
                    name: str, use: Any = use, owner: Any = owner, weight: Any = weight
                ) -> Any:
                    new = sites.changed_by(name, weight, None, None)
                    with replaced([weight], lambda _: new):
                        return tensor_of(owner.forward(*use.arguments, **use.named))

                if weight.ndim > 1:
                    self._rank_parts(site, weight, old, use, owner, add)
                for name in names:
                    add(
                        ("site_change", site, name, "choice"), layer,
                        [(old, lambda name=name, rerun=rerun: rerun(name))],
                    )  # fmt: skip
                if weight.ndim < 2:
                    add(
                        ("site_scale", site, "", "number"), layer,
                        [(old, lambda use=use, owner=owner, weight=weight: _doubled(
                            use, owner, weight))],
                    )  # fmt: skip

    def _rank_parts(
        self, site: str, weight: nn.Parameter, old: Tensor, use: _Use, owner: Any, add: _Adder
    ) -> None:
        """Changes of what ranks hold of a tensor; those of several tensors add up."""
        layer, path = self._layers.get(id(owner)), self._paths[id(weight)]
        if layer is None:
            return
        for change in rank_parts.changes():
            new = rank_parts.changed(self._model, path, weight, change)
            if new is None:
                continue
            try:
                with replaced([weight], lambda _, new=new: new):
                    made = tensor_of(owner.forward(*use.arguments, **use.named))
            except torch.OutOfMemoryError:
                raise
            except FAILURES:
                return
            for group in rank_parts.groups_of(site.removesuffix("/weight")):
                add(("rank_part", group, change, "choice"), layer, [(old, made)])

    def _rows(self, uses: dict[nn.Module, _Use], add: _Adder) -> None:
        ends = [self._model.get_input_embeddings(), self._model.get_output_embeddings()]
        used = [(module, uses[module]) for module in ends if module in uses]
        for table in row_orders.tables(self._model):
            for order in row_orders.orders(self._model):
                pairs = []
                with row_orders.row_order(self._model, [table, order]):
                    for module, use in used:
                        pairs.append((use.output, module.forward(*use.arguments)))
                add(("row_order", table, order, "choice"), None, pairs)


def _doubled(use: _Use, owner: nn.Module, weight: nn.Parameter) -> Tensor | None:
    with replaced([weight], lambda old: old * 2):
        return tensor_of(owner.forward(*use.arguments, **use.named))


def _pairs(old: Any, new: Any) -> list[tuple[Tensor, Any]]:
    if isinstance(old, Tensor):
        return [(old, new)]
    return [(a, b) for a, b in zip(old, new, strict=True) if a is not b]


class _Gradients:
    """The gradients of each column's tokens, at each tensor."""

    def __init__(self, tensors: list[Tensor], batch: Batch, own_T: Tensor, first: int) -> None:
        rows = len(batch.ids_BL)
        self._rows, self._positions = rows, batch.ids_BL.numel()
        self._columns = batch.columns
        self._first = first
        kept: dict[int, list[Tensor]] = {id(one): [] for one in tensors}
        numbers = sum(one.numel() for one in tensors)
        if numbers > _MOST_IN_PASS:
            raise InapplicableError("its operations return too many numbers")
        most = max(1, int(_MOST_NUMBERS // max(numbers, 1)))
        step = -(-len(self._columns) // most)
        used = list(range(0, len(self._columns), step))
        self._row_N = batch.rows_T[torch.cat(self._columns)]
        numbers_N = [at // step for at, column in enumerate(self._columns) for _ in column]
        self._column_N = torch.tensor(numbers_N, device=own_T.device)
        known_N = [at % step == 0 for at, column in enumerate(self._columns) for _ in column]
        self._known_N = torch.tensor(known_N, device=own_T.device)
        for at in used:
            found = torch.autograd.grad(
                own_T[self._columns[at]].sum(), tensors, retain_graph=True, allow_unused=True
            )
            for one, gradient in zip(tensors, found, strict=True):
                kept[id(one)].append(torch.zeros_like(one) if gradient is None else gradient)
        self._stacked = {
            key: flat
            for key, parts in kept.items()
            if (flat := self._flat(torch.stack(parts))) is not None
        }

    def _flat(self, gradients: Tensor) -> Tensor | None:
        """From (C, …) to (B, C, X); None if the next axis is no row or position."""
        if gradients.ndim < 2:
            return None
        lead = gradients.shape[1]
        if lead == self._rows or (lead == self._positions and gradients.ndim > 2):
            by_row = gradients.reshape(gradients.shape[0], self._rows, -1).float()
            return by_row.transpose(0, 1).contiguous()
        return None

    def knows(self, old: Tensor) -> bool:
        """Whether the gradients at a tensor are known."""
        return id(old) in self._stacked

    def effects(self, old: Tensor, moved: Sequence[Tensor]) -> Tensor:
        """The changes of the tokens' log-probabilities, (E, N) in measured order."""
        moved_BEX = torch.stack([one.reshape(self._rows, -1).float() for one in moved], dim=1)
        by_row_BCE = torch.bmm(self._stacked[id(old)], moved_BEX.transpose(1, 2))
        values_NE = by_row_BCE[self._row_N, self._column_N]
        return torch.where(self._known_N[:, None], values_NE, torch.nan).T

    @property
    def first(self) -> int:
        """The number of tokens of earlier batches."""
        return self._first


class _Adder:
    """Adds the effects of a batch; those at one tensor are computed together."""

    def __init__(self, effects: Effects, gradients: _Gradients, count: int) -> None:
        self._effects, self._gradients, self._count = effects, gradients, count
        self._waiting: dict[int, tuple[Tensor, list[tuple[_Key, int | None, Tensor]]]] = {}
        self._numbers = 0

    def __call__(self, key: _Key, layer: int | None, pairs: Sequence[tuple[Tensor, Any]]) -> None:
        """Add the effect of an edit, given by old and new tensors or functions of these."""
        found = []
        for old, new in pairs:
            try:
                value = new() if callable(new) else new
            except torch.OutOfMemoryError:
                raise
            except (*FAILURES, InapplicableError):
                return
            if value is None or value.shape != old.shape or not self._gradients.knows(old):
                return
            found.append((old, value))
        for old, value in found:
            _, waiting = self._waiting.setdefault(id(old), (old, []))
            waiting.append((key, layer, value - old))
            self._numbers += old.numel()
            if len(waiting) >= _TOGETHER:
                self._compute(id(old))
        if self._numbers > _MOST_WAITING:
            self.finish()

    def finish(self) -> None:
        """Compute what still waits."""
        for old in list(self._waiting):
            self._compute(old)

    def _compute(self, key: int) -> None:
        old, waiting = self._waiting.pop(key)
        self._numbers -= old.numel() * len(waiting)
        effects_EN = self._gradients.effects(old, [moved for _, _, moved in waiting]).cpu().numpy()
        first = self._gradients.first
        for (edit, layer, _), effect_N in zip(waiting, effects_EN, strict=True):
            by_layer = self._effects.setdefault(edit, {})
            if layer not in by_layer:
                by_layer[layer] = np.full(self._count, np.nan, np.float32)
            part = by_layer[layer][first : first + effect_N.size]
            part[:] = np.where(np.isnan(part), effect_N, part + effect_N)


def _listed(effects: Effects, layer_count: int) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
    """Edits of all layers and of single ones, with their effects."""
    listed, rows = [], []
    for (name, site, value, kind), by_layer in effects.items():
        inside = [one for at, one in by_layer.items() if at is not None]
        wanted = [(site, by_layer[None])] if None in by_layer else []
        if len(inside) > 1 or (inside and layer_count == 1):
            wanted.append((site, np.sum(inside, axis=0)))
        if layer_count > 1:
            wanted += [(f"{at}:{site}", one) for at, one in by_layer.items() if at is not None]
        for where, effect in wanted:
            listed.append({"name": name, "attribute": where, "value": value, "kind": kind})
            rows.append(effect)
    known_N = np.any([np.isfinite(row) for row in rows], axis=0) if rows else np.zeros(0, bool)
    acting = [
        np.isfinite(row[known_N]).all() and np.square(row[known_N].astype(float)).sum() > _SAME
        for row in rows
    ]
    return (
        [one for one, acts in zip(listed, acting, strict=True) if acts],
        [row for row, acts in zip(rows, acting, strict=True) if acts],
    )
