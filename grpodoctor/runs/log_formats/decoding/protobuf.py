"""Parsing protobuf messages without a schema, for the two binary log formats."""

from __future__ import annotations

from collections.abc import Iterator

_LONGEST_VARINT = 10
_FIXED = {1: 8, 5: 4}
"""Bytes of the wire types of fixed size."""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field, in order.

    A varint is an int. Text, bytes, nested messages and numbers of fixed size are bytes, which the
    caller must validate.

    Raises:
        ValueError: if the bytes are not a message, or a truncated one.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise ValueError(f"a field with unknown wire type {kind}")
        if at + size > end:
            raise ValueError("a truncated message")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Parse a number of seven bits per byte; return it and its end."""
    try:
        if message[at] < 0x80:
            return message[at], at + 1
        value = 0
        for place in range(_LONGEST_VARINT):
            byte = message[at + place]
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value & (1 << 64) - 1, at + place + 1
    except IndexError:
        raise ValueError("a truncated message") from None
    raise ValueError("a varint that is too long")


def text_of(value: int | bytes) -> str:
    """Decode a field as text; empty if it is a number."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
