"""A sixteenth set of inputs: 36 faults and 10 healthy sets, in proportion to what users report.

The sources are issue threads of TRL, open-r1, verl, ms-swift and Unsloth. The author had not read
the checks. The accepted answer of each case was written before its first run.
"""

from __future__ import annotations

from tests.preflight.planted.cases import Case
from tests.preflight.planted.thirteenth_data import data_faults
from tests.preflight.planted.thirteenth_healthy import thirteenth_healthy
from tests.preflight.planted.thirteenth_rewards import reward_faults
from tests.preflight.planted.thirteenth_settings import settings_faults

__all__ = ["thirteenth_faults", "thirteenth_healthy"]


def thirteenth_faults() -> tuple[Case, ...]:
    """Thirty-six faults."""
    return (*reward_faults(), *data_faults(), *settings_faults())
