"""Arrays as parameters, in PostgreSQL's binary form. One call packs a whole array; psycopg's own way for lists handles
each element by itself, and chooses the type of an array of integers by their sizes, which makes other statements."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from psycopg import AsyncConnection
from psycopg.abc import Buffer
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEADER: Final = struct.Struct(">iiIii")
_NULL: Final = struct.pack(">i", -1)
_BOOL, _BYTEA, _INT8, _TEXT = 16, 17, 20, 25


class _Array(msgspec.Struct, frozen=True, eq=False):
    data: bytes


class BoolArray(_Array, frozen=True, eq=False):
    pass


class ByteaArray(_Array, frozen=True, eq=False):
    pass


class Int8Array(_Array, frozen=True, eq=False):
    pass


class TextArray(_Array, frozen=True, eq=False):
    pass


def bools(values: Sequence[bool]) -> BoolArray:
    return BoolArray(
        _header(_BOOL, len(values)) + b"".join([b"\0\0\0\1\1" if value else b"\0\0\0\1\0" for value in values])
    )


def integers(values: Sequence[int]) -> Int8Array:
    pairs = [8] * (2 * len(values))
    pairs[1::2] = values
    return Int8Array(_header(_INT8, len(values)) + struct.pack(">" + "iq" * len(values), *pairs))


def blobs(values: Sequence[bytes]) -> ByteaArray:
    parts = [_header(_BYTEA, len(values))]
    for value in values:
        parts += (len(value).to_bytes(4, "big"), value)
    return ByteaArray(b"".join(parts))


def texts(values: Sequence[str | None]) -> TextArray:
    parts = [_header(_TEXT, len(values))]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            data = value.encode()
            parts += (len(data).to_bytes(4, "big"), data)
    return TextArray(b"".join(parts))


def _header(oid: int, length: int) -> bytes:
    # Dimensions, "may have nulls", type, length, number of the first element.
    return _HEADER.pack(1, 1, oid, length, 1)


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: _Array) -> Buffer | None:
        return obj.data


class _BoolDumper(_ArrayDumper):
    oid = 1000


class _ByteaDumper(_ArrayDumper):
    oid = 1001


class _Int8Dumper(_ArrayDumper):
    oid = 1016


class _TextDumper(_ArrayDumper):
    oid = 1009


_DUMPERS: Final = {
    BoolArray: _BoolDumper,
    ByteaArray: _ByteaDumper,
    Int8Array: _Int8Dumper,
    TextArray: _TextDumper,
}


def register(connection: AsyncConnection[Any]) -> None:
    for kind, dumper in _DUMPERS.items():
        connection.adapters.register_dumper(kind, dumper)
