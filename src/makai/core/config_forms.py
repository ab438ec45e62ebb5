"""What may be written at a key of config.toml, from the types of its struct: for the hints of errors, and to tell a key
that is not set from one that does not exist. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

File: TypeAlias = type[msgspec.Struct]
"""What the file holds: `Config`, or `ProjectConfig`."""


def choices_of(keys: Sequence[str], file: File) -> tuple[str, ...]:
    """The values that may be written at a key, in the order of their type; empty when they cannot be listed."""
    structs = [kind for kind in kinds_at(keys[:-1], file) if isinstance(kind, inspect.StructType)]
    types = [
        get_type_hints(kind.cls)[field.name]
        for kind in structs
        for field in kind.fields
        if field.encode_name == keys[-1]
    ]
    return tuple(choice for each in types for choice in _literal_values(each))


def _literal_values(annotation: Any) -> list[str]:
    """Of a `Literal`, or of those in a union. The values that msgspec's own inspection gives are sorted."""
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    if get_origin(annotation) in (Union, UnionType):
        return [value for each in get_args(annotation) for value in _literal_values(each)]
    return []


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
