"""The fields of a protobuf message, without its schema: what two binary logs are made of."""

from __future__ import annotations

from collections.abc import Iterator

_LONGEST_VARINT = 10
_FIXED = {1: 8, 5: 4}
"""Bytes of the wire types of fixed size."""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The number and the value of each field, in the order in which they stand.

    A varint is an int; text, bytes, nested messages and numbers of fixed size are bytes, which the
    caller must look at before it believes them.

    Raises:
        ValueError: if it is no message, or one that was cut short.
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
            raise ValueError(f"a field of unknown kind {kind}")
        if at + size > end:
            raise ValueError("a message that was cut short")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins there, seven bits a byte, and where it ends."""
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
        raise ValueError("a message that was cut short") from None
    raise ValueError("a number without an end")


def text_of(value: int | bytes) -> str:
    """The text that a field is; nothing if it is none."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
