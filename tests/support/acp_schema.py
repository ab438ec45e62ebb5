"""Holds frames of the Agent Client Protocol to the newest official schema, more strictly than the schema itself.

The schema allows unknown members everywhere, the protocol forbids them (only `_meta` is free). So every object that the
schema describes is closed here. Three things pass that the stable schema does not have: methods and results whose name
begins with `_`, `session/set_model`, and the member `models` of a session's settings (ACP-SESS-005, ACP-SESS-007).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import jsonschema_rs

FOLDER = Path(__file__).resolve().parents[1] / "fixtures/acp"
LEGACY_MODELS = {
    "type": "object",
    "required": ["currentModelId", "availableModels"],
    "additionalProperties": False,
    "properties": {
        "_meta": {"type": "object"},
        "currentModelId": {"type": "string"},
        "availableModels": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["modelId", "name"],
                "additionalProperties": False,
                "properties": {name: {"type": "string"} for name in ("modelId", "name", "description")},
            },
        },
    },
}
LEGACY_SETTINGS = ("NewSessionResponse", "LoadSessionResponse", "ResumeSessionResponse", "ForkSessionResponse")
CODES = frozenset({-32700, -32600, -32601, -32602, -32603, -32000, -32002, -32800})

JSON: TypeAlias = dict[str, Any]
Side: TypeAlias = Literal["agent", "client"]


class SchemaViolation(AssertionError):
    """A frame that breaks the protocol."""


class FrameChecker:
    """Checks the frames that one side sends. The frames of the other side are needed too: they say what an answer
    answers."""

    def __init__(self, side: Side, *, unstable: bool = False) -> None:
        self._side = side
        self._other: Side = "client" if side == "agent" else "agent"
        self._unstable = unstable
        self._open: dict[int | str, str] = {}
        """The methods of requests of the other side that were not answered yet, by id."""
        self._refusals = 0
        self.checked = 0

    def received(self, line: bytes | str) -> None:
        """A line of the other side, which may be anything."""
        try:
            frame = json.loads(line)
        except (ValueError, RecursionError):
            self._refusals += 1
            return
        match frame:
            case {"method": str(method), "id": int() | str() as request_id} if not isinstance(request_id, bool):
                self._open[request_id] = method
            case {"method": str()} if "id" not in frame:
                pass
            case {"result": _} | {"error": _}:
                pass
            case _:
                self._refusals += 1

    def sent(self, line: bytes | str) -> JSON:
        """The frame in a line of the checked side. `SchemaViolation` says what is wrong with it."""
        frame = _parsed(line)
        self.checked += 1
        match frame:
            case {"jsonrpc": "2.0", "method": str(method)}:
                self._request(method, frame)
            case {"jsonrpc": "2.0", "id": _, "result": result} if len(frame) == 3:
                self._result(frame, result)
            case {"jsonrpc": "2.0", "id": _, "error": error} if len(frame) == 3:
                self._error(frame, error)
            case _:
                raise SchemaViolation(f"neither a request nor an answer: {frame}")
        return frame

    def _request(self, method: str, frame: JSON) -> None:
        if unknown := frame.keys() - {"jsonrpc", "id", "method", "params"}:
            raise SchemaViolation(f"unknown members {sorted(unknown)} of {frame}")
        is_request = "id" in frame
        if is_request and (isinstance(frame["id"], bool) or not isinstance(frame["id"], int | str)):
            raise SchemaViolation(f"the id is neither a number nor a string: {frame}")
        params = frame.get("params", {})
        if not isinstance(params, dict):
            raise SchemaViolation(f"the parameters are no object: {frame}")
        if method.startswith("_") or (method == "session/set_model" and self._side == "client"):
            return
        kind = "Request" if is_request else "Notification"
        name = _types(self._unstable).get((self._other, method, kind))
        if name is None and not is_request:
            name = _types(self._unstable).get(("protocol", method, kind))
        if name is None:
            raise SchemaViolation(f"the {self._side} may not send the {kind.lower()} {method}")
        _validate(name, params, self._unstable)

    def _result(self, frame: JSON, result: Any) -> None:
        method = self._answered(frame["id"])
        if not isinstance(result, dict):
            raise SchemaViolation(f"the result of {method} is no object: {frame}")
        if method.startswith("_") or method == "session/set_model":
            return
        name = _types(self._unstable).get((self._side, method, "Response"))
        if name is None:
            raise SchemaViolation(f"{method} has no result, but was answered with one: {frame}")
        _validate(name, result, self._unstable)

    def _error(self, frame: JSON, error: Any) -> None:
        if frame["id"] is None:
            if self._refusals == 0:
                raise SchemaViolation(f"an error without an id, but every line could be read: {frame}")
            self._refusals -= 1
        elif frame["id"] in self._open or self._refusals == 0:
            self._answered(frame["id"])
        else:  # a request that is malformed, but has a readable id
            self._refusals -= 1
        _validate("Error", error, self._unstable)
        if error["code"] not in CODES:
            raise SchemaViolation(f"an undocumented code: {frame}")

    def _answered(self, request_id: Any) -> str:
        if request_id is None or (method := self._open.pop(request_id, None)) is None:
            raise SchemaViolation(f"an answer to {request_id!r}, which was not asked or was answered before")
        return method

    @property
    def unanswered(self) -> list[str]:
        """The methods of requests of the other side that have no answer yet."""
        return [*self._open.values()]


def _parsed(line: bytes | str) -> JSON:
    text = line.decode("utf-8") if isinstance(line, bytes) else line
    if "\n" in text.removesuffix("\n"):
        raise SchemaViolation(f"more than one line: {text[:200]!r}")

    def unique(pairs: list[tuple[str, Any]]) -> JSON:
        if len(found := dict(pairs)) != len(pairs):
            raise SchemaViolation(f"a member occurs twice: {text[:200]!r}")
        return found

    def refused(word: str) -> None:
        raise SchemaViolation(f"{word} is not JSON")

    try:
        frame = json.loads(text, object_pairs_hook=unique, parse_constant=refused)
    except json.JSONDecodeError as error:
        raise SchemaViolation(f"not JSON: {text[:200]!r}") from error
    if not isinstance(frame, dict):
        raise SchemaViolation(f"not an object: {text[:200]!r}")
    return frame


def _validate(name: str, value: Any, unstable: bool) -> None:
    errors = [
        f"{'/'.join(map(str, error.instance_path))}: {error.message[:500]}"
        for error in _validator(name, unstable).iter_errors(value)
    ]
    if errors:
        raise SchemaViolation(f"not a {name}: {'; '.join(errors)}\n{json.dumps(value)[:2000]}")


@cache
def _types(unstable: bool) -> Mapping[tuple[str, str, str], str]:
    """The name of a type by the side that serves the method, the method and what the type is of it."""
    found: dict[tuple[str, str, str], str] = {}
    for name, schema in _definitions(unstable).items():
        if "x-method" in schema:
            kind = next(kind for kind in ("Request", "Response", "Notification") if name.endswith(kind))
            for side in ("agent", "client") if schema["x-side"] == "both" else (schema["x-side"],):
                found[side, schema["x-method"], kind] = name
    return found


@cache
def _validator(name: str, unstable: bool) -> Any:
    definitions = _definitions(unstable)
    return jsonschema_rs.validator_for(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$ref": f"#/$defs/{name}",
            "unevaluatedProperties": False,
            "$defs": definitions,
        }
    )


@cache
def _definitions(unstable: bool) -> Mapping[str, JSON]:
    """The types of the schema, with every object closed that a member or an item of another one is."""
    schema = json.loads((FOLDER / ("schema.unstable.json" if unstable else "schema.json")).read_text(encoding="utf-8"))
    definitions: dict[str, JSON] = schema["$defs"]
    for name in LEGACY_SETTINGS:
        if name in definitions:
            definitions[name]["properties"]["models"] = LEGACY_MODELS
    for definition in definitions.values():
        _close_members(definition, definitions)
    return definitions


def _close_members(schema: Any, definitions: Mapping[str, JSON]) -> None:
    if isinstance(schema, list):
        for each in schema:
            _close_members(each, definitions)
    if not isinstance(schema, dict):
        return
    members = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    for member in members:
        if isinstance(member, dict):
            if _describes_members(member, definitions):
                member["unevaluatedProperties"] = False
            _close_members(member, definitions)
    for word in ("allOf", "anyOf", "oneOf"):  # they are about the same object, which is closed where it is used
        _close_members(schema.get(word), definitions)


def _describes_members(schema: JSON, definitions: Mapping[str, JSON]) -> bool:
    if "properties" in schema:
        return True
    parts = [part for word in ("allOf", "anyOf", "oneOf") for part in schema.get(word, ())]
    if "$ref" in schema:
        parts.append(definitions[schema["$ref"].rpartition("/")[2]])
    return any(_describes_members(part, definitions) for part in parts)
