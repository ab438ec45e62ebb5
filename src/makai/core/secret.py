"""A string that cannot be printed: everything that prints, formats, pickles or JSON-encodes it gets the mask."""

from __future__ import annotations

import hmac
from typing import NoReturn

MASK = "[secret]"


class Secret:
    """A credential. Compare with `matches` (constant time); read with `reveal` where it leaves the process."""

    __slots__ = ("_value",)
    _value: str

    def __init__(self, value: str) -> None:
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """The secret itself. Call it only where the value is put into an outgoing request or a 0600 file."""
        return self._value

    def matches(self, candidate: str) -> bool:
        """Whether `candidate` is the secret, without telling by timing how much of it was right."""
        return hmac.compare_digest(self.reveal().encode(), candidate.encode())

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.matches(other.reveal())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return MASK

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret is immutable")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled")
