"""Parsing TOML from outside: every fault of the text is one kind of error."""

from __future__ import annotations

from typing import Any


def parse_toml(text: bytes | str) -> dict[str, Any]:
    """Parse a TOML document, with or without a byte order mark.

    Raises:
        ValueError: if it is not UTF-8, not TOML, or nested too deeply; the message is one line.
    """
    import tomllib  # most runs have no TOML file

    try:
        return tomllib.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(" ".join(str(error).split())[:200]) from None
