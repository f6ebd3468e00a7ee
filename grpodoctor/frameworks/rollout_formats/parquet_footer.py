"""The sizes of a Parquet file's columns, from its footer.

pyarrow reports them too, but `RowGroupMetaData.column` ends the process (`std::terminate`, seen
with pyarrow 26.0.1) if statistics in a damaged footer contradict each other. Reading rows is safe:
it raises an error.

Formats: https://parquet.apache.org/docs/file-format/metadata/ and Thrift's compact protocol,
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

_LENGTH_BYTES = 4
_TAIL_BYTES = 8
_BYTE_ARRAY = 6
_MAX_DEPTH = 32
_MAX_FOOTER_BYTES = 256 * 1024 * 1024

# Numbers of fields in Parquet's definition of its footer.
_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3
_TYPE, _PATH, _VALUES, _DECODED_BYTES, _STORED_BYTES = 1, 3, 5, 6, 7


@dataclass(frozen=True, slots=True)
class ColumnSize:
    """A column of a row group, as the footer describes it."""

    path: tuple[str, ...]
    """The names from the top of the schema down to the column."""
    values: int
    """Number of entries, counted in lists."""
    decoded_bytes: int
    """Size of its pages before compression."""
    stored_bytes: int
    """Size of its pages in the file."""
    is_bytes: bool
    """Whether it stores texts or bytes."""


def column_sizes(file: BinaryIO) -> list[list[ColumnSize]]:
    """The sizes of each row group's columns.

    Args:
        file: a Parquet file, open for reading in any place.

    Raises:
        ValueError: if the footer is damaged.
        OSError: if the file cannot be read.
    """
    try:
        footer = _Decoder(_footer(file)).struct()
        return [
            [_column_size(chunk[_METADATA]) for chunk in group[_COLUMNS]]
            for group in footer.get(_ROW_GROUPS, ())
        ]
    except (IndexError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"damaged Parquet footer: {str(error)[:100]}") from error


def _footer(file: BinaryIO) -> bytes:
    size = file.seek(0, 2)
    file.seek(max(0, size - _TAIL_BYTES))
    tail = file.read(_TAIL_BYTES)
    length = int.from_bytes(tail[:_LENGTH_BYTES], "little")
    if len(tail) < _TAIL_BYTES or length > min(size - _TAIL_BYTES, _MAX_FOOTER_BYTES):
        raise ValueError(f"a Parquet footer of {length} bytes in a file of {size} bytes")
    file.seek(size - _TAIL_BYTES - length)
    return file.read(length)


def _column_size(metadata: Mapping[int, Any]) -> ColumnSize:
    return ColumnSize(
        path=tuple(name.decode("utf-8", "replace") for name in metadata[_PATH]),
        values=int(metadata[_VALUES]),
        decoded_bytes=int(metadata[_DECODED_BYTES]),
        stored_bytes=int(metadata[_STORED_BYTES]),
        is_bytes=metadata[_TYPE] == _BYTE_ARRAY,
    )


class _Decoder:
    """Values in Thrift's compact protocol, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._depth = 0

    def struct(self) -> dict[int, Any]:
        """A structure: its values by field number."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError(f"a Parquet footer of more than {_MAX_DEPTH} levels")
        fields: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._signed()
            kind = header & 15
            fields[number] = kind == 1 if kind in {1, 2} else self._value(kind)
        self._depth -= 1
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2:  # in a list, a truth value takes a byte
                return self._byte() == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._varint())
            case 9 | 10:
                return self._list()
            case 11:
                return self._map()
            case 12:
                return self.struct()
        raise ValueError(f"a value of unknown type {kind} in a Parquet footer")

    def _list(self) -> list[Any]:
        header = self._byte()
        count = self._count(self._varint() if header >> 4 == 15 else header >> 4)
        return [self._value(header & 15) for _ in range(count)]

    def _map(self) -> list[Any]:
        count = self._count(self._varint())
        kinds = self._byte() if count else 0
        return [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(count)]

    def _count(self, count: int) -> int:
        if count > len(self._data) - self._at:  # each entry takes a byte at least
            raise ValueError(f"{count} entries in a Parquet footer of {len(self._data)} bytes")
        return count

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _bytes(self, size: int) -> bytes:
        value = self._data[self._at : self._at + self._count(size)]
        self._at += size
        return value

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) > 127:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _signed(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
