"""A report as one HTML file that opens offline: own style, plotly.js inside, nothing loaded."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from grpodoctor.report.view import Charts, View, full_blocks, spans
from grpodoctor.support.safe_text import plain

_PLOT_CONFIG = '{"displaylogo":false,"responsive":true,"displayModeBar":false}'


def render(view: View) -> str:
    """The report as an HTML document."""
    charts = _ChartScripts()
    body = _environment().get_template("body.html").render(view=view, place_charts=charts.place)
    scripts = charts.scripts()
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=plain(view.page_title, limit=160),
            body=Markup(body),  # noqa: S704 - rendered with autoescape
            scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own scripts
            policy=_content_security_policy(scripts),
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
    environment.filters["full"] = full_blocks
    environment.filters["spans"] = spans
    return environment


def _finalize(value: Any) -> Any:
    """Remove control characters from every text that a template prints; Jinja escapes the rest."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else _visible(value)


def _visible(text: str) -> str:
    return plain(text, lines=True)


def _content_security_policy(scripts: Sequence[str]) -> str:
    """Allow these scripts and nothing else: no network, and no script from a log."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:"
    return f"{policy}; script-src {allowed}" if allowed else policy


class _ChartScripts:
    """Collects the script that draws the charts of a page."""

    def __init__(self) -> None:
        self._calls: list[str] = []

    def place(self, charts: Charts) -> list[tuple[str, str]]:
        """Element id and caption of each chart; the script draws into these elements."""
        from plotly.io import to_json

        places = []
        for caption, figure in charts.figures:
            element = f"chart-{len(self._calls)}"
            data = to_json(figure, validate=False, engine="json")
            data = data.replace("<", "\\u003c")  # no text in the data can close the script
            self._calls.append(f'draw("{element}",{data});')
            places.append((element, caption))
        return places

    def scripts(self) -> list[str]:
        """The scripts of the page; none if it has no charts."""
        if not self._calls:
            return []
        from plotly.offline import get_plotlyjs

        draw = f"const draw=(id,f)=>Plotly.newPlot(id,f.data,f.layout,{_PLOT_CONFIG});"
        return [get_plotlyjs(), draw + "".join(self._calls)]
