"""Examples of the messages of ACP, made from its official schema, so that what is new there is tried as well."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema_rs
import msgspec

JSON: TypeAlias = Any
Schema: TypeAlias = dict[str, Any]

UNKNOWN = "unknownMember"
_PATH = Path(__file__).parents[1] / "fixtures" / "acp" / "schema.json"
_OF_EVERY_TYPE: dict[str, JSON] = {
    "string": "text", "integer": 7, "boolean": True, "array": [], "object": {}, "null": None, "number": 7.5,
}  # fmt: skip


@cache
def definitions() -> dict[str, Schema]:
    found: dict[str, Schema] = msgspec.json.decode(_PATH.read_bytes())["$defs"]
    return found


@cache
def _validator(name: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for({"$ref": f"#/$defs/{name}", "$defs": definitions()})


def is_valid(name: str, example: JSON) -> bool:
    return bool(_validator(name).is_valid(example))


class Shape(msgspec.Struct, frozen=True):
    """One way in which an object may look: its properties, and those that it must have."""

    properties: dict[str, Schema]
    required: frozenset[str]

    def with_(self, other: Shape) -> Shape:
        return Shape({**self.properties, **other.properties}, self.required | other.required)

    def example(self, *, full: bool, unknown: bool = False) -> dict[str, JSON]:
        """With its required properties, or with all of them, none at a value that means the same as its absence. With
        `unknown`, this and all objects in it also have a member that no version of the protocol knows."""
        chosen = (name for name in self.properties if full or name in self.required)
        example = {name: _value(self.properties[name], full=full, unknown=unknown) for name in chosen}
        return {**example, UNKNOWN: {"deep": [None]}} if unknown else example


def shapes(schema: Schema, inlined: set[str] | None = None) -> list[Shape]:
    """The shapes of an object schema; `inlined` gets the names of the definitions that are parts of it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if inlined is not None:
            inlined.add(name)
        return shapes(definitions()[name], inlined)
    found = [Shape(schema.get("properties", {}), frozenset(schema.get("required", ())))]
    for part in schema.get("allOf", ()):
        found = [one.with_(other) for one, other in itertools.product(found, shapes(part, inlined))]
    for alternatives in (schema.get("oneOf"), schema.get("anyOf")):
        if alternatives:
            others = [shape for each in alternatives for shape in shapes(each, inlined)]
            found = [one.with_(other) for one, other in itertools.product(found, others)]
    return found


def is_object(schema: Schema) -> bool:
    return any(shape.properties for shape in shapes(schema)) or schema.get("type") == "object"


def _value(schema: Schema, *, full: bool, unknown: bool = False) -> JSON:
    if "$ref" in schema:
        return _value(definitions()[schema["$ref"].rpartition("/")[2]], full=full, unknown=unknown)
    if "const" in schema:
        return schema["const"]
    if "object" in _types(schema):
        extra = schema.get("additionalProperties")
        if extra:  # a map
            item = _value(extra, full=full, unknown=unknown) if isinstance(extra, dict) else [1, None, "x"]
            return {"key": item} if full else {}
        return shapes(schema)[0].example(full=full, unknown=unknown)
    for alternatives in ("allOf", "oneOf", "anyOf"):
        if alternatives in schema:
            first = next(each for each in schema[alternatives] if each.get("type") != "null")
            return _value(first, full=full, unknown=unknown)
    match next((each for each in _types(schema) if each != "null"), "any"):
        case "array":
            return [_value(schema["items"], full=full, unknown=unknown)] if full else []
        case "integer":
            return max(int(schema.get("minimum", 0)), 2)
        case "number":
            return 0.5
        case "any":
            return {"any": [1, None]}
        case kind:
            return _OF_EVERY_TYPE[kind]


def _types(schema: Schema) -> tuple[str, ...]:
    """The JSON types that a schema allows; none when it says nothing about that."""
    if "$ref" in schema:
        return _types(definitions()[schema["$ref"].rpartition("/")[2]])
    if "type" in schema:
        kinds = schema["type"]
        return tuple(kinds) if isinstance(kinds, list) else (kinds,)
    parts = [part for name in ("allOf", "oneOf", "anyOf") for part in schema.get(name, ())]
    return tuple(dict.fromkeys(kind for part in parts for kind in _types(part)))


def is_nullable(schema: Schema) -> bool:
    return "null" in _types(schema) or not _types(schema)


def wrong_values(schema: Schema) -> Iterator[JSON]:
    """Values of another JSON type than the schema allows, also in its lists and maps."""
    kinds = _types(schema)
    if not kinds:
        return
    yield next(value for kind, value in _OF_EVERY_TYPE.items() if kind not in kinds and {kind, "number"} - {*kinds})
    if "array" in kinds and "items" in schema:
        yield from ([wrong] for wrong in wrong_values(schema["items"]))


def without_unknown(value: JSON) -> JSON:
    if isinstance(value, list):
        return [without_unknown(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: without_unknown(each) for name, each in value.items() if name != UNKNOWN}
