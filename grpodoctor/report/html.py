"""A report as one HTML file that opens offline: own style, plotly.js packed inside, nothing loaded.

plotly.js and the charts are packed with gzip, and the browser unpacks them. The page
contains only the modules of plotly.js that its kinds of charts need.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from grpodoctor.report.plotly_bundle import bundle_for
from grpodoctor.report.references import linked_reference
from grpodoctor.report.view import Chart, Charts, View, code_parts, full_blocks, spans
from grpodoctor.support.safe_text import plain

_WORD_ENDS = re.compile(r"(?<=\w)([/_.]+)(?=[A-Za-z])")
"""Where a new word begins in a name such as `mismatch/prob_diff_mean` or `trainer.rollout.n`."""


@dataclass(frozen=True, slots=True)
class _PlacedChart:
    """A chart on the page."""

    id: str
    """Id of the element that it is drawn into."""
    chart: Chart

    @property
    def height(self) -> int:
        """Its height in pixels."""
        return int(self.chart.figure.layout.height)


def render(view: View) -> str:
    """The report as an HTML document."""
    charts = _PageCharts()
    body = _environment().get_template("body.html").render(view=view, place_charts=charts.place)
    script = _environment().get_template("charts.js").render() if charts.placed else ""
    library = bundle_for(_plotly(), charts.trace_types) if charts.placed else ""
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=plain(view.page_title, limit=160),
            body=Markup(body),  # noqa: S704 - rendered with autoescape
            library=_packed_library(library),
            charts=charts.packed(),
            script=Markup(script),  # noqa: S704 - our own script
            policy=_content_security_policy((library, script) if script else ()),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("grpodoctor.report"),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    environment.filters["code_parts"] = code_parts
    environment.filters["full"] = full_blocks
    environment.filters["spans"] = spans
    environment.filters["linked"] = linked_reference
    return environment


def _finalize(value: Any) -> Any:
    """Remove control characters from every text that a template prints; Jinja escapes the rest."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else _visible(value)


def breakable(text: str) -> Markup:
    """Text in which a browser may start a new line within long names, but not within their words.

    Metrics, settings and paths are longer than a narrow window. The break opportunities add no
    character to a text that is copied.
    """
    escaped = str(escape(_visible(text)))
    return Markup(_WORD_ENDS.sub(r"\1<wbr>", escaped))  # noqa: S704 - escaped above


def _visible(text: str) -> str:
    return plain(text, lines=True)


def _content_security_policy(scripts: Sequence[str]) -> str:
    """Allow these scripts and nothing else: no network, and no script from a log."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:"
    return f"{policy}; script-src {allowed}" if allowed else policy


class _PageCharts:
    """Collects the charts of a page."""

    def __init__(self) -> None:
        self.placed: list[_PlacedChart] = []

    def place(self, charts: Charts) -> list[_PlacedChart]:
        """The charts with the ids of their elements; the script draws into these elements."""
        first = len(self.placed)
        self.placed += [
            _PlacedChart(f"chart-{first + number}", chart)
            for number, chart in enumerate(charts.charts)
        ]
        return self.placed[first:]

    @property
    def trace_types(self) -> frozenset[str]:
        """The kinds of charts on the page."""
        return frozenset(trace.type for placed in self.placed for trace in placed.chart.figure.data)

    def packed(self) -> str:
        """All charts for the script; empty if there are none."""
        figures = [
            {"id": placed.id, **json.loads(placed.chart.figure.to_json(validate=False))}
            for placed in self.placed
        ]
        return _packed(json.dumps(figures)) if figures else ""


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    library: str = get_plotlyjs()
    return library


@cache
def _packed_library(library: str) -> str:
    return _packed(library) if library else ""


def _packed(text: str) -> str:
    """Text in gzip and base64."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
