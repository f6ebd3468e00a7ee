"""The part of a run's config that may leave the machine: bounded, without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from grpodoctor.frameworks.run_config import flattened
from grpodoctor.support.safe_text import plain

MOST_ENTRIES = 150
_LONGEST_KEY = 120
_LONGEST_VALUE = 200
HIDDEN = "(hidden)"

_SECRET_KEY = re.compile(
    r"(secret|passwo?r?d|passphrase|credential|authorization|webhook|private_?key|cookie"
    r"|(api|access|auth|hub|hf|bearer|wandb|openai|azure|aws\w*)_?(key|token)"
    r"|(^|[./])token$)",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"((^|\W)(hf_|sk-|ghp_|gho_|github_pat_|xox[abpr]-|AKIA|wandb_v\d_)\w{8,}"
    r"|^bearer\s|://[^/\s:@]+:[^/\s@]+@|-----BEGIN)",
    re.IGNORECASE,
)


def public_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with dotted keys; values that look like secrets are hidden.

    Args:
        config: the framework's config, possibly nested.
    """
    entries = islice(flattened(config), MOST_ENTRIES)
    return {plain(key, limit=_LONGEST_KEY): _public(key, value) for key, value in entries}


def _public(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return HIDDEN if _SECRET_KEY.search(key) and not isinstance(value, bool) else value
    is_secret = value and (_SECRET_KEY.search(key) or _SECRET_VALUE.search(value))
    return HIDDEN if is_secret else plain(value, limit=_LONGEST_VALUE)
