"""What the caller of a completion or a typed run wants: text, JSON of a schema, or a value of a type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from makai.client.type_schema import TypeSchema
from makai.core.errors import InvalidRequest
from makai.harness.answer_schema import AnswerSchema
from makai.harness.contract.one_shot import OneShotResult
from makai.harness.contract.spec import JsonSchema


class WantedAnswer:
    """What the caller wants: text, JSON of a schema, or a value of a type."""

    def __init__(self, given: Any) -> None:
        self.schema: JsonSchema | None = None
        self._type: TypeSchema | None = None
        match given:
            case None:
                return
            case str():
                self.schema = _decoded(given)
            case bool() | Mapping():
                self.schema = given
            case _:
                self._type = TypeSchema(given, getattr(given, "__name__", str(given)))
                self.schema = self._type.whole
        self.checked = AnswerSchema(self.schema)

    @property
    def has_type(self) -> bool:
        return self._type is not None

    def read(self, result: OneShotResult) -> tuple[Any, str]:
        """The value of the type, and why there is none."""
        if self.schema is None:
            return None, ""
        if not result.schema_ok:
            return None, self.checked.find([result.text]).problem or "The answer does not follow the schema."
        return self.typed(result.structured)

    def typed(self, structured: Any) -> tuple[Any, str]:
        """A JSON value that follows the schema, as a value of the type, and why there is none."""
        try:
            return None if self._type is None else self._type.convert(structured), ""
        except ValueError as error:
            return None, f"The answer does not follow the schema: {error}."


def _decoded(text: str) -> JsonSchema:
    try:
        return msgspec.json.decode(text, type=dict[str, Any] | bool)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidRequest(f"The schema is not a JSON Schema: {error}.") from None
