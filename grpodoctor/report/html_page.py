"""What every HTML file of ours is made of: one file that opens offline and loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpodoctor.report.style import CSS
from grpodoctor.support.safe_text import html as safe

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_PLOT_CONFIG = '{"displaylogo":false,"responsive":true,"displayModeBar":false}'


def document(title: str, body: str, scripts: Sequence[str]) -> str:
    """An HTML document that runs the given scripts and no other.

    Args:
        title: of the window, as text.
        body: HTML, everything hostile in it escaped already.
        scripts: JavaScript.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{safe(title, limit=160)}</title><style>{CSS}</style></head>"
        f"<body><main>{body}</main>"
        + "".join(f"<script>{script}</script>" for script in scripts)
        + "</body></html>\n"
    )


def _policy(scripts: Sequence[str]) -> str:
    """Let run what we wrote and nothing else: no network, and no script that slipped in."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:"
    return f"{policy}; script-src {allowed}" if allowed else policy


class Pictures:
    """The pictures of a page, which may stand in several places of it."""

    def __init__(self) -> None:
        self._calls: list[str] = []

    def place(self, drawn: Sequence[tuple[str, Figure]], *, wide: int = 0) -> str:
        """The HTML that holds some pictures; empty where there is none.

        Args:
            drawn: caption and figure of each.
            wide: pixels that each needs, which stand below one another then; 0 sets them in columns
                as wide as the page allows.
        """
        if not drawn:
            return ""
        from plotly.io import to_json

        places = []
        for title, figure in drawn:
            name = f"picture-{len(self._calls)}"
            caption = f"<figcaption>{safe(title)}</figcaption>"
            room = f' style="min-width:{wide}px"' if wide else ""
            places.append(f'<figure>{caption}<div{room} id="{name}"></div></figure>')
            data = to_json(figure, validate=False, engine="json")
            data = data.replace("<", "\\u003c")  # no text in it can end or open a script
            self._calls.append(f'draw("{name}",{data});')
        kind = "pictures wide" if wide else "pictures"
        return f'<div class="{kind}">{"".join(places)}</div>'

    def scripts(self) -> list[str]:
        """What draws all that was placed."""
        if not self._calls:
            return []
        from plotly.offline import get_plotlyjs

        draw = f"const draw=(id,f)=>Plotly.newPlot(id,f.data,f.layout,{_PLOT_CONFIG});"
        return [get_plotlyjs(), draw + "".join(self._calls)]


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numeric: frozenset[int] = frozenset()
) -> str:
    """A table of cells that are HTML already; `numeric` columns are set flush right."""
    classes = ['class="number"' if column in numeric else "" for column in range(len(head))]
    titles = "".join(f"<th {kind}>{title}</th>" for kind, title in zip(classes, head, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td {kind}>{cell}</td>" for kind, cell in zip(classes, row, strict=True))
        + "</tr>"
        for row in rows
    )
    rows_of = f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="table"><table>{rows_of}</table></div>'
