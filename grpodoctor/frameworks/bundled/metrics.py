"""The bundled trainer. Its recorder writes canonical metrics, so no key needs a translation."""

from __future__ import annotations

from grpodoctor.frameworks.bundled.knobs import KNOBS
from grpodoctor.frameworks.framework import Framework

FRAMEWORK = Framework(
    name="grpodoctor", title="grpodoctor", aliases=("bundled",), knobs=KNOBS
)
