"""The knobs that take effect when they change in a running `GRPOTrainer`.

Each was tested in TRL by its effect on the loss or the samples. What has no effect when it is set
in flight is not registered, so a request for it is refused: `args.epsilon` and other arguments that
the trainer has copied, `num_iterations`, an entropy bonus that was off at the start, and `beta`
without a reference model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.hooks.live_knobs import LiveKnobs, word_for
from grpodoctor.hooks.trl import private_names
from grpodoctor.measure.responses import component_name
from grpodoctor.vocabulary.knobs import REWARD_WEIGHT

_CLIPPED = frozenset({"grpo", "bnpo", "dr_grpo", "dapo"})
"""Values of `loss_type` that differ only in their denominator."""
_DENOMINATORS = {"sequence-mean": "grpo", "token-mean": "dapo", "constant": "dr_grpo"}
_SCALES = {"group": "group", "batch_std": "batch", "centred": "none"}
_CORRECTIONS = {
    "tis_token": "token_truncate",
    "tis_sequence": "sequence_truncate",
    "mis_token": "token_mask",
    "mis_sequence": "sequence_mask",
}
_OFF_POLICY_THRESHOLD = 0.5
"""Mean log-ratio above which `error_mask` drops a response with a negative advantage; the value of
the settings table."""


def add_knobs(knobs: LiveKnobs, trainer: Any) -> None:
    """Register the knobs of a trainer, those that have an effect with its settings.

    Args:
        knobs: the knobs of the training.
        trainer: a `GRPOTrainer` of a verified version.
    """
    _add_loss(knobs, trainer)
    _add_advantage(knobs, trainer)
    _add_correction(knobs, trainer)
    _add_penalties(knobs, trainer)
    _add_reward_weights(knobs, trainer)
    knobs.read_only(
        "dynamic_sampling",
        False,
        why="TRL never resamples groups; drop prompts that are always or never solved, and restart",
    )
    knobs.add(
        "overlong",
        get=lambda: "mask" if trainer.mask_truncated_completions else "none",
        set=_setter(trainer, "mask_truncated_completions", {"none": False, "mask": True}),
    )
    if private_names.head_temperature(trainer) is not None:
        knobs.add(
            "temperature",
            get=lambda: trainer.temperature,
            set=lambda value: private_names.set_temperature(trainer, float(value)),
        )


def _setter(trainer: Any, attribute: str, values: Mapping[Any, Any]) -> Callable[[Any], None]:
    """Sets an attribute to TRL's word for a setting."""

    def change(setting: Any) -> None:
        setattr(trainer, attribute, word_for(setting, values, attribute))

    return change


def _add_loss(knobs: LiveKnobs, trainer: Any) -> None:
    """Clip bounds, the loss and its denominator; only among losses with a clip."""
    if trainer.loss_type not in {*_CLIPPED, "cispo", "luspo"}:
        return
    if trainer.loss_type != "cispo":
        knobs.add(
            "clip_low",
            get=lambda: trainer.epsilon_low,
            set=lambda value: setattr(trainer, "epsilon_low", float(value)),
        )
    knobs.add("clip_high", get=lambda: _clip_high(trainer), set=_set_clip_high(trainer))
    if trainer.loss_type in {*_CLIPPED, "cispo"}:
        knobs.add("loss", get=lambda: _loss(trainer), set=lambda name: _set_loss(trainer, name))
    if trainer.loss_type in _CLIPPED:
        by_type = {kind: name for name, kind in _DENOMINATORS.items()}
        knobs.add(
            "aggregation",
            get=lambda: by_type.get(trainer.loss_type),
            set=lambda name: _set_denominator(trainer, name),
        )


def _clip_high(trainer: Any) -> float:
    """TRL's bound is a distance from 1, but with CISPO the largest weight itself."""
    high = float(trainer.epsilon_high)
    return high - 1 if trainer.loss_type == "cispo" else high


def _set_clip_high(trainer: Any) -> Callable[[Any], None]:
    def change(value: Any) -> None:
        is_weight = trainer.loss_type == "cispo"
        trainer.epsilon_high = 1 + float(value) if is_weight else float(value)

    return change


def _loss(trainer: Any) -> str | None:
    if trainer.loss_type == "cispo":
        return "cispo"
    by_level = {"token": "ppo_clip", "sequence": "gspo"}
    return by_level.get(trainer.importance_sampling_level)


def _set_loss(trainer: Any, name: Any) -> None:
    """Change the ratio's level or the kind of bound; the clip bounds stay the same distances."""
    if name not in {"ppo_clip", "gspo", "cispo"}:
        word_for(name, dict.fromkeys(("ppo_clip", "gspo", "cispo")), "loss_type")
    high = _clip_high(trainer)
    if name == "cispo":
        trainer.loss_type, trainer.importance_sampling_level = "cispo", "token"
    else:
        trainer.importance_sampling_level = "sequence" if name == "gspo" else "token"
        if name == "gspo":
            trainer.loss_type = "grpo"  # the others weight a response by its length
        elif trainer.loss_type == "cispo":
            trainer.loss_type = "dapo"  # has CISPO's denominator
    _set_clip_high(trainer)(high)


def _set_denominator(trainer: Any, name: Any) -> None:
    kind = word_for(name, _DENOMINATORS, "loss_type")
    if trainer.loss_type == "cispo":
        raise ConfigError("CISPO has its own denominator", remedy="change the loss as well")
    trainer.loss_type = kind


def _add_advantage(knobs: LiveKnobs, trainer: Any) -> None:
    if trainer.multi_objective_aggregation != "sum_then_normalize":
        return  # scale_rewards is not read then
    by_scale = {scale: name for name, scale in _SCALES.items()}
    knobs.add(
        "advantage",
        get=lambda: by_scale.get(trainer.scale_rewards),
        set=_setter(trainer, "scale_rewards", _SCALES),
    )


def _add_correction(knobs: LiveKnobs, trainer: Any) -> None:
    """The correction of the sampler, which exists only with vLLM, and the off-policy mask."""
    if not trainer.use_vllm:
        values = {"none": None, "error_mask": _OFF_POLICY_THRESHOLD}
        knobs.add(
            "correction",
            get=lambda: "none" if trainer.off_policy_mask_threshold is None else "error_mask",
            set=_setter(trainer, "off_policy_mask_threshold", values),
        )
        return
    knobs.add(
        "correction",
        get=lambda: _correction(trainer),
        set=lambda name: _set_correction(trainer, name),
    )
    cap = private_names.correction_cap(trainer)
    knobs.add(
        "correction_cap",
        get=lambda: getattr(trainer, cap),
        set=lambda value: setattr(trainer, cap, float(value)),
    )


def _correction(trainer: Any) -> str | None:
    if not trainer.vllm_importance_sampling_correction:
        return "none" if trainer.off_policy_mask_threshold is None else "error_mask"
    mode = trainer.vllm_importance_sampling_mode
    if mode == "token_mask" and getattr(trainer, "vllm_importance_sampling_clip_min", None):
        return "icepop"
    by_mode = {mode: name for name, mode in _CORRECTIONS.items()}
    return by_mode.get(mode)


def _set_correction(trainer: Any, name: Any) -> None:
    """Weights, or the mask of off-policy responses, or neither; a mask next to weights stays."""
    if name in ("none", "error_mask"):
        trainer.vllm_importance_sampling_correction = False
        masks = name == "error_mask"
        trainer.off_policy_mask_threshold = _OFF_POLICY_THRESHOLD if masks else None
        return
    known = {"none": None, "error_mask": None, **_CORRECTIONS}
    mode = word_for(name, known, "vllm_importance_sampling_mode")
    if trainer.loss_type == "vespo" and not mode.startswith("token"):
        raise ConfigError("VESPO requires a correction per token")
    if _correction(trainer) == "error_mask":
        trainer.off_policy_mask_threshold = None
    trainer.vllm_importance_sampling_mode = mode
    if hasattr(trainer, "vllm_importance_sampling_clip_min"):
        trainer.vllm_importance_sampling_clip_min = None
    trainer.vllm_importance_sampling_correction = True


def _add_penalties(knobs: LiveKnobs, trainer: Any) -> None:
    has_reference = trainer.ref_model is not None or hasattr(trainer.model, "peft_config")
    if has_reference:
        knobs.add(
            "kl_coefficient",
            get=lambda: trainer.beta,
            set=lambda value: setattr(trainer, "beta", float(value)),
        )
    if private_names.has_entropy_bonus(trainer):
        knobs.add(
            "entropy_coefficient",
            get=lambda: trainer.entropy_coef,
            set=lambda value: setattr(trainer, "entropy_coef", float(value)),
        )


def _add_reward_weights(knobs: LiveKnobs, trainer: Any) -> None:
    """A knob for each of several reward functions; a single weight would only scale the reward."""
    names = [component_name(str(name)) for name in trainer.reward_func_names]
    if len(names) < 2:
        return
    for place, name in enumerate(names):
        if names.count(name) == 1:
            knobs.add(
                f"{REWARD_WEIGHT}{name}",
                get=partial(_reward_weight, trainer, place),
                set=partial(_set_reward_weight, trainer, place),
            )


def _reward_weight(trainer: Any, place: int) -> float:
    return float(trainer.reward_weights[place])


def _set_reward_weight(trainer: Any, place: int, weight: Any) -> None:
    """A new tensor, because earlier steps refer to the old one."""
    weights = trainer.reward_weights.clone()
    weights[place] = float(weight)
    trainer.reward_weights = weights
