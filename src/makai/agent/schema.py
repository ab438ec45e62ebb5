"""What a model wrote as arguments -> the arguments, held to the tool's JSON Schema.

In: a tool's definition and a call's JSON text. Out: a dict, or `InvalidRequest` with words for the model. Nothing is
fetched: a `$ref` to another document makes a schema unusable. Arguments are never invented or mended.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, NoReturn

import jsonschema_rs
import msgspec

from makai.core.errors import InvalidRequest
from makai.core.request import ToolDefinition
from makai.providers.preparation import schema_object

MOST_MISFITS = 5
LONGEST_MISFIT = 300

_arguments = msgspec.json.Decoder(dict[str, Any])


class ArgumentsSchema:
    """The schema of one tool, understood at its first call."""

    def __init__(self, definition: ToolDefinition) -> None:
        self._definition = definition
        self._validator: jsonschema_rs.Validator | None = None

    def arguments(self, arguments_json: str) -> dict[str, Any]:
        """The arguments; every misfit is named, so that the model can mend all of them at once."""
        try:
            arguments = _arguments.decode(arguments_json)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise InvalidRequest(f"The arguments are not a JSON object: {error}") from None
        try:
            misfits = list(islice(self._compiled().iter_errors(arguments), MOST_MISFITS))
        except ValueError as error:  # deeper nesting than the validator follows
            raise InvalidRequest(f"The arguments cannot be checked: {error}") from None
        if misfits:
            told = "".join(f"\n- {_misfit(misfit)}" for misfit in misfits)
            raise InvalidRequest(f"The arguments do not fit the schema of {self._definition.name}:{told}")
        return arguments

    def _compiled(self) -> jsonschema_rs.Validator:
        if self._validator is None:
            name = self._definition.name
            raw = schema_object(self._definition.parameters_schema_json, f"the schema of {name}")
            try:
                self._validator = jsonschema_rs.validator_for(msgspec.json.decode(raw), retriever=_refuse)
            except ValueError as error:
                reason = str(error).partition("\n")[0]
                raise InvalidRequest(f"The tool {name} has a schema that cannot be used: {reason}") from None
        return self._validator


def _misfit(error: jsonschema_rs.ValidationError) -> str:
    where = "/".join(str(step) for step in error.instance_path)
    told = f"at {where}: {error.message}" if where else error.message
    return told if len(told) <= LONGEST_MISFIT else f"{told[:LONGEST_MISFIT]}..."


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is another document, and none is fetched")
