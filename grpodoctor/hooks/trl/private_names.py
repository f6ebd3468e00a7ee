"""Every name of TRL that is not part of its documented interface, and the versions it was read in.

No other module of this package uses such a name. `tests/hooks/trl/test_private_names.py` pins them:
a new version of TRL breaks that test before it breaks a user. On a version that is not listed here,
none of these names is used.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.hooks.guard import Guard

VERIFIED = ("0.29", "1.0", "1.14", "1.16")
"""Minor versions for which all names below were read in the source and run in the tests."""

METHODS: Mapping[str, tuple[str, ...]] = {
    "_generate_and_score_completions": ("inputs",),
    "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
    "_compute_loss": ("model", "inputs"),
    "_get_per_token_logps_and_entropies": ("model",),
    "_get_grad_norm": ("model", "grad_norm"),
}
"""Methods that are observed, with their first parameters. `_get_grad_norm` is transformers'."""

ATTRIBUTES = (
    "_step",
    "_metrics",
    "num_iterations",
    "num_generations",
    "reward_weights",
    "reward_func_names",
    "loss_type",
    "importance_sampling_level",
    "epsilon_low",
    "epsilon_high",
    "scale_rewards",
    "multi_objective_aggregation",
    "off_policy_mask_threshold",
    "mask_truncated_completions",
    "beta",
    "ref_model",
    "temperature",
    "use_vllm",
    "is_fsdp_enabled",
    "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode",
)
"""Attributes of the trainer that are read or set, in all verified versions."""

NEWER_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "1.14": (
        "entropy_coef",
        "use_adaptive_entropy",
        "_entropy_bonus_enabled",
        "vllm_importance_sampling_clip_min",
        "vllm_importance_sampling_clip_max",
    ),
    "1.16": ("eos_token_ids",),
}
"""Attributes that exist from a version on. Before 1.14, the only bound of the correction is
`vllm_importance_sampling_cap`; before 1.16, the only end token is the tokenizer's."""

OLD_CAP = "vllm_importance_sampling_cap"
FUSED_HEAD_SINCE = "1.16"
"""Before, the loss divides the logits by the trainer's `temperature`."""

BATCH_KEYS = (
    "prompt_ids",
    "completion_ids",
    "completion_mask",
    "advantages",
    "tool_mask",
    "prompt_mask",
    "old_per_token_logps",
    "sampling_per_token_logps",
    "ref_per_token_logps",
    "importance_sampling_ratio",
)
"""Keys of the dictionary of a generated batch and of a micro-batch; those after `advantages` are
not always there."""

_IMAGES = ("image", "images")
"""Columns of a row, and arguments of a reward function, that TRL gives to the model as images."""
_ENVIRONMENTS = "environments"
"""The trainer's environments, each with its own state; also an argument of reward functions."""
_MULTIMODAL = ("pixel_values", "num_images")
"""Keys of a generated batch that has images."""


def has_hidden_task(*rows: Mapping[str, Any]) -> bool:
    """Whether an image or an environment belongs to the prompts, so that equal ones may differ.

    Args:
        rows: columns of the data, arguments of a reward function, or a generated batch.
    """
    names = (*_IMAGES, *_MULTIMODAL, _ENVIRONMENTS)
    return any(row.get(name) is not None for row in rows for name in names)


_HEAD_TEMPERATURE = "temperature"
"""Variable of the fused head's forward function."""
_HEAD_MARK = "cast_lm_head_to_fp32"
"""Another variable of it, by which it is recognized."""


@functools.cache
def installed_version() -> str:
    """The version of TRL; empty if it is not installed. It is asked for at every step."""
    try:
        return metadata.version("trl")
    except metadata.PackageNotFoundError:
        return ""


def is_verified(version: str) -> bool:
    """Whether the names of this module were checked against a version of TRL."""
    return ".".join(version.split(".")[:2]) in VERIFIED


def unknown_names(trainer: object) -> list[str]:
    """The names that a trainer lacks, or whose parameters differ from those verified."""
    return [
        *(name for name, parameters in METHODS.items() if not _accepts(trainer, name, parameters)),
        *(name for name in ATTRIBUTES if not hasattr(trainer, name)),
        *(
            name
            for since, names in NEWER_ATTRIBUTES.items()
            if _is_at_least(since)
            for name in names
            if not hasattr(trainer, name)
        ),
    ]


def _is_at_least(version: str) -> bool:
    return _minor(installed_version()) >= _minor(version)


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _accepts(trainer: object, name: str, parameters: Sequence[str]) -> bool:
    method = getattr(trainer, name, None)
    if not callable(method):
        return False
    actual = list(inspect.signature(method).parameters)
    return actual[: len(parameters)] == list(parameters)


# Taps


def observe_generation(
    trainer: object,
    guard: Guard,
    before: Callable[[], object],
    after: Callable[..., object],
) -> None:
    """Call `before` ahead of each generation, and `after` with its result and its input rows."""
    name = "_generate_and_score_completions"
    original = getattr(trainer, name)

    @functools.wraps(original)
    def generate(*args: Any, **kwargs: Any) -> Any:
        guard.run("generation", before)
        return original(*args, **kwargs)

    setattr(trainer, name, guard.after(generate, "rollouts", after))


def observe_rewards(trainer: object, guard: Guard, after: Callable[..., object]) -> None:
    """Call `after` with the rewards of all ranks, (N, functions), and the arguments."""
    _observe(trainer, guard, "_calculate_rewards", "rewards", after)


def observe_scores(trainer: object, guard: Guard, after: Callable[..., object]) -> None:
    """Call `after` with the log-probabilities and entropies of every forward pass."""
    _observe(trainer, guard, "_get_per_token_logps_and_entropies", "log-probabilities", after)


def observe_loss(trainer: object, guard: Guard, after: Callable[..., object]) -> None:
    """Call `after` with the loss of every micro-batch, the model and the micro-batch."""
    _observe(trainer, guard, "_compute_loss", "updates", after)


def observe_gradient_norm(trainer: object, guard: Guard, after: Callable[..., object]) -> None:
    """Call `after` with the norm of the gradient before clipping."""
    _observe(trainer, guard, "_get_grad_norm", "gradient norm", after)


def _observe(
    trainer: object, guard: Guard, name: str, part: str, after: Callable[..., object]
) -> None:
    setattr(trainer, name, guard.after(getattr(trainer, name), part, after))


# Scores

WITH_IMAGES = "pixel_values"
"""Key of a generated batch with images, which the canary does not score."""


def score_tokens(trainer: Any, ids: Any, mask: Any, count: int) -> Any:
    """The learner's log-probabilities of the last `count` tokens, as in TRL's loss.

    The taps and TRL's timers do not see this call.
    """
    score = inspect.unwrap(type(trainer)._get_per_token_logps_and_entropies)  # noqa: SLF001 - see the module
    size = trainer.args.per_device_train_batch_size
    return score(trainer, trainer.model, ids, mask, count, batch_size=size)[0]


def is_sharded(trainer: Any) -> bool:
    """Whether the ranks hold parts of the weights, so that one rank alone cannot score."""
    marks = ("ds_id", "full_tensor")  # of DeepSpeed's third stage and of FSDP2
    return bool(trainer.is_fsdp_enabled) or any(
        hasattr(each, mark) for each in trainer.model.parameters() for mark in marks
    )


# State of the trainer


def is_training(trainer: Any) -> bool:
    """Whether the trainer is in training mode, not in an evaluation."""
    return bool(trainer.model.training)


def generates_next(trainer: Any) -> bool:
    """Whether the next micro-batch begins with a generation."""
    every = trainer.args.steps_per_generation * trainer.num_iterations
    return bool(trainer._step % every == 0)  # noqa: SLF001 - see the module


def training_metrics(trainer: Any) -> Mapping[str, list[float]]:
    """The values since the last log, one per generation or micro-batch, by log key."""
    metrics: Mapping[str, list[float]] = trainer._metrics["train"]  # noqa: SLF001 - see the module
    return metrics


def has_entropy_bonus(trainer: Any) -> bool:
    """Whether the loss reads a constant entropy coefficient; fixed when the trainer is made."""
    return (
        bool(getattr(trainer, "_entropy_bonus_enabled", False)) and not trainer.use_adaptive_entropy
    )


def end_ids(trainer: Any) -> frozenset[int]:
    """The ids of tokens with which a complete response ends, and that of padding."""
    processor = trainer.processing_class
    tokenizer = getattr(processor, "tokenizer", processor)
    ends = getattr(trainer, "eos_token_ids", [tokenizer.eos_token_id])
    return frozenset(each for each in [*ends, tokenizer.pad_token_id] if each is not None)


def leaves_out_unscored() -> bool:
    """Whether a response for which all functions returned None has no advantage; seen in 1.14."""
    return _is_at_least("1.14")


def has_other_loss(trainer: Any) -> bool:
    """Whether the loss is computed by a kernel that returns no values of single tokens."""
    return bool(getattr(trainer, "use_liger_kernel", False)) and not _is_at_least("1.16")


def correction_cap(trainer: Any) -> str:
    """The attribute that holds the upper bound of the correction's weights."""
    return OLD_CAP if hasattr(trainer, OLD_CAP) else "vllm_importance_sampling_clip_max"


# Temperature


def set_temperature(trainer: Any, temperature: float) -> None:
    """Change the temperature of the samples and of the scores together.

    Since 1.16 the fused head has a copy of the temperature, made when the trainer was made, and
    divides the logits by it.

    Raises:
        ConfigError: if the head is of an unknown kind; nothing has changed then.
    """
    cells = []
    if _is_at_least(FUSED_HEAD_SINCE):
        models = [trainer.model, *([trainer.ref_model] if trainer.ref_model is not None else [])]
        cells = [_head_temperature(model) for model in models]
    if any(cell is None for cell in cells):
        raise ConfigError("the fused head of this model is of an unknown kind")
    for cell in cells:
        if cell is not None:
            cell.cell_contents = temperature
    for sampler in _samplers(trainer):
        if isinstance(sampler, dict):
            sampler["temperature"] = temperature
        else:
            sampler.temperature = temperature
    trainer.temperature = temperature


def head_temperature(trainer: Any) -> float | None:
    """The temperature by which the scores divide the logits; None if it is not known."""
    if not _is_at_least(FUSED_HEAD_SINCE):
        return float(trainer.temperature)
    cell = _head_temperature(trainer.model)
    return None if cell is None else float(cell.cell_contents)


def _samplers(trainer: Any) -> Iterator[Any]:
    """The settings from which the trainer samples."""
    names = ("vllm_generation",) if trainer.use_vllm else ("generation_config", "generation_kwargs")
    for name in names:
        if getattr(trainer, name, None) is not None:
            yield getattr(trainer, name)


def _head_temperature(model: Any) -> Any:
    """The variable of the fused head's forward function that holds its temperature."""
    while hasattr(model, "module"):  # wrapped for several ranks
        model = model.module
    if hasattr(model, "get_base_model"):
        model = model.get_base_model()
    forwards = [model.__dict__.get(name) for name in ("forward", "_original_forward")]
    return next((cell for each in forwards if (cell := _cell(each)) is not None), None)


def _cell(function: Any) -> Any:
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None or not {_HEAD_TEMPERATURE, _HEAD_MARK} <= set(code.co_freevars):
        return None
    return function.__closure__[code.co_freevars.index(_HEAD_TEMPERATURE)]
