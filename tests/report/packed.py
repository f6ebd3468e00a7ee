"""What the scripts of an HTML report unpack."""

import base64
import gzip
import re


def unpacked(page: str, element: str) -> str:
    """The text packed in a script element of a page."""
    (packed,) = re.findall(rf'<script type="text/plain" id="{element}">([^<]*)</script>', page)
    return gzip.decompress(base64.b64decode(packed)).decode()


def packed_charts(page: str) -> str:
    """The charts of a page, as JSON."""
    return unpacked(page, "packed-charts")
