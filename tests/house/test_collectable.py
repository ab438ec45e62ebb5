"""What the garbage collector does not look through must not be part of a cycle: it would never be freed.

A Struct with `gc=False` is invisible to the collector. That is right for plain data, which cannot refer to itself. One
that held a future leaked every refused command with the connection that had sent it: the future has the exception, the
exception its traceback, and a frame of that has the Struct.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import types
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

import makai

PLAIN = (str, int, float, bool, bytes, type(None), msgspec.Raw, msgspec.UnsetType, Enum)
CONTAINERS = (tuple, list, dict, set, frozenset, Sequence, Mapping, Union, types.UnionType)


class Holder(msgspec.Struct, gc=False):
    """The kind of mistake that the rule is about."""

    waiter: asyncio.Future[None] | None = None


def uncollectable() -> Iterator[type[msgspec.Struct]]:
    """Every Struct of the package that the collector does not look through."""
    for module in pkgutil.walk_packages(makai.__path__, "makai."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    pending = [msgspec.Struct]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if kind.__module__.startswith("makai.") and not kind.__struct_config__.gc:
            yield kind


def is_data(kind: Any, trusted: frozenset[type] = frozenset()) -> bool:
    """Whether values of a type are trees of texts and numbers. `Any` stands for what a JSON decoder makes."""
    origin = get_origin(kind)
    if origin is Literal or kind is Any:
        return True
    if origin is not None:
        inner = (each for each in get_args(kind) if each is not Ellipsis)
        is_known = origin in CONTAINERS or not isinstance(origin, type)  # such as Annotated
        return is_known and all(is_data(each, trusted) for each in inner if not isinstance(each, msgspec.Meta))
    if not isinstance(kind, type):
        return False
    if kind in trusted or issubclass(kind, PLAIN):
        return True
    if not issubclass(kind, msgspec.Struct):
        return False
    fields = get_type_hints(kind, include_extras=True)
    return all(is_data(fields[name], trusted | {kind}) for name in kind.__struct_fields__)


def test_a_struct_that_the_collector_skips_holds_plain_data_only() -> None:
    found = list(uncollectable())

    assert len(found) > 20
    assert [kind.__qualname__ for kind in found if not is_data(kind)] == []


def test_a_struct_with_a_future_is_no_plain_data() -> None:
    assert not is_data(Holder)
