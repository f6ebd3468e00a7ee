"""A preset in the settings of another framework, and what that framework lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from grpodoctor.frameworks.bundled.knobs import KEYS
from grpodoctor.frameworks.framework import Framework
from grpodoctor.frameworks.knob_mapping import SettingLine, format_setting
from grpodoctor.frameworks.run_config import flattened
from grpodoctor.frameworks.settings import framework_settings
from grpodoctor.trainer.config.presets import Preset
from grpodoctor.trainer.config.train_config import load_config
from grpodoctor.vocabulary.knobs import Setting
from grpodoctor.vocabulary.plain_names import plain_name

_KNOBS = {key: knob for knob, key in KEYS.items()}

_METHODS = {
    "critic.pretrain_steps": "critic_pretraining",
    "loss.divergence_limit": "divergence_limit",
    "loss.drift_penalty": "drift_penalty",
    "loss.kl_estimator": "kl_estimator",
    "repetition.penalty": "repetition_penalty",
    "reweighting.alpha": "advantage_reweighting",
    "reweighting.forking_share": "forking_tokens",
    "reweighting.lopti_threshold": "lopti",
}
"""Keys of the bundled trainer that have a method setting."""

_IN_WORDS = {
    "advantage.gae_alpha": "alpha of a GAE lambda that grows with the response, 1 - 1 / (alpha x "
    "length)",
    "advantage.whiten": "GAE advantages scaled to mean 0 and standard deviation 1 over the batch",
    "critic.gae_lambda": "GAE lambda of the critic's target returns",
    "critic.value_clip": "largest change of a value on one batch",
    "difficulty.retire_at": "pass rate at which a prompt is never drawn again",
    "loss.decay_negative": "lambda of the VESPO weight for negative advantages",
    "loss.decay_positive": "lambda of the VESPO weight for positive advantages",
    "loss.kl_placement": "where the KL penalty is subtracted",
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
    "overlong.weight": "weight of the soft overlong punishment",
    "rollout.filter_groups": "groups without reward variance left out of the loss and of its "
    "denominators",
    "rollout.refill": "groups that dynamic sampling draws again",
    "rollout.variance_of": "what must vary within a group that dynamic sampling keeps",
}
"""Keys of the bundled trainer without a common name, for readers who use another framework."""

_IMPLIED = ("correction.floor",)
"""Keys that other frameworks set together with the correction."""


@dataclass(frozen=True, slots=True)
class TranslatedPreset:
    """A preset as a framework's settings."""

    settings: tuple[SettingLine, ...]
    """Lines to paste."""
    by_itself: tuple[str, ...]
    """What the framework does without a setting, or what must be omitted."""
    lacking: tuple[str, ...]
    """What the framework has no setting for, with what to do instead."""
    untranslated: tuple[str, ...]
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


def translate(preset: Preset, framework: Framework) -> TranslatedPreset:
    """Write a preset as the settings of a framework."""
    assigned = _assigned(preset)
    changes = {
        name: value
        for key, value in assigned.items()
        if (name := _KNOBS.get(key) or _METHODS.get(key))
    }
    lines = framework_settings(changes, framework.name, changes)
    refusal = f"{framework.knobs.title} has no setting for "
    notes = [line.note for line in lines if not line.key]
    return TranslatedPreset(
        settings=tuple(line for line in lines if line.key),
        by_itself=tuple(note for note in notes if not note.startswith(refusal)),
        lacking=tuple(_lacking(changes, framework, refusal)),
        untranslated=tuple(
            _in_words(key, value)
            for key, value in assigned.items()
            if key not in _KNOBS and key not in _METHODS and key not in _IMPLIED
        ),
    )


def _assigned(preset: Preset) -> dict[str, Setting]:
    """The preset's settings and its loss's denominator, without the bundled trainer's defaults."""
    config = dict(flattened(load_config(preset.settings).model_dump()))
    defaults = dict(flattened(load_config().model_dump()))
    own = dict(flattened(preset.settings))
    if "loss.kind" in own:
        own["loss.aggregation"] = config["loss.aggregation"]
    return {key: value for key, value in own.items() if key in _KNOBS or defaults.get(key) != value}


def _in_words(key: str, value: Setting) -> str:
    """A setting that other frameworks spell differently, if they have it."""
    words = _IN_WORDS.get(key, key)
    return words if value is True else f"{words}: {format_setting(value)}"


def _lacking(changes: Mapping[str, Setting], framework: Framework, refusal: str) -> Iterator[str]:
    for name, value in changes.items():
        lines = framework_settings({name: value}, framework.name, changes)
        for line in lines:
            if line.note.startswith(refusal) and not line.key:
                yield line.note.removeprefix(refusal).replace(name, plain_name(name), 1)
