"""The contract of the engine programs, imported from `probes/contract/`.

The programs run in Pythons that lack grpodoctor, so the contract lies next to them and needs only
numpy. The probe loads the same files by path: sampling settings and shards have one definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpodoctor.support.programs import load_package

if TYPE_CHECKING:
    from contract import *  # noqa: F403 - the names in its __all__
else:
    _contract = load_package("probes", "contract")
    globals().update({name: getattr(_contract, name) for name in _contract.__all__})
