"""The method that a config trains by, as far as it is not reinforcement learning with a reward.

The settings of DPO, supervised fine-tuning and distillation have the names of those of GRPO, such
as the learning rate and `beta`, and other usual values.
"""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.launch_command import (
    DISTILLATION,
    METHOD_KEY,
    PREFERENCES,
    REWARD_MODEL,
    RL,
    SFT,
)
from grpodoctor.vocabulary.knobs import Setting

_PREFERENCE_LOSSES = (
    "sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair",
    "sppo_hard", "aot", "aot_unpaired", "aot_pair", "discopop", "apo_zero", "apo_down", "simpo",
    "kto", "apo_zero_unpaired",
)  # fmt: skip
"""Values of `loss_type` in TRL's DPOConfig, CPOConfig and KTOConfig."""

_NAMES: dict[Setting, str] = {
    **dict.fromkeys(("dpo", "kto", "orpo", "simpo", "cpo", "ipo"), PREFERENCES),
    **dict.fromkeys(("sft", "pt"), SFT),
    **dict.fromkeys(("gkd", "opd"), DISTILLATION),
    **dict.fromkeys(("rm", "reward", "prm"), REWARD_MODEL),
}

_BY_VALUE: Mapping[str, Mapping[str, Mapping[Setting, str]]] = {
    "ms-swift": {
        "rlhf_type": {**_NAMES, "grpo": RL, "ppo": RL},
        "loss_type": dict.fromkeys(_PREFERENCE_LOSSES, PREFERENCES),
    },
    "trl": {
        "rl": {**_NAMES, "grpo": RL},  # Axolotl
        "loss_type": dict.fromkeys(_PREFERENCE_LOSSES, PREFERENCES),
    },
    "slime": {"loss_type": {"sft_loss": SFT, "policy_loss": RL}},
    "verl": {"distillation.enabled": {True: DISTILLATION}},
}
"""By framework and key: what a value of the setting means."""

_BY_KEY: Mapping[str, Mapping[str, str]] = {
    "trl": {
        **dict.fromkeys(("precompute_ref_log_probs", "rpo_alpha", "f_divergence_type",
                         "desirable_weight", "simpo_gamma", "cpo_alpha"), PREFERENCES),
        **dict.fromkeys(("teacher_model_name_or_path", "lmbda", "seq_kd"), DISTILLATION),
        **dict.fromkeys(("dataset_text_field", "assistant_only_loss", "completion_only_loss",
                         "packing"), SFT),
        "center_rewards_coefficient": REWARD_MODEL,
    },
    "open-instruct": {"dpo_beta": PREFERENCES, "dpo_loss_type": PREFERENCES},
    "tinker-cookbook": {"dpo_beta": PREFERENCES},
}  # fmt: skip
"""By framework: keys that only the config of another method has."""

_OF_GRPO: Mapping[str, tuple[str, ...]] = {
    "trl": ("num_generations", "scale_rewards", "num_iterations", "reward_weights", "epsilon",
            "generation_batch_size", "trl.num_generations"),
}  # fmt: skip
"""By framework: keys that only configs of RL have, and none of DPO or supervised fine-tuning."""

_BY_SECTION: Mapping[str, Mapping[str, str]] = {
    "nemo-rl": {
        "grpo": RL, "dpo": PREFERENCES, "sft": SFT, "rm": REWARD_MODEL,
        "distillation": DISTILLATION,
    },
}  # fmt: skip
"""By framework: the outermost key of the method's own settings, the first in force counts."""


def other_method(framework: str, settings: Mapping[str, Setting]) -> str:
    """The training method of a config if it is not reinforcement learning; empty otherwise.

    Args:
        framework: the framework of the config.
        settings: its settings, with dotted keys.
    """
    method = (
        _stated(framework, settings) or settings.get(METHOD_KEY) or _by_key(framework, settings)
    )
    return "" if method == RL else str(method)


def _stated(framework: str, settings: Mapping[str, Setting]) -> str:
    """The method that a setting or a section names; empty if none does."""
    for key, methods in _BY_VALUE.get(framework, {}).items():
        if method := methods.get(settings.get(key, "")):
            return method
    sections = {key.partition(".")[0] for key in settings}
    named = _BY_SECTION.get(framework, {}).items()
    return next((method for section, method in named if section in sections), "")


def _by_key(framework: str, settings: Mapping[str, Setting]) -> str:
    is_of_grpo = any(key in settings for key in _OF_GRPO.get(framework, ()))
    for key, method in _BY_KEY.get(framework, {}).items():
        # The config of on-policy distillation has all keys of GRPO as well.
        if settings.get(key) not in (None, False) and (method == DISTILLATION or not is_of_grpo):
            return method
    return ""
