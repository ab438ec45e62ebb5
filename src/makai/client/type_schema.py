"""A Python type as JSON Schema, and JSON values as values of the type: for the arguments of functions that are tools,
and for answers that must have a type.

msgspec reads plain types, dataclasses, Structs, TypedDicts, NamedTuples and enums; paths are added here. A type in
which something of pydantic occurs is read by pydantic as a whole. Such a type exists only in a program that imported
pydantic, so pydantic is never imported here.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import msgspec

from makai.core.errors import InvalidRequest

MAX_PROBLEM_LENGTH: Final = 300
_HINT: Final = (
    "Use plain types, lists, dicts, Literal, enums, dataclasses, msgspec Structs, TypedDicts or pydantic models."
)


class TypeSchema:
    """`InvalidRequest` for a type that JSON cannot hold; `what` names it in the message."""

    def __init__(self, kind: Any, what: str, *, prefix: str = "") -> None:
        self._kind = kind
        self._what = what
        self._adapter: Any = None
        template = f"#/$defs/{prefix}{{name}}"
        try:
            if uses_pydantic(kind):
                self._adapter = sys.modules["pydantic"].TypeAdapter(kind)
                found = self._adapter.json_schema(ref_template=template.replace("{name}", "{model}"))
                definitions = found.pop("$defs", {})
            else:
                (found,), definitions = msgspec.json.schema_components(
                    [kind], schema_hook=_extra_schema, ref_template=template
                )
        except Exception as error:  # each library has errors of its own for a type that it does not know
            raise InvalidRequest(f"{what} has no JSON Schema: {_short(error).rstrip('.')}.", hint=_HINT) from None
        self.schema: dict[str, Any] = found
        self.definitions: dict[str, Any] = {prefix + name: schema for name, schema in definitions.items()}

    def prefixed(self, prefix: str) -> TypeSchema:
        """The same type with other names of its definitions, for a schema that has these names already."""
        return TypeSchema(self._kind, self._what, prefix=prefix)

    @property
    def whole(self) -> dict[str, Any]:
        """The schema with its definitions."""
        return {**self.schema, "$defs": self.definitions} if self.definitions else self.schema

    def convert(self, value: Any) -> Any:
        """A JSON value as a value of the type. `ValueError` with a text for the author of the value."""
        try:
            if self._adapter is not None:
                return self._adapter.validate_python(value)
            return self._converted(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(_pydantic_problem(error) or _short(error)) from None

    def _converted(self, value: Any) -> Any:
        """JSON has no other keys than texts, and 1.0 is an integer in JSON Schema, as some models write it."""
        try:
            return msgspec.convert(value, self._kind, dec_hook=_extra_value, str_keys=True)
        except msgspec.ValidationError as error:
            if (whole := _with_integers(value)) is value:
                raise
            with suppress(msgspec.ValidationError):
                return msgspec.convert(whole, self._kind, dec_hook=_extra_value, str_keys=True)
            raise error


def _with_integers(value: Any) -> Any:
    """The value with 1 for 1.0; the same object when there is no such number in it."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            changed: Any = {name: _with_integers(each) for name, each in value.items()}
            return changed if any(changed[name] is not each for name, each in value.items()) else value
        case list():
            changed = [_with_integers(each) for each in value]
            return changed if any(new is not old for new, old in zip(changed, value, strict=True)) else value
        case _:
            return value


def uses_pydantic(kind: Any) -> bool:
    """Whether a pydantic model, dataclass or `Field` occurs in a type, however deep."""
    if "pydantic" not in sys.modules:
        return False
    seen: set[int] = set()
    waiting = [kind]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if hasattr(part, "__pydantic_core_schema__") or _module(part).startswith(("pydantic", "annotated_types")):
            return True
        if get_origin(part) is Annotated:
            waiting += [type(extra) for extra in part.__metadata__]
        waiting += [*get_args(part), *_field_types(part)]
    return False


def jsonable(value: Any) -> Any:
    """What msgspec cannot write itself (`enc_hook`): pydantic's values and paths."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "__pydantic_core_schema__"):
        return sys.modules["pydantic"].TypeAdapter(type(value)).dump_python(value, mode="json")
    raise TypeError(f"a value of the type {type(value).__qualname__} cannot be written as JSON")


def _field_types(part: Any) -> Iterator[Any]:
    has_fields = isinstance(part, type) and (
        dataclasses.is_dataclass(part)
        or issubclass(part, msgspec.Struct)
        or hasattr(part, "__total__")
        or hasattr(part, "_fields")
    )
    if has_fields:
        try:
            yield from get_type_hints(part, include_extras=True).values()
        except NameError:
            return  # msgspec reports the missing name


def _module(part: Any) -> str:
    module = getattr(part, "__module__", "")
    return module if isinstance(module, str) else ""


def _extra_schema(kind: Any) -> dict[str, Any]:
    if isinstance(kind, type) and issubclass(kind, PurePath):
        return {"type": "string", "format": "path"}
    raise TypeError(f"{getattr(kind, '__qualname__', kind)} is not a type that JSON can hold")


def _extra_value(kind: Any, value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
    return Path(value) if kind is Path else kind(value)


def _pydantic_problem(error: Exception) -> str:
    """Only places and messages: pydantic's own text repeats the values and adds addresses."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return ""
    found = errors(include_url=False, include_input=False, include_context=False)
    said = (f"{problem['msg']} - at `{_place(problem['loc'])}`" for problem in found)
    return "; ".join(said)[:MAX_PROBLEM_LENGTH]


def _place(steps: tuple[str | int, ...]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _short(error: Exception) -> str:
    return str(error).partition("\n")[0][:MAX_PROBLEM_LENGTH]
