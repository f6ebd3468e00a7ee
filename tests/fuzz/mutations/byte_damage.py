"""Damage to any file: bytes changed, cut out, put in, repeated."""

from __future__ import annotations

import random

_ODD = (b"\0", b"\xff" * 8, b"\x7f" * 4, b"\n", b"\r\n", b'"', b"{", b"}]", b"\xef\xbb\xbf",
        b"\xed\xa0\x80", b"NaN", b"1e999", b"-0", b"9" * 400, b"%s%n", b"\x1b[2J", b"../", b"'",
        b",", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01")  # fmt: skip
"""Bytes at which parsers go wrong: ends, quotes, marks, overlong and impossible numbers."""


def damaged(rng: random.Random, sound: bytes) -> bytes:
    """The bytes of a file with one to six damages."""
    data = bytearray(sound)
    for _ in range(rng.randint(1, 6)):
        rng.choice(_DAMAGES)(rng, data)
    return bytes(data)


def _flip(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))


def _cut(rng: random.Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    del data[at : at + rng.randint(1, 64)]


def _insert(rng: random.Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.choice((rng.choice(_ODD), rng.randbytes(rng.randint(1, 32))))


def _overwrite(rng: random.Random, data: bytearray) -> None:
    at, odd = rng.randint(0, len(data)), rng.choice(_ODD)
    data[at : at + len(odd)] = odd


def _end(rng: random.Random, data: bytearray) -> None:
    del data[rng.randint(0, len(data)) :]


def _repeat(rng: random.Random, data: bytearray) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = data[at : at + rng.randint(1, 200)] * rng.randint(1, 20)


def _move(rng: random.Random, data: bytearray) -> None:
    start, to = rng.randint(0, len(data)), rng.randint(0, len(data))
    part = data[start : start + rng.randint(1, 100)]
    data[to : to + len(part)] = part


_DAMAGES = (_flip, _set, _cut, _insert, _overwrite, _end, _repeat, _move)
