"""The `loss` section: its settings class depends on `loss.kind`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from grpodoctor.errors import ConfigError
from grpodoctor.trainer.algorithms.losses.settings import LossConfig
from grpodoctor.trainer.algorithms.names import check_variant, names
from grpodoctor.trainer.algorithms.registry import loss_settings_of
from grpodoctor.trainer.config.presets import preset_names

_DEFAULT = "ppo_clip"


@lru_cache
def loss_settings() -> Mapping[str, type[LossConfig]]:
    """The settings class of every registered loss by name."""
    return {name: loss_settings_of(name) for name in names("losses")}


def loss_fields() -> tuple[str, ...]:
    """Every setting of at least one loss."""
    return tuple(
        dict.fromkeys(field for loss in loss_settings().values() for field in loss.model_fields)
    )


def loss_config(fields: Mapping[str, Any]) -> LossConfig:
    """The settings of the loss that `fields["kind"]` names, `ppo_clip` by default.

    Raises:
        ConfigError: if the loss is unknown, or a setting belongs to other losses.
        ValidationError: (pydantic) if a setting is unknown or out of bounds.
    """
    kind = str(fields.get("kind", _DEFAULT))
    if kind not in names("losses") and kind in preset_names():
        raise ConfigError(
            f"{kind} is a preset, not a loss", where="loss.kind", remedy=f"use --preset {kind}"
        )
    check_variant("losses", kind)
    for field in fields:
        owners = [name for name, loss in loss_settings().items() if field in loss.model_fields]
        if owners and kind not in owners:
            raise ConfigError(
                f"the loss {kind} has no setting {field}",
                where=f"loss.{field}",
                remedy=f"remove it; it belongs to {', '.join(owners)}",
            )
    return loss_settings_of(kind).model_validate(fields)


def kept_under_another_loss(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a lower layer that stay valid under the loss that a higher layer names.

    Another loss starts from its own settings and denominator, because a clip width that fits one
    loss does not fit another. Settings that every loss has, such as penalties, are kept.
    """
    kind = below.get("kind", _DEFAULT)
    if above.get("kind", kind) == kind:
        return dict(below)
    shared = LossConfig.model_fields.keys() - {"kind", "aggregation"}
    return {field: value for field, value in below.items() if field in shared}
