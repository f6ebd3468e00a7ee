"""Values that follow from several settings of a ROLL config.

The RLVR and the agentic pipeline share most settings. Only the agentic one has `train_env_manager`:
its batch counts trajectories instead of prompts, and its rewards are normalized by
`reward_normalization`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from grpodoctor.frameworks.written_settings import Settings
from grpodoctor.vocabulary.knobs import Setting

BACKWARD_STEPS = "actor/backward_steps"
"""The log's number of updates per batch, as a setting. It depends on the data-parallel size, which
a config gives only indirectly."""
WEIGHT = "train_infer_correction.is_weight"
FILTERS = "train_infer_correction.filters"
TRAINING = "actor_train.training_args"
SAMPLING = "actor_infer.generating_args"
NORMALIZATION = "reward_normalization"
PG_WORKER = "roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker"

_TRAIN_STRATEGY = "actor_train.strategy_args"
_DEVICES = re.compile(r"list\(range\((\d{1,6}), ?(\d{1,6})\)\)")
_PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
_CISPO_BOUND = 0.1
"""Of the source; the config has no field for it."""


def is_agentic(settings: Settings) -> bool:
    """Whether the config is one of the agentic pipeline."""
    return any(key.startswith("train_env_manager.") for key in settings)


def has_sampling(settings: Settings) -> bool:
    """Whether the config has the section whose missing values have ROLL's defaults."""
    return any(key.startswith(f"{SAMPLING}.") for key in settings)


def if_sampling(setting: Setting, settings: Settings) -> Setting | None:
    """A sampling parameter, or its default if the config has the others."""
    return setting if has_sampling(settings) else None


def policy_gradient(settings: Settings) -> str | None:
    """The variant of the loss of `ActorPGWorker`; None with the usual worker."""
    if not str(settings.get("actor_train.worker_cls", "")).endswith(".ActorPGWorker"):
        return None
    return str(settings.get("actor_train.pg_variant", "vanilla"))


def read_loss(setting: Setting, settings: Settings) -> Setting | None:
    """The loss, from the level of the ratio or from the variant of the worker."""
    variant = policy_gradient(settings)
    if variant is not None:
        names = {"vanilla": "reinforce", "ppo": "ppo_clip", "cispo": "cispo"}
        return names.get(variant)
    if is_agentic(settings):
        return "ppo_clip" if settings.get("ratio_type", "token") == "token" else None
    return {"token": "ppo_clip", "seq": "gspo"}.get(str(setting))


def read_clip(side: str, settings: Settings) -> Setting | None:
    """One side of the clip: `low` or `high`."""
    if policy_gradient(settings) == "cispo":
        return _CISPO_BOUND
    if settings.get("use_pg_clip_range") is True:
        return settings.get(f"pg_clip_{side}", 0.2)
    return settings.get("pg_clip")


def read_advantage(setting: Setting, settings: Settings) -> Setting | None:
    """The estimator, from the way in which rewards are normalized; unknown with a teacher."""
    if any(key.startswith("teacher.") for key in settings):
        return None
    if setting == "gae":
        return "gae"
    agentic = is_agentic(settings)
    if setting == "grpo" and not agentic:
        return "group"
    if setting not in ("reinforce", "grpo"):
        return None
    mean, std = _agentic_normalization(settings) if agentic else _normalization(settings)
    return _ESTIMATORS.get((mean, std, settings.get("whiten_advantages") is True))


def _normalization(settings: Settings, prefix: str = "") -> tuple[str, str]:
    mean, std = (settings.get(f"{prefix}norm_{name}_type", "") for name in ("mean", "std"))
    return str(mean), str(std)


def _agentic_normalization(settings: Settings) -> tuple[str, str]:
    """The two types, or what an older `method` stands for; the groups are those of `grouping`."""
    mean, std = _normalization(settings, f"{NORMALIZATION}.")
    method = settings.get(f"{NORMALIZATION}.method", "identity")
    grouping = settings.get(f"{NORMALIZATION}.grouping", "batch")
    if grouping not in ("batch", "traj_group_id"):
        return "other", "other"
    level = "group" if grouping == "traj_group_id" else "batch"
    has_mean, has_std = method in ("mean", "mean_std", "asym_clip"), method in _WITH_STD
    return mean or (level if has_mean else ""), std or (level if has_std else "")


_WITH_STD = ("mean_std", "asym_clip")


_ESTIMATORS: Mapping[tuple[str, str, bool], str] = {
    ("group", "group", False): "group",
    ("group", "group", True): "group",
    ("group", "batch", False): "batch_std",
    ("group", "", False): "centred",
    ("group", "", True): "reinforce_plus_plus_baseline",
    ("", "", False): "none",
}
"""By the mean and the deviation of the normalization, and whether advantages are whitened."""


def read_max_length(_: Setting, settings: Settings) -> Setting | None:
    """The longest response; the agentic pipeline limits single turns and whole trajectories."""
    if is_agentic(settings):
        return None
    length, prompt = settings.get("response_length"), settings.get("prompt_length", 1024)
    if isinstance(length, int):
        return length
    whole = settings.get("sequence_length")
    return whole - prompt if isinstance(whole, int) and isinstance(prompt, int) else None


def read_prompts(setting: Setting, settings: Settings) -> Setting | None:
    """Prompts of a batch; the agentic pipeline counts trajectories."""
    size = settings.get("train_env_manager.group_size", 1) if is_agentic(settings) else 1
    if not isinstance(setting, int) or not isinstance(size, int) or size < 1:
        return None
    return max(1, setting // size)


def read_updates(setting: Setting, settings: Settings) -> Setting | None:
    """Updates per batch: as logged, or the responses of a rank divided by those of an update."""
    logged = settings.get(BACKWARD_STEPS)
    if isinstance(logged, int):
        return logged
    group = 1 if is_agentic(settings) else settings.get("num_return_sequences_in_group", 1)
    sizes = (
        settings.get("rollout_batch_size"),
        group,
        settings.get(f"{TRAINING}.per_device_train_batch_size"),
        settings.get(f"{TRAINING}.gradient_accumulation_steps"),
        setting,
        _data_parallel_size(settings),
    )
    known = [size for size in sizes if isinstance(size, int) and size > 0]
    if len(known) < len(sizes):
        return None
    prompts, group, device, accumulated, epochs, ranks = known
    return max(1, prompts * group // ranks * epochs // (device * accumulated))


def _data_parallel_size(settings: Settings) -> int | None:
    devices = _DEVICES.fullmatch(str(settings.get("actor_train.device_mapping", "")))
    if devices is None:
        return None
    count = int(devices[2]) - int(devices[1])
    if settings.get(f"{_TRAIN_STRATEGY}.strategy_name") == "megatron_train":
        sizes = [settings.get(f"{_TRAIN_STRATEGY}.strategy_config.{name}", 1) for name in _PARALLEL]
    else:
        sizes = [settings.get("actor_train.model_args.ulysses_size", 1)]
    for size in sizes:
        if not isinstance(size, int) or size < 1:
            return None
        count //= size
    return count if count >= 1 else None
