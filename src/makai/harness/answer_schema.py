"""Answers that have to follow a JSON Schema: the instruction, and the value in the words of a model.

A value counts only after it was validated here, whatever a model or a harness promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from makai.agent.tool_io import compiled_schema
from makai.core.errors import InvalidRequest
from makai.harness.contract.one_shot import OneShotMessage
from makai.harness.contract.spec import JsonSchema
from makai.wire.embedded_json import json_values

MAX_PROBLEMS: Final = 5
MAX_PROBLEM_LENGTH: Final = 300
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_SAME_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
"""Keywords whose schemas apply to the same value as the schema that has them."""
_SAME_PLACE_BY_NAME: Final = ("dependentSchemas", "dependencies")


class FoundValue(NamedTuple):
    """`problem` says why there is no valid value; empty when `value` is one."""

    value: Any
    problem: str

    @property
    def is_valid(self) -> bool:
        return not self.problem


class AnswerSchema:
    """A schema that was checked before any model is asked. `InvalidRequest` for one that cannot be used."""

    def __init__(self, schema: JsonSchema) -> None:
        plain: dict[str, Any] = ({} if schema else {"not": {}}) if isinstance(schema, bool) else dict(schema)
        try:
            self.text = msgspec.json.encode(plain).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"The schema cannot be written as JSON: {error}.") from None
        refuse_endless(msgspec.json.decode(self.text))  # of `plain`, parts may be tuples or other mappings
        self._validator = compiled_schema(self.text, "the schema", "The schema is not a JSON Schema that can be used")

    @property
    def instruction(self) -> str:
        return (
            "Answer with one JSON value that is valid under this JSON Schema, and with nothing else: no explanation, "
            f"no code fence.\n\n{self.text}"
        )

    def find(self, texts: Sequence[str]) -> FoundValue:
        """The first valid value of the newest text that has one, else of all texts as one: a value may be spread over
        several (DM-ONE-005). A valid value is preferred to an earlier one that is not."""
        problem = "The answer holds no JSON value."
        for text in (*reversed(texts), "".join(texts)) if len(texts) > 1 else texts:
            for value in json_values(text):
                misfits = self._misfits(value)
                if not misfits:
                    return FoundValue(value, "")
                problem = f"The answer does not follow the schema: {'; '.join(misfits)}."
        return FoundValue(None, problem)

    def _misfits(self, value: Any) -> list[str]:
        try:
            found = islice(self._validator.iter_errors(value), MAX_PROBLEMS)
            return [_misfit(error.instance_path, error.message) for error in found]
        except ValueError as error:  # deeper nesting than the validator follows
            return [str(error)[:MAX_PROBLEM_LENGTH]]


def _misfit(path: Sequence[str | int], message: str) -> str:
    where = "/".join(map(str, path))
    return (f"at {where}: {message}" if where else message)[:MAX_PROBLEM_LENGTH]


def prompt_of(messages: Sequence[OneShotMessage], schema: AnswerSchema | None) -> str:
    """One message as it is, several as a conversation, and the instruction of the schema (DM-ONE-004)."""
    if len(messages) == 1:
        words = messages[0].content
    else:
        words = "\n\n".join(f"{message.effective_role}: {message.content}" for message in messages)
    return words if schema is None else f"{words}\n\n{schema.instruction}"


def refuse_endless(schema: Any) -> None:
    """Refuse a schema that leads back to itself without reading any part of a value: it says nothing about the value.
    One that describes a tree, whose branches are such values again, is fine. A schema is refused as well when it is
    not known where its references lead: those that are no JSON pointers, and parts with a base of their own."""
    done: set[int] = set()
    path: set[int] = set()

    def visit(part: Any) -> None:
        if not isinstance(part, dict) or id(part) in done:
            return
        if id(part) in path:
            raise InvalidRequest("The schema refers to itself without an end.", hint="Let it describe a value.")
        path.add(id(part))
        for inner in _of_the_same_value(part, schema):
            visit(inner)
        path.discard(id(part))
        done.add(id(part))

    bases = ("$id", "$schema", "id") if "draft-04" in str(schema.get("$schema")) else ("$id", "$schema")
    waiting = [schema]
    try:
        while waiting:
            part = waiting.pop()
            if isinstance(part, dict) and part is not schema and any(isinstance(part.get(name), str) for name in bases):
                raise InvalidRequest("A part of the schema has an id of its own.", hint="Use one schema with `$defs`.")
            visit(part)
            values = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
            waiting += [value for value in values if isinstance(value, dict | list)]
    except RecursionError:
        raise InvalidRequest("The schema is nested too deeply.") from None


def _of_the_same_value(part: dict[str, Any], root: Any) -> Iterator[Any]:
    for keyword in _REFERENCES:
        if isinstance(reference := part.get(keyword), str):
            yield _target(root, reference)
    for keyword in _SAME_PLACE:
        match part.get(keyword):
            case list(schemas):
                yield from schemas
            case dict(schema):
                yield schema
    for keyword in _SAME_PLACE_BY_NAME:
        if isinstance(named := part.get(keyword), dict):
            yield from named.values()


def _target(root: Any, reference: str) -> Any:
    found, (start, *steps) = root, unquote(reference).split("/")
    try:
        if start != "#":
            raise KeyError(start)
        for step in steps:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found[int(name)] if isinstance(found, list) else found[name]
    except (KeyError, IndexError, TypeError, ValueError):
        hint = "Refer to its own parts, such as `#/$defs/name`."
        raise InvalidRequest(
            f"The schema refers to {reference[:200]!r}, which makai does not find in it.", hint=hint
        ) from None
    return found
