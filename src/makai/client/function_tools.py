"""Python functions as tools: `tools=[my_function]`, and `@makai.tool` to say more about one.

The schema comes from the signature: types, defaults, and descriptions from `Annotated` or the docstring. Arguments are
converted to the declared types before the function is called; wrong ones are a result that the model can correct.
What cannot be a tool is refused when the tool is defined, before any model is asked.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeVar, get_origin, get_type_hints, overload

import msgspec

from makai.client.callbacks import called
from makai.client.docstrings import parse_docstring
from makai.client.type_schema import TypeSchema, jsonable
from makai.client.types import AgentTool, AgentToolResult
from makai.core.errors import InvalidRequest
from makai.core.request import ToolPermission

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every vendor accepts as the name of a tool."""
_MARK: Final = "__makai_tool__"
_F = TypeVar("_F", bound=Callable[..., Any])


class ToolMark(msgspec.Struct, frozen=True, kw_only=True):
    """What `@makai.tool` says about a function, beside its signature."""

    name: str | None = None
    description: str | None = None
    permission: ToolPermission = "allow"
    read_only: bool = False
    timeout_s: float | None = None


@overload
def tool(function: _F, /) -> _F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    permission: ToolPermission = "allow",
    read_only: bool = False,
    timeout_s: float | None = None,
) -> Callable[[_F], _F]: ...
def tool(function: Callable[..., Any] | None = None, /, **fields: Any) -> Any:
    """Say more about a function that is a tool; it stays the function that it is.

    `permission="ask"`: a person decides each call, unless a rule allows it. `read_only=True`: it changes nothing, so it
    may be called in plan mode too when it asks. `timeout_s`: after so long the call fails; an async function is
    cancelled then, a plain one keeps its thread and its answer is dropped.
    """
    try:
        mark = msgspec.convert(fields, ToolMark, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"makai.tool: {error}") from None
    if unknown := fields.keys() - set(ToolMark.__struct_fields__):
        raise InvalidRequest(f"makai.tool has no {', '.join(sorted(unknown))}")
    if mark.timeout_s is not None and not mark.timeout_s > 0:
        raise InvalidRequest("makai.tool: timeout_s is more than 0")

    def marked(function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.ismethod(function):  # it takes no mark of its own, and that of its class is for every object
            function = functools.update_wrapper(functools.partial(function), function)
        try:
            setattr(function, _MARK, mark)
        except (AttributeError, TypeError):
            hint = 'Write `@makai.tool(name="...")` above a function of your own.'
            raise InvalidRequest(f"{function!r} cannot be marked as a tool.", hint=hint) from None
        if not _is_method(function):  # a method has no signature of its own before it is bound to its object
            tool_of_function(function, is_defined=False)
        return function

    return marked if function is None else marked(function)


def tool_of_function(function: Callable[..., Any], *, is_defined: bool = True) -> AgentTool:
    """The tool of a function; `InvalidRequest` when it cannot be one. Not `is_defined`: types that its annotations
    name may not exist yet, and are looked up when the tool is used."""
    given = getattr(function, _MARK, None)
    mark = given if isinstance(given, ToolMark) else ToolMark()
    name: str = mark.name or str(getattr(function, "__name__", ""))
    if name == "<lambda>":
        raise InvalidRequest("A lambda cannot be a tool: it has no name and no types.", hint="Write it with `def`.")
    if not _NAME.fullmatch(name):
        hint = 'Give one with `@makai.tool(name="...")`: letters, digits, "_" and "-", at most 64.'
        raise InvalidRequest(f"{function!r} has no name that a tool can have.", hint=hint)
    doc = parse_docstring(_target(function).__doc__)
    parameters = _parameters(function, name, doc.parameters, is_defined=is_defined)
    return AgentTool(
        name=name,
        description=doc.summary if mark.description is None else mark.description,
        schema=_schema(parameters),
        execute=ToolFunction(function, name, parameters, mark.timeout_s),
        permission=mark.permission,
        read_only=mark.read_only,
    )


class ToolParameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a function."""

    name: str
    type: TypeSchema
    description: str
    default: Any
    """`inspect.Parameter.empty` for one that is required."""
    is_positional: bool

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty


class ToolFunction:
    """The `execute` of a function's tool: converts the arguments, and calls the function within its time."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        parameters: tuple[ToolParameter, ...],
        timeout_s: float | None,
    ) -> None:
        self._function = function
        self._name = name
        self._parameters = parameters
        self._timeout_s = timeout_s

    async def __call__(self, arguments: Mapping[str, Any]) -> Any:
        values, problems = self._converted(arguments)
        if problems:
            said = "".join(f"\n- {problem}" for problem in problems)
            return AgentToolResult(content=f"The arguments do not fit {self._name}:{said}", is_error=True)
        positional = [
            values.pop(parameter.name, parameter.default) for parameter in self._parameters if parameter.is_positional
        ]
        deadline = asyncio.timeout(self._timeout_s)
        try:
            async with deadline:
                return await called(self._function, *positional, **values)
        except TimeoutError:
            if not deadline.expired():
                raise
        return AgentToolResult(content=f"{self._name} had no answer within {self._timeout_s:g} s.", is_error=True)

    def _converted(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        known = {parameter.name for parameter in self._parameters}
        problems = [f"there is no parameter {name!r}" for name in arguments if name not in known]
        values: dict[str, Any] = {}
        for parameter in self._parameters:
            if parameter.name in arguments:
                try:
                    values[parameter.name] = parameter.type.convert(arguments[parameter.name])
                except ValueError as error:
                    problems.append(f"{parameter.name}: {error}")
            elif parameter.is_required:
                problems.append(f"{parameter.name} is missing")
        return values, problems


def _parameters(
    function: Callable[..., Any], name: str, documented: Mapping[str, str], *, is_defined: bool
) -> tuple[ToolParameter, ...]:
    target = _target(function)
    if isinstance(function, type):
        raise InvalidRequest(f"{name} is a class, and a tool is a function.", hint="Give a function or a method.")
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise InvalidRequest(f"{name} is a generator, and a tool answers once.", hint="Return a list.")
    try:
        signature = inspect.signature(function)
        hints = get_type_hints(target, include_extras=True)
    except NameError as error:
        if not is_defined:
            return ()
        hint = "Define it at the top of the module, before the tool is used."
        raise InvalidRequest(f"{name}: the type {error.name!r} of an annotation is not found.", hint=hint) from None
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"{name} has no signature that can be read: {error}") from None
    return tuple(_parameter(name, one, hints, documented) for one in signature.parameters.values())


def _parameter(
    function: str, parameter: inspect.Parameter, hints: Mapping[str, Any], documented: Mapping[str, str]
) -> ToolParameter:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise InvalidRequest(
            f"{function} takes {str(parameter).partition(':')[0]}: a model must know every parameter.",
            hint="Name each one, or take a list or a dict.",
        )
    if name not in hints:
        is_self = name in ("self", "cls")
        hint = "Give the method of an object." if is_self else f"Write `{name}: str`, or another type."
        raise InvalidRequest(f"{function}: the parameter {name!r} has no type.", hint=hint)
    kind = hints[name]
    return ToolParameter(
        name=name,
        type=TypeSchema(kind, f"{function}: the type of the parameter {name!r}"),
        description=_annotated_description(kind) or documented.get(name, ""),
        default=parameter.default,
        is_positional=parameter.kind is parameter.POSITIONAL_ONLY,
    )


def _schema(parameters: tuple[ToolParameter, ...]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for parameter in parameters:
        found = parameter.type
        if any(definitions.get(name, schema) != schema for name, schema in found.definitions.items()):
            found = found.prefixed(f"{parameter.name}.")  # another type of the same name
        definitions |= found.definitions
        extra = {"description": parameter.description} if parameter.description else {}
        properties[parameter.name] = {**found.schema, **extra, **_default(parameter)}
    return {
        "type": "object",
        "properties": properties,
        "required": [parameter.name for parameter in parameters if parameter.is_required],
        "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }


def _default(parameter: ToolParameter) -> dict[str, Any]:
    if parameter.is_required:
        return {}
    try:
        default = msgspec.json.decode(msgspec.json.encode(parameter.default, enc_hook=jsonable))
    except (TypeError, ValueError):
        return {}  # one that JSON cannot hold; the function still has it
    return {} if default is None and parameter.default is not None else {"default": default}


def _annotated_description(kind: Any) -> str:
    """From `Annotated[str, "text"]`, or what has a `description` (msgspec's Meta, pydantic's Field) or is a `Doc`."""
    if get_origin(kind) is not Annotated:
        return ""
    for extra in kind.__metadata__:
        for said in (extra, getattr(extra, "description", None), getattr(extra, "documentation", None)):
            if isinstance(said, str) and said:
                return said
    return ""


def _target(function: Callable[..., Any]) -> Any:
    """What has the annotations and the docstring: the function itself, of a partial its function, of a callable object
    its `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    is_plain = inspect.isroutine(function) or isinstance(function, type)
    return function if is_plain else getattr(type(function), "__call__", function)  # noqa: B004


def _is_method(function: Callable[..., Any]) -> bool:
    names = list(getattr(getattr(function, "__code__", None), "co_varnames", ()))
    return bool(names) and names[0] in ("self", "cls") and names[0] not in getattr(function, "__annotations__", {})
