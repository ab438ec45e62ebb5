"""Mutated frames of ACP for either side, the same ones for the same seed."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TypeAlias

from makai.core.errors import ParseError
from makai.wire import strict_json
from support.acp_examples import definitions, shapes

JSON: TypeAlias = Any
Side: TypeAlias = Literal["agent", "client"]

CODES: Final = frozenset({-32700, -32600, -32601, -32602, -32603, -32000, -32002, -32800})
"""What may be answered with."""

_ODD_VALUES: Final[tuple[JSON, ...]] = (
    None, True, False, 0, -1, 2**31, 2**63, 2**64, 10**400, 0.5, 1e308, "", "x", "\0", "\ud800", "\u202e", "../..", "/",
    "/etc/passwd", "~", "x" * 5_000, [], {}, [[]], {"": None}, [None] * 100, {"_meta": {"sessionId": "other"}},
)  # fmt: skip
_ODD_IDS: Final[tuple[JSON, ...]] = (None, True, 0.5, 1e300, [], {}, "", "x" * 2_000, -1, 2**70)
_ODD_BYTES: Final = (
    b"\0",
    b"\xff",
    b"\xed\xa0\x80",
    b"\r",
    b"\n",
    b"\\u0000",
    b"NaN",
    b"1e999",
    b"{",
    b"]",
    b",",
    b'"',
)


_OWN_ID: Final = re.compile(r"fuzz-\d{6}")
"""All have one length: what is left of an id that lost a character is not the id of another frame."""


def messages(side: Side) -> list[JSON]:
    """One message of each kind that `side` receives, with the members that the schema knows, and its answers."""
    found: list[JSON] = []
    for name, schema in definitions().items():
        if "x-method" not in schema:
            continue
        is_answer = name.endswith("Response")
        if (schema["x-side"] == side) == is_answer:
            continue  # answers go to the side that asked
        for shape in shapes(schema):
            for full in (False, True):
                body = shape.example(full=full)
                if is_answer:
                    found.append({"jsonrpc": "2.0", "id": 1, "result": body})
                else:
                    call = {"jsonrpc": "2.0", "method": schema["x-method"], "params": body}
                    found.append(call if name.endswith("Notification") else {**call, "id": 1})
    return [*found, {"jsonrpc": "2.0", "id": 1, "method": "_vendor/odd", "params": {}}]


class MutatedFrames:
    """`known` are values, such as ids of sessions, that mutated frames use at times in place of their own strings."""

    def __init__(self, side: Side, seed: int, known: Callable[[], list[str]] = list) -> None:
        self._random = random.Random(seed)
        self._messages = messages(side)
        self._known = known

    def take(self, count: int) -> Iterator[bytes]:
        """Frames with ids that no other frame has, as far as the id survives."""
        for number in range(count):
            message = json.loads(json.dumps(self._random.choice(self._messages)))
            if "id" in message and "method" in message:
                message["id"] = self._random.choice((100_000 + number, f"fuzz-{number:06}"))
            message = self._with_known(message)
            for _ in range(self._random.choice((0, 1, 1, 1, 2, 5))):
                message = self._mutated(message)
            line = json.dumps(message, separators=(",", ":")).encode()
            if self._random.random() < 0.3:
                line = self._with_odd_bytes(line)
            yield line.replace(b"\n", b" ")

    def _with_known(self, message: JSON) -> JSON:
        known = self._known()
        params = message.get("params")
        if isinstance(params, dict) and known and self._random.random() < 0.7:
            for key in ("sessionId", "terminalId", "cwd", "path"):
                if key in params:
                    params[key] = self._random.choice(known)
        return message

    def _mutated(self, message: JSON) -> JSON:
        pick = self._random.random()
        if not isinstance(message, dict) or pick < 0.03:
            return self._random.choice((message, [message], [message, message], self._odd()))
        if pick < 0.1:
            return {**message, "id": self._random.choice(_ODD_IDS)}
        if pick < 0.15:
            return {**message, "jsonrpc": self._random.choice((None, "1.0", 2.0, "2.0 "))}
        if pick < 0.2:
            return {**message, "method": self._random.choice((self._odd(), "session/new", "$/cancel_request"))}
        holders = list(_containers(message))
        holder = self._random.choice(holders)
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return message
        key = self._random.choice(keys)
        match self._random.randrange(4):
            case 0:
                del holder[key]
            case 1:
                holder[key] = self._odd()
            case 2:
                holder[key] = [holder[key]]
            case _:
                if isinstance(holder, dict):
                    holder[self._random.choice(("type", "sessionUpdate", "_meta", "odd"))] = self._odd()
        return message

    def _odd(self) -> JSON:
        return copy.deepcopy(self._random.choice(_ODD_VALUES))

    def _with_odd_bytes(self, line: bytes) -> bytes:
        at = self._random.randrange(len(line) + 1)
        match self._random.randrange(4):
            case 0:
                return line[:at]
            case 1:
                return line[:at] + self._random.choice(_ODD_BYTES) + line[at:]
            case 2:
                return line[:at] + line[at + 1 :]
            case _:
                deep = self._random.choice((b"[", b'{"a":')) * self._random.choice((5, 500, 5_000))
                return line[:at] + deep + line[at:]


def _containers(value: JSON) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _containers(each)


def must_be_answered(line: bytes) -> bool:
    """Whether a line is a request with an id of its own; an odd id may be that of another request that waits."""
    try:
        message = strict_json.decode(line)
    except ParseError:
        return False
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        return False
    return not is_odd(message.get("id")) and isinstance(message.get("params"), dict | list | None)


def is_odd(number: Any) -> bool:
    """Whether an id is none that `MutatedFrames` gave."""
    is_own = isinstance(number, str) and _OWN_ID.fullmatch(number) is not None
    return not is_own and not (isinstance(number, int) and 100_000 <= number < 1_000_000)
