"""Causes that were planted after the rules were written, in runs of the bundled trainer.

Many begin at step 40 of 80: the run is healthy until then. The accepted codes were fixed before
the first of these runs was examined, except those of rules that were written because of them:
DAT005, DAT006, ENT005, GRP008, GRP009, GRP010, KLD005, OPT007, REW016, REW018 and
SYN009.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from grpodoctor.trainer.model.lora import merged_copy

STARTS_AT, STEPS = 40, 80
PREFIX = "unseen:"
"""Prefix of the names of these faults: other groups of plants have some of the names too."""

Fault = Callable[[Any], None]
_MIX = 2**32


def share(text: str) -> float:
    """A number from 0 to 1 that depends on a hash of the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / _MIX


def at_step(change: Callable[[Any], None], *, every: bool = False, start: int = STARTS_AT) -> Fault:
    """Call `change` before a step, or before each step from there on."""

    def fault(trainer: Any) -> None:
        take = trainer._take_step

        def changed(step: int) -> Any:
            if step == start or (every and step > start):
                change(trainer)
            return take(step)

        trainer._take_step = changed

    return fault


def _section(section: str, **fields: Any) -> Callable[[Any], None]:
    """Change settings of a section without a record."""

    def change(trainer: Any) -> None:
        part = getattr(trainer.config, section).model_copy(update=fields)
        trainer.config = trainer.config.model_copy(update={section: part})
        trainer._prepare(trainer.config)
        if section == "rollout":
            trainer.engine._rollout = part

    return change


def on_score(change: Callable[[Any, Any, Sequence[Any], Sequence[str]], Any]) -> Fault:
    """Change the rewards of the training responses: `change(trainer, rewards, problems, texts)`."""

    def fault(trainer: Any) -> None:
        score = trainer.task.score

        def changed(problems: Sequence[Any], texts: Sequence[str]) -> Any:
            return change(trainer, score(problems, texts), problems, texts)

        trainer.task.score = changed

    return fault


def graded(grade: Callable[[float, Any, str, int], float], *, start: int = 0) -> Fault:
    """Replace each reward from a step on; the verifier's verdict follows the reward."""

    def change(trainer: Any, rewards: Any, problems: Sequence[Any], texts: Sequence[str]) -> Any:
        if trainer.done + 1 < start:
            return rewards
        rows = zip(rewards.total, problems, texts, range(len(texts)), strict=True)
        return replace(rewards, total=[grade(*row) for row in rows], correct=None, components={})

    return on_score(change)


def on_samples(change: Callable[[Any, Any], Any], *, start: int = 0) -> Fault:
    """Change what the engine returns from a step on."""

    def fault(trainer: Any) -> None:
        generate = trainer.engine.generate

        def changed(*arguments: Any, **options: Any) -> Any:
            samples = generate(*arguments, **options)
            return change(trainer, samples) if trainer.done + 1 >= start else samples

        trainer.engine.generate = changed

    return fault


def on_learn_batch(change: Callable[[Any, Any, Any], Any]) -> Fault:
    """Change the batch of the updates: `change(trainer, rollouts, batch)`."""

    def fault(trainer: Any) -> None:
        learn_batch = trainer._learn_batch

        def changed(rollouts: Any, scores: Any) -> Any:
            return change(trainer, rollouts, learn_batch(rollouts, scores))

        trainer._learn_batch = changed

    return fault


def _without_end(_: Any, __: Any, batch: Any) -> Any:
    shorter_BT = batch.loss_mask_BT.roll(-1, 1)
    shorter_BT[:, -1] = False
    return replace(batch, loss_mask_BT=batch.loss_mask_BT & shorter_BT)


def _without_first(_: Any, __: Any, batch: Any) -> Any:
    shifted_BT = batch.loss_mask_BT.roll(1, 1)
    shifted_BT[:, 0] = False
    return replace(batch, loss_mask_BT=shifted_BT & batch.samples.mask_BT)


def _uncentred_half(_: Any, rollouts: Any, batch: Any) -> Any:
    advantages_BT = batch.advantages_BT.clone()
    half = len(advantages_BT) // 2
    advantages_BT[:half] = rollouts.totals().float()[:half, None]
    return replace(batch, advantages_BT=advantages_BT)


def _mixed_groups(trainer: Any) -> None:
    learn_batch = trainer._learn_batch

    def changed(rollouts: Any, scores: Any) -> Any:
        ids_B = rollouts.group_ids_B
        stride = trainer.config.rollout.group_size
        mixed = replace(rollouts, group_ids_B=ids_B.view(-1, stride).T.reshape(-1))
        return replace(learn_batch(mixed, scores), group_ids_B=ids_B)

    trainer._learn_batch = changed


def _old_logprobs_off(_: Any, __: Any, batch: Any) -> Any:
    return replace(batch, old_logprobs_BT=batch.old_logprobs_BT * 0.7)


def _duplicated(_: Any, samples: Any) -> Any:
    rows = torch.arange(len(samples))
    return samples.rows(rows - rows % 2)


def _rewards_of_previous_batch(trainer: Any) -> None:
    last: list[Any] = []

    def change(_: Any, rewards: Any, __: Any, texts: Sequence[str]) -> Any:
        last.append(rewards)
        return last[-2] if len(last) > 1 and len(last[-2].total) == len(texts) else rewards

    on_score(change)(trainer)


def _replayed_samples(trainer: Any) -> None:
    """The buffer hands out each batch for ten steps, with its prompts."""
    collect, kept = trainer._collect, {}

    def changed(step: int) -> Any:
        if step % 10 == 1:
            kept["batch"] = collect(step)
        return kept["batch"]

    trainer._collect = changed


def _few_prompts(trainer: Any) -> None:
    problems = trainer.task.problems(random.Random(3), 8)
    trainer.task.problems = lambda _, count: [problems[i % 8] for i in range(count)]


def _few_prompts_evaluated(trainer: Any) -> None:
    _few_prompts(trainer)
    trainer.task.heldout = lambda count: trainer.task.problems(None, min(8, count))


def _sorted_by_difficulty(trainer: Any) -> None:
    """Prompts of two operations first, of seven in the second half."""
    inner = getattr(trainer.task, "task", trainer.task)
    inner.size = 2
    heldout = inner.heldout(64)
    inner.heldout = lambda count: heldout[:count]
    at_step(lambda _: setattr(inner, "size", 7))(trainer)


def _gentle_curriculum(trainer: Any) -> None:
    """Longer prompts in the second half; the held-out prompts stay."""
    inner = getattr(trainer.task, "task", trainer.task)
    heldout = inner.heldout(64)
    inner.heldout = lambda count: heldout[:count]
    at_step(lambda _: setattr(inner, "size", 4))(trainer)


def _prompts_cut(trainer: Any) -> None:
    generate = trainer.engine.generate

    def cut(prompts: Sequence[Sequence[int]], *arguments: Any, **options: Any) -> Any:
        if trainer.done + 1 >= STARTS_AT:
            prompts = [prompt[-4:] for prompt in prompts]
        return generate(prompts, *arguments, **options)

    trainer.engine.generate = cut


def _sync_stops(trainer: Any) -> None:
    def stop(trainer: Any) -> None:
        engine = trainer.engine
        engine._model = merged_copy(trainer.policy.model)

        def sync(step: int) -> None:
            engine.synced_step = engine._step = step

        engine.sync = sync

    at_step(stop)(trainer)


def _weights_reset(trainer: Any) -> None:
    start = [weight.detach().clone() for weight in trainer.learner.parameters]

    @torch.no_grad()
    def reset(trainer: Any) -> None:
        for weight, first in zip(trainer.learner.parameters, start, strict=True):
            weight.copy_(first)

    at_step(reset)(trainer)


def _reference_follows(trainer: Any) -> None:
    def follow(trainer: Any) -> None:
        if trainer.reference.loaded is not None:
            model = trainer.reference.loaded.model
            model.load_state_dict(trainer.policy.model.state_dict())

    take = trainer._take_step

    def changed(step: int) -> Any:
        follow(trainer)
        return take(step)

    trainer._take_step = changed


def _all_but_norm_frozen(trainer: Any) -> None:
    for weight in trainer.learner.parameters[:-1]:
        weight.requires_grad_(requires_grad=False)


def _gradient_scaled(trainer: Any) -> None:
    """From step 40 on, the loss is a sum over micro-batches instead of a mean."""

    def scale(trainer: Any) -> None:
        for weight in trainer.learner.parameters:
            weight.register_hook(lambda gradient: gradient * 100)

    at_step(scale)(trainer)


def _gradient_kept(trainer: Any) -> None:
    """Gradients are never cleared."""
    trainer.learner.optimizer.zero_grad = lambda **_: None


def _temperature_decays(trainer: Any) -> None:
    take = trainer._take_step

    def changed(step: int) -> Any:
        _section("rollout", temperature=max(0.05, 0.95**step))(trainer)
        return take(step)

    trainer._take_step = changed


def _sharp_start(trainer: Any) -> None:
    with torch.no_grad():
        for weight in trainer.policy.model.get_output_embeddings().parameters():
            weight.mul_(4)


def _weight_decay(trainer: Any) -> None:
    for group in trainer.learner.optimizer.param_groups:
        group["weight_decay"] = 100.0


def _negative_entropy(trainer: Any) -> None:
    _section("loss", entropy_coefficient=-0.3)(trainer)


def _end_ignored(trainer: Any) -> None:
    from planted_faults import end_token_ignored

    at_step(end_token_ignored)(trainer)


def _updates_repeated(trainer: Any) -> None:
    update = trainer.learner.update

    def repeated(*arguments: Any, **options: Any) -> Any:
        for _ in range(7):
            update(*arguments, **options)
        return update(*arguments, **options)

    trainer.learner.update = repeated


def _is_whole(text: str) -> bool:
    return "#" in text


def _other_component(trainer: Any) -> None:
    """From step 40 on, the bonus for filler weighs 30 times as much."""

    def change(trainer: Any, rewards: Any, _: Any, texts: Sequence[str]) -> Any:
        weight = 3.0 if trainer.done + 1 >= STARTS_AT else 0.1
        return rewards.plus("style", [min(text.count("."), 5) for text in texts], weight)

    on_score(change)(trainer)


FAULTS: dict[str, Fault] = {
    "parser_breaks": graded(lambda r, _, text, __: r * (len(text) <= 8), start=STARTS_AT),
    "wrong_keys": graded(lambda r, problem, *_: r * (share(problem.prompt) < 0.5)),
    "label_noise": graded(
        lambda r, problem, text, i: 1 - r if share(f"{problem.prompt}{text}{i}") < 0.4 else r
    ),
    "position_bonus": graded(lambda r, _, __, i: r + 3.0 * (i % 8 == 0)),
    "tiny_noise": graded(lambda _, problem, text, i: 1e-4 * share(f"{problem.prompt}{text}{i}")),
    "clipped": graded(lambda r, *_: min(r, 0.0), start=STARTS_AT),
    "substring": graded(lambda _r, problem, text, _i: float(problem.answer in text)),
    "unfinished_is_right": graded(lambda r, _, text, __: 1.0 if not _is_whole(text) else r),
    "other_component": _other_component,
    "sorted_by_difficulty": _sorted_by_difficulty,
    "gentle_curriculum": _gentle_curriculum,
    "few_prompts": _few_prompts,
    "few_prompts_evaluated": _few_prompts_evaluated,
    "lr_jumps": at_step(_section("optimizer", learning_rate=4e-3)),
    "lr_ends": at_step(_section("optimizer", learning_rate=0.0)),
    "kl_100x": at_step(_section("loss", kl_coefficient=5.0)),
    "precision_switch": at_step(_section("engine", precision="int4")),
    "limit_lowered": at_step(_section("rollout", max_length=9)),
    "gradient_scaled": _gradient_scaled,
    "gradient_kept": _gradient_kept,
    "uncentred_half": on_learn_batch(_uncentred_half),
    "mixed_groups": _mixed_groups,
    "without_end": on_learn_batch(_without_end),
    "without_first": on_learn_batch(_without_first),
    "old_logprobs_off": on_learn_batch(_old_logprobs_off),
    "weight_decay": _weight_decay,
    "negative_entropy": _negative_entropy,
    "reference_follows": _reference_follows,
    "prompts_cut": _prompts_cut,
    "temperature_decays": _temperature_decays,
    "sync_stops": _sync_stops,
    "duplicated": on_samples(_duplicated),
    "previous_rewards": _rewards_of_previous_batch,
    "replayed_samples": _replayed_samples,
    "weights_reset": _weights_reset,
    "frozen": _all_but_norm_frozen,
    "end_ignored": _end_ignored,
    "updates_repeated": _updates_repeated,
    "sharp_start": _sharp_start,
}

_FALL = ("REW014", "REW002")
_TOO_FAR = ("OPT006", "CLP001", "KLD001", "CFG050")
_OFF = ("MIS001", "MIS003", "SYN001", "SYN002", "SYN003", "SYN008", "MIS004")
_BLIND = ("REW001", "REW011", "REW002", "REW012")

Row = tuple[tuple[str, ...], tuple[str, ...], str | None]

SICK: dict[str, Row] = {
    "parser-breaks": ((), (*_FALL, "GRP002", "REW004"), "parser_breaks"),
    "wrong-keys-half": ((), ("GRP002", "GRP007"), "wrong_keys"),
    "labels-flipped-40": (
        (), ("REW018", "REW011", "REW001", "REW012", "REW005", "REW008"), "label_noise"
    ),
    "position-bonus": ((), ("REW011", "REW001", "REW012"), "position_bonus"),
    "only-tiny-noise": (
        (), ("GRP009", "REW011", "REW001", "REW004", "GRP004", "REW012"), "tiny_noise"
    ),
    "reward-clipped": ((), (*_FALL, "REW004", "GRP004", "GRP002"), "clipped"),
    "substring-verifier": (
        (), ("REW005", "REW003", "REW008", "REW009", "LEN006", "LEN004", "REW012"), "substring"
    ),
    "unfinished-is-right": (
        (), ("REW005", "REW003", "REW008", "REW009", "REW012", "LEN002", "LEN004", "LEN006",
             "LEN007", "LEN008", "REW013"), "unfinished_is_right",
    ),
    "component-jumps": (
        (), ("REW010", "REW005", "REW003", "REW008", "REW009", "OPT002"), "other_component"
    ),
    "sorted-by-difficulty": ((), (*_FALL, "GRP002", "GRP007", "REW003"), "sorted_by_difficulty"),
    "eight-prompts": ((), ("REW003", "REW008", "GRP001", "REW006", "REW011"), "few_prompts"),
    "evaluated-on-training": (
        (), ("GRP001", "REW006", "REW011", "REW003"), "few_prompts_evaluated"
    ),
    "lr-jumps": ((), (*_TOO_FAR, *_FALL, "OPT002", "OPT004"), "lr_jumps"),
    "lr-ends": ((), ("OPT007", "OPT005", "CFG051", "OPT001", "REW001", "CLP002"), "lr_ends"),
    "kl-100x": (
        ("loss.kl_coefficient=0.05",), ("CFG043", "KLD002", "OPT002", "OPT004", "REW001"), "kl_100x"
    ),
    "precision-switch": ((), (*_OFF, "CFG032", "SYN004"), "precision_switch"),
    "limit-lowered": ((), ("LEN002", "LEN003", "LEN005", "REW014"), "limit_lowered"),
    "gradient-scaled": ((), ("OPT002", "OPT004", "OPT006"), "gradient_scaled"),
    "gradient-kept": (
        (), (*_TOO_FAR, "OPT002", "OPT004", "REW001", "REW002"), "gradient_kept"
    ),
    "one-rank-uncentred": ((), ("GRP005", "GRP008", "GRP010"), "uncentred_half"),
    "groups-mixed": (
        (), ("GRP008", "GRP010", "GRP005", "INS001", "REW001", "REW011"), "mixed_groups"
    ),
    "end-not-in-loss": (
        (), ("DAT005", "DAT001", "LEN007", "LEN006", "LEN002", "LEN004"), "without_end"
    ),
    "mask-off-by-one": ((), ("DAT005", "DAT001", "INS001", "MIS002", "LEN007"), "without_first"),
    "old-logprobs-unscaled": ((), ("MIS002", "CLP001", "KLD001"), "old_logprobs_off"),
    "weight-decay-100": (
        (), (*_TOO_FAR, *_FALL, "ENT002", "CFG060", "REW003"), "weight_decay"
    ),
    "beta1-0.999": (
        ("optimizer.beta1=0.999",), (*_TOO_FAR, *_FALL, "OPT002", "REW001", "CFG060"), None
    ),
    "entropy-sign": ((), ("ENT005", "CFG053", "ENT001", "ENT003"), "negative_entropy"),
    "reference-follows": (
        ("loss.kl_coefficient=0.1",), ("KLD005", "KLD003", "CFG040"), "reference_follows"
    ),
    "prompts-cut": ((), (*_FALL, "GRP002", "REW003"), "prompts_cut"),
    "temperature-decays": (
        (), ("ENT001", "ENT003", "GRP001", "GRP002", "GRP004", "CFG020", "CFG022"),
        "temperature_decays",
    ),
    "sync-stops": ((), _OFF, "sync_stops"),
    "rows-duplicated": (
        (), ("DAT006", "ENT003", "GRP007", "REW011", "GRP004", "ENT001"), "duplicated"
    ),
    "rewards-of-last-batch": ((), (*_BLIND, "INS001", "GRP005"), "previous_rewards"),
    "samples-replayed": (
        (), (*_TOO_FAR, *_OFF, "SYN006", "MIS002"), "replayed_samples"
    ),
    "weights-reset": ((), ("SYN009", *_FALL, "SYN004", "SYN005", "SYN003"), "weights_reset"),
    "only-norm-trained": ((), ("OPT005", "OPT001", "REW001"), "frozen"),
    "stop-token-lost": ((), ("LEN007", "LEN002", "LEN006", *_FALL), "end_ignored"),
    "updates-repeated-8x": ((), _TOO_FAR, "updates_repeated"),
    "sharp-start": ((), ("ENT001", "ENT003", "GRP001", "GRP004", "GRP007", "REW001"),
                    "sharp_start"),
    "critic-lr-1": (
        ("advantage.kind=gae", "critic.learning_rate=1"),
        ("GRP006", "CFG055", "OPT002", "OPT003", "OPT004"), None,
    ),
    "lora-alpha-too-low": (
        ("model.lora_rank=64", "model.lora_alpha=1", "optimizer.learning_rate=1e-5"),
        ("OPT005", "CFG050", "CFG051", "REW001"), None,
    ),
    "top-k-2": (
        ("rollout.top_k=2",), ("CFG021", "MIS003", "MIS001"), None
    ),
}  # fmt: skip
"""Settings, codes that name the cause, fault."""

HEALTHY: dict[str, tuple[tuple[str, ...], str | None, str | None]] = {
    "healthy-dapo": ((), None, "dapo"),
    "healthy-dr-grpo": ((), None, "dr_grpo"),
    "healthy-rloo": ((), None, "rloo"),
    "healthy-lr-5e-5": (("optimizer.learning_rate=5e-5",), None, None),
    "healthy-4-prompts": (
        ("rollout.prompts_per_batch=4", "rollout.group_size=16"), None, None
    ),
    "healthy-24-prompts": (("rollout.prompts_per_batch=24",), None, None),
    "healthy-cosine": (
        ("optimizer.schedule=cosine", "optimizer.warmup_steps=10", "optimizer.weight_decay=0.1"),
        None, None,
    ),
    "healthy-curriculum": ((), "gentle_curriculum", None),
    "healthy-counting": (("task.name=counting",), None, None),
}  # fmt: skip
"""Settings, fault (a change that does no harm), preset."""

PLANTS = {name: (*row, None) for name, row in SICK.items()} | {
    name: (settings, (), change, preset) for name, (settings, change, preset) in HEALTHY.items()
}
"""Settings, codes that name the cause, fault, preset."""
