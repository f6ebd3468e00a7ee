"""A preset in the settings of another framework, and what that framework lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from grpodoctor.frameworks.bundled.knobs import KEYS
from grpodoctor.frameworks.bundled.knobs import KNOBS as BUNDLED
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.knob_mapping import KnobTable, one_line_per_key
from grpodoctor.frameworks.run_config import flattened
from grpodoctor.frameworks.written_settings import SettingLine, format_setting
from grpodoctor.trainer.config.presets import Preset
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.plain_names import plain_name

_KNOBS = {key: knob for knob, key in KEYS.items()}

_METHODS = {
    "advantage.whiten": "whitened_advantages",
    "critic.gae_lambda": "gae_lambda",
    "critic.pretrain_steps": "critic_pretraining",
    "critic.value_clip": "value_clip",
    "loss.divergence_limit": "divergence_limit",
    "loss.drift_penalty": "drift_penalty",
    "loss.kl_estimator": "kl_estimator",
    "repetition.penalty": "repetition_penalty",
    "reweighting.alpha": "advantage_reweighting",
    "reweighting.forking_share": "forking_tokens",
    "reweighting.lopti_threshold": "lopti",
}
"""Keys of the bundled trainer that have a method setting."""

_OPTIONS = {
    "loss.decay_negative": "vespo_lambda_negative",
    "loss.decay_positive": "vespo_lambda_positive",
    "loss.log_clip": "log_clip",
    "loss.power_negative": "vespo_k_negative",
    "loss.power_positive": "vespo_k_positive",
    "loss.second_moment_limit": "second_moment_limit",
    "loss.tau_negative": "tau_negative",
    "loss.tau_positive": "tau_positive",
    "overlong.weight": "overlong_weight",
    "rollout.variance_of": "variance_of",
}
"""Keys of the bundled trainer that other frameworks set together with a knob's value."""

_OF_LOSS = {
    "loss.clip_low": "lower clip of the loss",
    "loss.clip_high": "upper clip of the loss",
    "loss.divergence_limit": "largest change of a token's probability before the loss masks it",
    "loss.drift_penalty": "weight of the squared log-ratio to the sampler",
}
"""Keys with the framework's own meaning for each loss, in words. For a framework without the loss
they are not translated: they would change the loss that runs instead."""

_IN_WORDS = {
    **_OF_LOSS,
    "correction.kind": "correction of the mismatch between the engines, besides the loss",
    "advantage.gae_alpha": "alpha of a GAE lambda that grows with the response, 1 - 1 / (alpha x "
    "length)",
    "advantage.whiten": "GAE advantages scaled to mean 0 and standard deviation 1 over the batch",
    "critic.gae_lambda": "GAE lambda of the critic's target returns",
    "critic.pretrain_steps": "steps in which only the critic learns",
    "critic.value_clip": "largest change of a value on one batch",
    "difficulty.retire_at": "pass rate at which a prompt is never drawn again",
    "loss.decay_negative": "lambda of the VESPO weight for negative advantages",
    "loss.decay_positive": "lambda of the VESPO weight for positive advantages",
    "loss.kl_estimator": "estimator of the KL penalty",
    "loss.log_clip": "bound on the log-ratio of a token",
    "loss.positive_nll": "weight of the negative log-likelihood of correct responses",
    "loss.power_negative": "k of the VESPO weight for negative advantages",
    "loss.power_positive": "k of the VESPO weight for positive advantages",
    "loss.ratio_cap": "largest weight of a token's ratio",
    "loss.second_moment_limit": "largest mean of the squared log-ratio of unmasked tokens",
    "loss.shift_floor": "smallest weight of a token's ratio for any router shift",
    "loss.tau_negative": "steepness of the gate for negative advantages",
    "loss.tau_positive": "steepness of the gate for positive advantages",
    "model.experts": "experts per layer",
    "optimizer.updates_per_batch": "optimizer steps per rollout batch",
    "overlong.weight": "weight of the soft overlong punishment",
    "repetition.penalty": "largest penalty on repeated 3-grams in the reward",
    "reweighting.alpha": "advantages scaled by 1 - alpha + alpha x the old probability, alpha",
    "reweighting.forking_share": "share of the tokens, by entropy, that keep their policy gradient",
    "reweighting.lopti_threshold": "probability below which tokens are updated first",
    "rollout.filter_groups": "groups without reward variance left out of the loss and of its "
    "denominators",
    "rollout.refill": "groups that dynamic sampling draws again",
    "rollout.variance_of": "dynamic sampling keeps groups that vary in",
}
"""Keys of the bundled trainer without a common name, for readers who use another framework."""

_DETAILS = {
    "overlong.kind": ("overlong.weight",),
    "rollout.dynamic_sampling": ("rollout.refill", "rollout.variance_of"),
}
"""Keys of methods, with those that say how the method is done. A framework without the method is
not asked about the details."""

_SIZES = ("group_size", "max_length", "overlong_buffer", "prompts_per_batch")
_BUFFER_SHARE = 0.2
"""Share of the length limit that DAPO (arXiv 2503.14476) punishes: 4,096 of 20,480 tokens."""

_IMPLIED = ("correction.floor", "loss.kl_placement")
"""Keys that other frameworks set together with the correction or the KL penalty."""


class _Consulted(dict[str, Setting]):
    """Knobs in force that remember which of them a framework's rows asked for."""

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        super().__init__(settings)
        self.asked = set[str]()

    def __getitem__(self, name: str) -> Setting:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a knob, or the default."""
        self.asked.add(name)
        return super().get(name, default)


@dataclass(frozen=True, slots=True)
class TranslatedPreset:
    """A preset as a framework's settings."""

    settings: tuple[SettingLine, ...]
    """Lines to paste."""
    by_itself: tuple[str, ...] = ()
    """What the framework does without a setting, or what must be omitted."""
    lacking: tuple[str, ...] = ()
    """What the framework has no setting for, with what to do instead."""
    untranslated: tuple[str, ...] = ()
    """Settings of the bundled trainer that have no common name, in words."""

    def to_json(self) -> dict[str, Any]:
        """The translation as JSON."""
        return {
            "settings": [
                {"key": line.key, "value": line.value, "note": line.note} for line in self.settings
            ],
            "by_itself": list(self.by_itself),
            "lacking": list(self.lacking),
            "untranslated": list(self.untranslated),
        }


def translate(
    preset: Preset, framework: Framework, run: Mapping[str, Setting] | None = None
) -> TranslatedPreset:
    """Write a preset as the settings of a framework.

    Args:
        preset: the preset.
        framework: whose settings.
        run: canonical knobs of the run that is to take the preset, as far as they are known. Where
            the preset leaves a size open, such as the length limit, the run's takes its place.
    """
    if framework.knobs is BUNDLED:
        pairs = (assignment.partition("=") for assignment in preset.assignments())
        return TranslatedPreset(tuple(SettingLine(key, value) for key, _, value in pairs))
    table = framework.knobs
    assigned = _assigned(preset, table)
    names = _names(assigned, table)
    for method, details in _DETAILS.items():
        if _is_refused(method, names, assigned, table):
            assigned = {key: assigned[key] for key in assigned if key not in details}
    changes = {name: assigned[key] for key, name in names.items()}
    options = {name: assigned[key] for key, name in _OPTIONS.items() if key in assigned}
    in_force = _Consulted({**_sizes(run or {}), **options, **changes})
    lines = one_line_per_key(
        line for name, value in changes.items() for line in table.lines(name, value, in_force)
    )
    written = {key for key, name in _OPTIONS.items() if name in in_force.asked}
    return TranslatedPreset(
        settings=tuple(line for line in lines if line.key),
        by_itself=tuple(x.note for x in lines if not x.key and not table.refusal(x)),
        lacking=tuple(_lacking(changes, table, in_force)),
        untranslated=tuple(
            _in_words(key, value)
            for key, value in assigned.items()
            if key not in {*names, *written, *_IMPLIED}
        ),
    )


def _sizes(run: Mapping[str, Setting]) -> dict[str, Setting]:
    """What settings of a preset depend on and only the run knows."""
    sizes = {name: run[name] for name in _SIZES if name in run}
    limit = sizes.get("max_length")
    if isinstance(limit, int) and "overlong_buffer" not in sizes:
        sizes["overlong_buffer"] = max(1, round(_BUFFER_SHARE * limit))
    return sizes


def _names(assigned: Mapping[str, Setting], table: KnobTable) -> dict[str, str]:
    """Of the keys that the framework's table has a row for, the names there."""
    names = {key: name for key, name in {**_KNOBS, **_METHODS}.items() if key in assigned}
    if assigned.get("loss.kl_coefficient"):
        place = f"kl_in_{assigned.get('loss.kl_placement', 'loss')}"
        if table.has_row(place):
            names["loss.kl_coefficient"] = place
    if _is_refused("loss.kind", names, assigned, table):
        for key in _belonging_to_loss(assigned):
            if key in names and not _is_refused(key, names, assigned, table):
                del names[key]
    return {key: names[key] for key in assigned if table.has_row(names.get(key, ""))}


def _belonging_to_loss(assigned: Mapping[str, Setting]) -> Collection[str]:
    """The settings that only make sense with the preset's loss."""
    keys = set(_OF_LOSS)
    if assigned.get("correction.kind") == "none":  # the loss itself is anchored on the sampler
        keys.add("correction.kind")
    if assigned.get("optimizer.updates_per_batch", 1) != 1:  # the loss bounds several updates
        keys.add("optimizer.updates_per_batch")
    return keys


def _is_refused(
    key: str, names: Mapping[str, str], assigned: Mapping[str, Setting], table: KnobTable
) -> bool:
    """Whether the framework has no setting for the preset's value of a key."""
    if key not in names:
        return False
    knobs = {name: assigned[each] for each, name in names.items()}
    return any(map(table.refusal, table.lines(names[key], assigned[key], knobs)))


def _assigned(preset: Preset, table: KnobTable) -> dict[str, Setting]:
    """The preset's settings and its loss's denominator, without the bundled trainer's defaults.

    Of these, one stays that the preset relies on, if the framework's own default is another.
    """
    config = dict(flattened(load_config(preset.settings).model_dump()))
    defaults = dict(flattened(load_config().model_dump()))
    own = {**dict(flattened(preset.settings)), **dict(flattened(preset.published))}
    if "loss.kind" in own:
        own["loss.aggregation"] = config["loss.aggregation"]
    if own.get("loss.kl_placement") == "reward":
        own.pop("loss.kl_estimator", None)  # k1, the only one that the reward takes
    for key in _relied_on(own):
        if table.defaults.get(_KNOBS[key], config[key]) != config[key]:
            own[key] = config[key]
    return {
        key: value
        for key, value in own.items()
        if key in _KNOBS or key in _OPTIONS or defaults.get(key) != value
    }


def _relied_on(own: Mapping[str, Setting]) -> Iterator[str]:
    """Settings that a preset leaves to the bundled trainer, and cannot do without."""
    has_group_baseline = own.get("advantage.kind", "none") not in ("gae", "none")
    if has_group_baseline and "rollout.group_size" not in own:
        yield "rollout.group_size"
    several_updates = own.get("optimizer.updates_per_batch", 1) != 1
    if several_updates and own.get("correction.kind") != "none":
        yield "engine.old_logprobs"


def _in_words(key: str, value: Setting) -> str:
    """A setting that other frameworks spell differently, if they have it."""
    words = _IN_WORDS.get(key, key)
    return words if value is True else f"{words}: {format_setting(value)}"


def _lacking(
    changes: Mapping[str, Setting], table: KnobTable, in_force: Mapping[str, Setting]
) -> Iterator[str]:
    for name, value in changes.items():
        for line in table.lines(name, value, in_force):
            if refusal := table.refusal(line):
                yield refusal.replace(name, plain_name(name), 1)
