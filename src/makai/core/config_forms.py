"""What may be written at a key of config.toml, from the types of its struct: for the hints of errors, and to tell a key
that is not set from one that does not exist. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec import inspect

File: TypeAlias = type[msgspec.Struct]
"""What the file holds: `Config`, or `ProjectConfig`."""


def choices_of(keys: Sequence[str], file: File) -> tuple[str, ...]:
    """The values that may be written at a key; empty when they cannot be listed."""
    literals = [kind for kind in kinds_at(keys, file) if isinstance(kind, inspect.LiteralType)]
    return tuple(str(value) for kind in literals for value in kind.values)


def expected_form(keys: Sequence[str], file: File) -> str:
    """What may be written at a key, as the end of a sentence; "" where the type alone says enough."""
    if choices := choices_of(keys, file):
        return f"is one of {', '.join(choices)}."
    if any(isinstance(kind, inspect.VarTupleType) for kind in kinds_at(keys, file)):
        return 'is a list: ["first", "second"].'
    return "is true or false." if any(isinstance(kind, inspect.BoolType) for kind in kinds_at(keys, file)) else ""


def kinds_at(keys: Sequence[str], file: File) -> list[inspect.Type]:
    """The types that a key may have; empty when there is no such key."""
    kinds = [inspect.type_info(file)]
    for key in keys:
        kinds = [one for kind in kinds for one in _kinds_within(kind, key)]
    return kinds


def _kinds_within(kind: inspect.Type, key: str) -> list[inspect.Type]:
    match kind:
        case inspect.StructType(fields=fields):
            found = [field.type for field in fields if field.encode_name == key]
        case inspect.DictType(value_type=value):
            found = [value]
        case _:
            found = []
    return [one for each in found for one in (each.types if isinstance(each, inspect.UnionType) else (each,))]
