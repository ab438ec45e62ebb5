"""Arguments of a call: one Struct gives the schema the model sees and the check of what it wrote.

In: a Struct whose fields carry `msgspec.Meta` descriptions; a call's arguments. Out: a `ToolDefinition`; a value of
that Struct, or `InvalidRequest` that says which field is wrong. No tool is known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from makai.core.errors import InvalidRequest
from makai.core.request import ToolDefinition

ArgumentsT = TypeVar("ArgumentsT", bound=msgspec.Struct)


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every tool's arguments. A field the tool does not know is a mistake, not noise."""


def definition(name: str, description: str, arguments: type[msgspec.Struct]) -> ToolDefinition:
    """The tool as the model sees it; the schema has no references, which some model APIs do not follow."""
    (_, components) = msgspec.json.schema_components((arguments,), ref_template="{name}")
    schema = _without_references(components[arguments.__name__], components)
    return ToolDefinition(
        name=name, description=description, parameters_schema_json=msgspec.json.encode(schema).decode()
    )


def parsed(arguments: Mapping[str, Any], shape: type[ArgumentsT]) -> ArgumentsT:
    """The arguments as `shape`. Models write numbers and booleans as text at times; that is understood."""
    try:
        return msgspec.convert(arguments, type=shape, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"The arguments do not fit the tool: {error}.") from None


def _without_references(schema: Any, components: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_without_references(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _without_references(components[schema["$ref"]], components)
    return {
        key: _without_references(value, components)
        for key, value in schema.items()
        # The names and docstrings of our classes tell a model nothing.
        if not (key == "title" or (key == "description" and "properties" in schema))
    }
