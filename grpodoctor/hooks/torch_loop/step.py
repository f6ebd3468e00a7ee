"""One step of a loop that is instrumented with `Doctor`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grpodoctor.errors import ConfigError, DataError
from grpodoctor.hooks.arrays import to_host
from grpodoctor.hooks.run_hook import RunHook
from grpodoctor.hooks.torch_loop.scores import TokenScores, scores_of_hidden, scores_of_logits
from grpodoctor.hooks.torch_loop.updates import UpdateFacts, update_batches
from grpodoctor.measure.batch import RolloutBatch
from grpodoctor.measure.step import StepBatch
from grpodoctor.measure.subsample import name_hashes
from grpodoctor.vocabulary.metrics import metric_of
from grpodoctor.vocabulary.values import Max, Mean, Min, Reading

if TYPE_CHECKING:
    from torch import Tensor

    from grpodoctor.hooks.router_watch import Routing
    from grpodoctor.hooks.weight_delivery.canary import DeliveryCanary

Rows = slice | Sequence[int] | None
"""Responses that a call is about, for micro-batches; all of them if None."""
_ALL = slice(None)


class DoctorStep:
    """Takes what a loop has, in any order except that `rollouts` comes first.

    Shapes: B responses, T response tokens (without the prompt, padded), V vocabulary, H hidden
    size. Arrays are tensors on any device, numpy arrays or lists; they are copied.

    Args:
        number: number of the step.
        hook: the recorder.
        decode: turns lists of token ids into texts; None if the loop gave none.
        canary: checks the sampler's weights; None if the loop registered no model.
    """

    def __init__(
        self,
        number: int,
        hook: RunHook,
        decode: Callable[[list[list[int]]], list[str]] | None,
        canary: DeliveryCanary | None = None,
    ) -> None:
        self.number = number
        self._hook, self._decode, self._canary = hook, decode, canary
        self._rollouts: dict[str, Any] | None = None
        self._token_arrays: dict[str, NDArray[Any]] = {}
        self._covered: dict[str, NDArray[np.bool_]] = {}
        """By token array, the responses that the calls covered."""
        self._updates: list[UpdateFacts] = []
        self._started = time.perf_counter()

    def rollouts(
        self,
        *,
        tokens: object,
        mask: object,
        rewards: object,
        groups: object,
        prompts: Sequence[str] | None = None,
        texts: Sequence[str] | None = None,
        references: Sequence[str] | None = None,
        components: Mapping[str, object] | None = None,
        correct: object = None,
        truncated: object = None,
        advantages: object = None,
        sampler_logprobs: object = None,
        old_logprobs: object = None,
        loss_mask: object = None,
        staleness: object = None,
        shared_groups: bool = False,
    ) -> None:
        """The responses of this rank.

        Args:
            tokens: ids of the response tokens, shape (B, T).
            mask: true for generated tokens including the end token, shape (B, T).
            rewards: the reward from which the advantages are computed, shape (B,).
            groups: an id per response, equal for the responses to one prompt; or the group size,
                if the responses to a prompt follow each other.
            prompts: text of each response's prompt.
            texts: text of each response; `decode` of the doctor makes it otherwise.
            references: reference answer of each response.
            components: parts of the reward by name, shape (B,) each.
            correct: whether each response is correct, shape (B,).
            truncated: whether the length limit cut the response, shape (B,).
            advantages: of each response, shape (B,), or of each token, shape (B, T).
            sampler_logprobs: reported by the engine that generated the tokens, shape (B, T).
            old_logprobs: the old log-probabilities that the loss uses, if they are not the
                learner's own before the first update, shape (B, T).
            loss_mask: tokens in the loss, if these are not all generated tokens, shape (B, T).
            staleness: optimizer steps between sampling and use, shape (B,).
            shared_groups: whether equal ids on different ranks are the same group.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        self._hook.guard.run("rollouts", self._take_rollouts, **given)

    def logits(self, logits: Tensor, *, rows: Rows = None, temperature: float = 1.0) -> None:
        """The learner's logits before the first update: its log-probabilities and entropy.

        Args:
            logits: shape (B, T, V); position t predicts response token t.
            rows: responses that `logits` covers.
            temperature: the sampling temperature, if `logits` are not divided by it yet.
        """
        self._hook.guard.run("logits", self._score, scores_of_logits, rows, temperature, logits)

    def hidden(
        self, hidden: Tensor, lm_head: object, *, rows: Rows = None, temperature: float = 1.0
    ) -> None:
        """The same from the states before the output layer, without a tensor of all logits.

        Args:
            hidden: shape (B, T, H); position t predicts response token t.
            lm_head: the output layer: a module, its weight of shape (V, H), or, if the model
                scales or caps its logits, a `grpodoctor.measure.hidden.Head`.
            rows: responses that `hidden` covers.
            temperature: the sampling temperature.
        """

        def score(
            hidden: Tensor, tokens_BT: NDArray[Any], mask_BT: NDArray[Any], temperature: float
        ) -> TokenScores:
            return scores_of_hidden(hidden, lm_head, tokens_BT, mask_BT, temperature)

        self._hook.guard.run("hidden", self._score, score, rows, temperature, hidden)

    def logprobs(
        self,
        learner: object = None,
        *,
        entropy: object = None,
        sampler: object = None,
        old: object = None,
        reference: object = None,
        rows: Rows = None,
    ) -> None:
        """Log-probabilities of the response tokens, in nats, shape (B, T) each.

        Args:
            learner: the learner's before the first update, at the sampling temperature.
            entropy: entropy of the learner's distribution at each token.
            sampler: reported by the engine that generated the tokens.
            old: the old log-probabilities that the loss uses, if they are not the learner's.
            reference: the reference model's.
            rows: responses that the arrays cover.
        """
        given = {
            "learner_logprobs_BT": learner,
            "entropy_BT": entropy,
            "sampler_logprobs_BT": sampler,
            "old_logprobs_BT": old,
            "reference_logprobs_BT": reference,
        }
        self._hook.guard.run("logprobs", self._take_token_arrays, given, rows)

    def update(
        self,
        *,
        loss: object = None,
        grad_norm: object = None,
        learning_rate: object = None,
        logprobs: object = None,
        advantages: object = None,
        rows: Rows = None,
        clip_low: float | None = None,
        clip_high: float | None = None,
        dual_clip: float | None = None,
        weights: object = None,
        clipped_low: object = None,
        clipped_high: object = None,
    ) -> None:
        """One optimizer step on the responses.

        Args:
            loss: value of the loss.
            grad_norm: norm of the gradient before clipping.
            learning_rate: learning rate of the step.
            logprobs: the learner's log-probabilities in the loss, shape (B, T); needed for ratios,
                clip fractions and KL if there are several updates.
            advantages: those of the update, if they are not those of the rollouts.
            rows: responses in the update.
            clip_low: PPO's lower clip: ratios below 1 - clip_low have no gradient.
            clip_high: PPO's upper clip: ratios above 1 + clip_high have no gradient.
            dual_clip: largest ratio of a negative advantage that has a gradient.
            weights: correction weights for the mismatch of sampler and learner, shape (B, T).
            clipped_low: tokens that the loss clipped on the low side, for losses other than PPO's.
            clipped_high: the same for the high side.
        """
        given = {name: value for name, value in locals().items() if name not in {"self", "rows"}}
        self._hook.guard.run("update", self._take_update, rows, given)

    def reading(self, name: str, value: object) -> None:
        """Any other metric of the vocabulary, such as `accuracy/heldout` or `kl/reference/k3`.

        Args:
            name: canonical name; `docs/api.md` says where the names are listed.
            value: its number in this step.
        """
        self._hook.guard.run(f"reading {name}", self._take_reading, name, value)

    def routing(self, routing: Routing | None, before: Routing | None = None) -> None:
        """The routing of a mixture of experts, measured by `RouterWatch`.

        Args:
            routing: of the latest pass.
            before: of the same tokens before the update; gives `experts/churn_update`.
        """
        self._hook.guard.run("routing", self._take_routing, routing, before)

    def delivery(self, inputs: object, *, sampler_logprobs: object, mask: object) -> None:
        """A few responses that the sampler generated after a sync, before the next update.

        Call it on one rank only, in each step with a sync, also before the first update.

        Args:
            inputs: the responses, as `score` of `Doctor.watch_delivery` takes them.
            sampler_logprobs: reported by the engine that generated the tokens, shape (R, T).
            mask: true for generated tokens, shape (R, T).
        """
        self._hook.guard.run(
            "weight delivery", self._check_delivery, inputs, sampler_logprobs, mask
        )

    # Inside the boundary

    def _check_delivery(self, inputs: object, sampler_logprobs: object, mask: object) -> None:
        if self._canary is None:
            return
        sampler_RT, mask_RT = to_host(sampler_logprobs), to_host(mask).astype(bool)
        for name, reading in self._canary.check(inputs, sampler_RT, mask_RT).items():
            self._hook.reading(name, reading)

    def _take_routing(self, routing: Routing | None, before: Routing | None) -> None:
        if routing is None:
            return
        churn = {} if before is None else routing.churn(before)
        for name, reading in {**routing.readings(), **churn}.items():
            self._hook.reading(name, reading)

    def _take_rollouts(self, **given: Any) -> None:
        tokens_BT, mask_BT = to_host(given["tokens"]), to_host(given["mask"]).astype(bool)
        rewards_B = to_host(given["rewards"]).astype(np.float64)
        if tokens_BT.ndim != 2 or tokens_BT.shape[0] != rewards_B.size:
            raise DataError(
                f"tokens of shape {tokens_BT.shape} do not fit {rewards_B.size} rewards",
                where=f"step {self.number}",
                remedy="give tokens as (B, T) and one reward per response",
            )
        groups_B = self._group_ids(given["groups"], rewards_B.size, given["shared_groups"])
        fields: dict[str, Any] = {
            "tokens_BT": tokens_BT,
            "mask_BT": mask_BT,
            "rewards_B": rewards_B,
            "group_ids_B": groups_B,
            "components": {
                name: to_host(each).astype(np.float64)
                for name, each in (given["components"] or {}).items()
            },
            **_texts(given, groups_B),
        }
        if fields["texts"] is None and self._decode is not None:
            lists = [row[kept].tolist() for row, kept in zip(tokens_BT, mask_BT, strict=True)]
            fields["texts"] = list(self._decode(lists))
        for name, kind in _OPTIONAL.items():
            if given[name] is not None:
                array: NDArray[Any] = to_host(given[name]).astype(kind)
                fields[f"{name}_{'BT' if array.ndim == 2 else 'B'}"] = array
        self._rollouts = fields

    def _group_ids(self, groups: object, count: int, shared: bool) -> NDArray[Any]:
        """A number per response; ids of different ranks differ unless they are shared."""
        if isinstance(groups, int):
            names = [str(row // max(groups, 1)) for row in range(count)]
        else:
            names = [str(each) for each in _as_list(groups)]
        if self._hook.world == 1:
            return np.unique(names, return_inverse=True)[1]
        prefix = "" if shared else f"{self._hook.rank}/"
        return name_hashes([prefix + name for name in names]).astype(np.int64)

    def _score(
        self, score: Callable[..., TokenScores], rows: Rows, temperature: float, source: Tensor
    ) -> None:
        fields = self._fields()
        chosen = _ALL if rows is None else rows
        tokens_BT, mask_BT = fields["tokens_BT"][chosen], fields["mask_BT"][chosen]
        logprobs_BT, entropy_BT = score(source, tokens_BT, mask_BT, temperature)
        given = {"learner_logprobs_BT": logprobs_BT, "entropy_BT": entropy_BT}
        self._take_token_arrays(given, rows)

    def _take_token_arrays(self, given: Mapping[str, object], rows: Rows) -> None:
        shape = self._fields()["tokens_BT"].shape
        for name, values in given.items():
            if values is not None:
                target = self._token_arrays.setdefault(name, np.zeros(shape, np.float32))
                target[_ALL if rows is None else rows] = to_host(values)
                covered_B = self._covered.setdefault(name, np.zeros(shape[0], bool))
                covered_B[_ALL if rows is None else rows] = True

    def _take_update(self, rows: Rows, given: Mapping[str, object]) -> None:
        scalars = {name: _number(given[name]) for name in _UPDATE_NUMBERS}
        if scalars["learning_rate"] is None:
            setting = self._hook.knobs.settings().get("learning_rate")
            scalars["learning_rate"] = None if setting is None else float(setting)
        arrays = {
            name: to_host(given[name])
            for name in ("logprobs", "advantages", "weights", "clipped_low", "clipped_high")
            if given[name] is not None
        }
        chosen = _ALL if rows is None else rows
        self._updates.append(UpdateFacts(rows=chosen, arrays=arrays, **scalars))

    def _take_reading(self, name: str, value: object) -> None:
        metric, number = metric_of(name), _number(value)
        if metric is None:
            raise ConfigError(
                f"there is no metric {name[:60]!r}", remedy="see grpodoctor/vocabulary/metrics.py"
            )
        if number is not None:
            kinds: dict[str, Any] = {"max": Max, "min": Min}
            reading: Reading = kinds.get(metric.kind, Mean).of_number(number)
            self._hook.reading(name, reading)

    def _fields(self) -> dict[str, Any]:
        if self._rollouts is None:
            raise DataError("call step.rollouts first", where=f"step {self.number}")
        return self._rollouts

    def finish(self) -> None:
        """Record the step."""
        self._hook.reading("time/step", Mean.of_number(time.perf_counter() - self._started))
        if self._rollouts is None:
            _, readings, _ = update_batches(self._updates, None)
            self._hook.end_step(self.number, readings)
            return
        arrays = self._complete_arrays(self._rollouts["mask_BT"])
        reference_BT = arrays.pop("reference_logprobs_BT", None)
        fields = {**self._rollouts, **arrays}
        for name in ("sampler_logprobs", "old_logprobs"):
            fields.setdefault(f"{name}_BT", None)
        batch = RolloutBatch(step=self.number, sequence_ids=self._sequence_ids(), **fields)
        updates, readings, on_policy = update_batches(self._updates, batch, reference_BT)
        self._hook.end_step(
            self.number,
            StepBatch(rollouts=batch, updates=updates, on_policy=on_policy, readings=readings),
        )

    def _complete_arrays(self, mask_BT: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        """The token arrays that cover every response with tokens; the others are reported."""
        complete, filled_B = {}, mask_BT.any(axis=1)
        for name, values_BT in self._token_arrays.items():
            known = int((self._covered[name] & filled_B).sum())
            if known == filled_B.sum():
                complete[name] = values_BT
            else:
                what = name.removesuffix("_BT").replace("_", " ")
                why = f"step {self.number} gave it for {known} of {filled_B.sum()} responses"
                self._hook.missing(what, why)
        return complete

    def _sequence_ids(self) -> list[str]:
        rank = f"{self._hook.rank}-" if self._hook.world > 1 else ""
        count = len(self._fields()["rewards_B"])
        return [f"{self.number}-{rank}{row}" for row in range(count)]


_UPDATE_NUMBERS = ("loss", "grad_norm", "learning_rate", "clip_low", "clip_high", "dual_clip")

_OPTIONAL: dict[str, type] = {
    "correct": bool,
    "truncated": bool,
    "advantages": np.float64,
    "sampler_logprobs": np.float32,
    "old_logprobs": np.float32,
    "loss_mask": bool,
    "staleness": np.int64,
}
"""Optional arrays of `rollouts`, with their type."""


def _texts(given: Mapping[str, Any], groups_B: NDArray[Any]) -> dict[str, Any]:
    blank = [""] * len(groups_B)
    return {
        "prompts": list(given["prompts"] or blank),
        "prompt_ids": [str(group) for group in groups_B.tolist()],
        "texts": None if given["texts"] is None else list(given["texts"]),
        "references": list(given["references"] or blank),
    }


def _as_list(groups: object) -> list[object]:
    listed: list[object] = to_host(groups).tolist()
    return listed


def _number(value: object) -> float | None:
    """A number, or the single number of a tensor."""
    return None if value is None else float(to_host(value).reshape(()))
