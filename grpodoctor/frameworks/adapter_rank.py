"""Readers of the rank of LoRA adapters, for frameworks that train all weights by default."""

from __future__ import annotations

from collections.abc import Mapping

from grpodoctor.frameworks.knob_mapping import Reader
from grpodoctor.frameworks.written_settings import Settings
from grpodoctor.vocabulary.knobs import Setting


def rank_if_enabled(ranks: Mapping[str, str], default: int | None = None) -> Reader:
    """A reader for adapters that a switch enables; 0 if all switches are off or missing.

    Args:
        ranks: the key of the rank by the key of its switch.
        default: the framework's rank where the config lacks it; None if it has none.
    """

    def read(_: Setting, settings: Settings) -> Setting | None:
        for switch, rank in ranks.items():
            if settings.get(switch):
                return settings.get(rank, default)
        return 0

    return read


def rank_of_any(*keys: str, unknown_with: str = "") -> Reader:
    """A reader for adapters that a positive rank enables; 0 if all ranks are 0 or missing.

    Args:
        keys: the keys of the rank, by version or by backend.
        unknown_with: the key of an adapter to load, whose rank the config does not contain.
    """

    def read(_: Setting, settings: Settings) -> Setting | None:
        rank = next((settings[key] for key in keys if settings.get(key)), 0)
        return None if not rank and settings.get(unknown_with) else rank

    return read
