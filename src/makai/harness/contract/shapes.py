"""How values of the contract become JSON and come back (DM-SPEC-001, DM-ENDP-010).

A field with a plain default is left out of the JSON while it has it; `always` marks fields that are written even then.
Variables that a process gets but no reader may see are `HiddenVariables`, which no encoder accepts: `encode` leaves
them out, and a value that is passed to another encoder raises instead of showing them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, TypeVar

import msgspec

from makai.core.errors import ParseError
from makai.core.secret import MASK

T = TypeVar("T")
Shaped = TypeVar("Shaped", bound="ContractShape")
_MASKED: Final = frozenset({"env", "env_provided", "headers"})


def always(make: Callable[[], T]) -> T:
    """The default of a field that is written to JSON whatever its value: `always(bool)` is a false one."""
    # msgspec omits a default by its identity, and knows the types `dict`, `list` and `set` but no other function.
    return msgspec.field(default_factory=lambda: make())


class HiddenVariables(Mapping[str, str]):
    """Environment variables by name. Neither `repr` nor any encoder shows their values."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"HiddenVariables({', '.join(sorted(self._values))})"


NO_VARIABLES: Final = HiddenVariables({})


def hidden(values: Mapping[str, str]) -> HiddenVariables:
    """`values`, or `NO_VARIABLES` itself when there are none: encoders omit a default by its identity."""
    if not values:
        return NO_VARIABLES
    return values if isinstance(values, HiddenVariables) else HiddenVariables(values)


class ContractShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of every value of the contract."""

    NEVER_READ: ClassVar[frozenset[str]] = frozenset()
    """Names that mean nothing in JSON, although a field has them."""

    def __repr__(self) -> str:
        """As of any Struct, but with the names of variables and headers instead of their values."""
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__)
        shown = (f"{name}={dict.fromkeys(value, MASK) if name in _MASKED else value!r}" for name, value in fields)
        return f"{type(self).__name__}({', '.join(shown)})"

    def public(self: Shaped) -> Shaped:
        """This value without what is never serialized."""
        return self


def encode(value: ContractShape) -> bytes:
    """The JSON of a value of the contract, without what is never serialized."""
    return msgspec.json.encode(value.public())


def decode(data: bytes | str, kind: type[Shaped]) -> Shaped:
    """The value of JSON that `encode`, or another implementation of the contract, wrote. Null means unset, also for
    objects and lists: some writers have no other way to write an empty one. Unknown fields are ignored."""
    return shape_from(decode_object(data), kind)


def decode_object(data: bytes | str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ParseError(f"This is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ParseError("Expected a JSON object.")
    return value


def shape_from(value: Mapping[str, Any], kind: type[Shaped]) -> Shaped:
    known = {name: part for name, part in value.items() if part is not None and name not in kind.NEVER_READ}
    try:
        return msgspec.convert(known, kind).public()
    except msgspec.ValidationError as error:
        raise ParseError(f"This is not a {kind.__name__}: {error}.") from error
