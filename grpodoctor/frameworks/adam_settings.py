"""Rows for the settings of Adam."""

from __future__ import annotations

from grpodoctor.frameworks.knob_mapping import KnobMapping, Reader
from grpodoctor.frameworks.written_settings import Lines, Raw, Settings
from grpodoctor.vocabulary.knobs import Setting

_BETAS = 2


def adam(beta1: str, beta2: str, epsilon: str = "") -> tuple[KnobMapping, ...]:
    """Rows for a framework that has a key for each beta, and perhaps one for epsilon."""
    betas = (KnobMapping("adam_beta1", beta1), KnobMapping("adam_beta2", beta2))
    return (*betas, KnobMapping("adam_epsilon", epsilon)) if epsilon else betas


def adam_betas(betas: str) -> tuple[KnobMapping, ...]:
    """Rows for a framework whose key holds both betas; a config is read with the pair as text."""
    return (
        KnobMapping("adam_beta1", betas, read=_part(0)),
        KnobMapping("adam_beta2", betas, read=_part(1)),
    )


def default_adam(beta1: str, beta2: str, epsilon: str = "") -> KnobMapping:
    """The row of the usual settings, for a framework that has a key for each beta."""
    of_epsilon = {epsilon: 1e-8} if epsilon else {}
    return KnobMapping("default_adam", write={beta1: 0.9, beta2: 0.999, **of_epsilon})


def default_adam_betas(betas: str, others: Lines | None = None) -> KnobMapping:
    """The row of the usual settings, for a framework whose key holds both betas."""
    return KnobMapping("default_adam", write={betas: Raw("[0.9,0.999]"), **(others or {})})


def _part(index: int) -> Reader:
    """A reader of one number of a pair."""

    def read(setting: Setting, _: Settings) -> Setting | None:
        numbers = str(setting).strip("[]()").replace(",", " ").split()
        try:
            return float(numbers[index]) if len(numbers) == _BETAS else None
        except ValueError:
            return None

    return read
