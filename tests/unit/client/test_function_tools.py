"""Python functions as tools: their schema, their arguments, what they answer and raise."""

from __future__ import annotations

import asyncio
import enum
import functools
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import jsonschema_rs
import msgspec
import pydantic
import pytest

import makai
from makai.client.callbacks import result_of
from makai.client.function_tools import tool_of_function
from makai.client.requests import tools_of
from makai.testing import ScriptedModel, call


class Unit(enum.Enum):
    CELSIUS = "C"
    FAHRENHEIT = "F"


@dataclass
class Place:
    name: str
    country: str = "FR"


class Wind(msgspec.Struct):
    speed: float


class Rain(TypedDict):
    amount: int


class Pair(NamedTuple):
    left: int
    right: int


class Order(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(default=1, ge=1)


class Basket(pydantic.BaseModel):
    orders: list[Order]


def weather(
    city: Annotated[str, "The name of the city."],
    days: int = 1,
    unit: Unit = Unit.CELSIUS,
    *,
    style: Literal["short", "long"] = "short",
    places: list[Place] | None = None,
    limits: dict[str, float] | None = None,
) -> str:
    """The weather of the next days.

    Args:
        city: Not this text, for the annotation comes first.
        days: How many days.
    """
    return f"{city} {days} {unit} {style} {places} {limits}"


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    return msgspec.json.decode(tool_of_function(function).definition.parameters_schema_json, type=dict[str, Any])


async def run_tool(function: Callable[..., Any], **arguments: Any) -> makai.AgentToolResult:
    execute = tool_of_function(function).execute
    assert execute is not None
    return result_of(await execute(arguments))


def test_the_schema_comes_from_types_defaults_and_docstring() -> None:
    definition = tool_of_function(weather).definition

    assert (definition.name, definition.description) == ("weather", "The weather of the next days.")
    assert schema_of(weather) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The name of the city."},
            "days": {"type": "integer", "default": 1, "description": "How many days."},
            "unit": {"$ref": "#/$defs/Unit", "default": "C"},
            "style": {"enum": ["long", "short"], "default": "short"},
            "places": {
                "anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Place"}}, {"type": "null"}],
                "default": None,
            },
            "limits": {
                "anyOf": [{"type": "object", "additionalProperties": {"type": "number"}}, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {
            "Unit": {"title": "Unit", "enum": ["C", "F"]},
            "Place": {
                "title": "Place",
                "type": "object",
                "properties": {"name": {"type": "string"}, "country": {"type": "string", "default": "FR"}},
                "required": ["name"],
            },
        },
    }


async def test_arguments_become_values_of_the_declared_types() -> None:
    result = await run_tool(weather, city="Rome", unit="F", places=[{"name": "x"}], limits={"a": 1})

    assert result == makai.AgentToolResult(
        content="Rome 1 Unit.FAHRENHEIT short [Place(name='x', country='FR')] {'a': 1.0}"
    )


async def test_wrong_arguments_are_a_result_that_names_all_of_them() -> None:
    called: list[str] = []

    def book(place: Place, day: date, count: int) -> None:
        called.append("called")

    result = await run_tool(book, place={"country": "IT"}, day="tomorrow", seats=2)

    assert result == makai.AgentToolResult(
        content="The arguments do not fit book:\n- there is no parameter 'seats'\n"
        "- place: Object missing required field `name`\n- day: Invalid RFC3339 encoded date\n- count is missing",
        is_error=True,
    )
    assert called == []


@pytest.mark.parametrize(
    ("kind", "value", "converted"),
    [
        (Wind, {"speed": 3}, Wind(speed=3.0)),
        (Rain, {"amount": 3}, {"amount": 3}),
        (Pair, [1, 2], Pair(1, 2)),
        (Path, "a/b", Path("a/b")),
        (Optional[Path], "a", Path("a")),  # noqa: UP045
        (set[int], [1, 2], {1, 2}),
        (Order, {"item": "tea"}, Order(item="tea")),
        (list[Order], [{"item": "tea", "count": 2}], [Order(item="tea", count=2)]),
        (Basket | None, {"orders": [{"item": "a"}]}, Basket(orders=[Order(item="a")])),
        (Annotated[int, msgspec.Meta(ge=1)], 1, 1),
        (Annotated[int, pydantic.Field(ge=1)], 1, 1),
        (Any, [None], [None]),
    ],
    ids=str,
)
async def test_every_kind_of_type_has_a_schema_and_is_converted(kind: Any, value: Any, converted: Any) -> None:
    got: list[Any] = []

    def take(value: Any) -> None:
        got.append(value)

    take.__annotations__["value"] = kind
    result = await run_tool(take, value=value)

    assert result == makai.AgentToolResult(content="")
    assert got == [converted]
    jsonschema_rs.validator_for(schema_of(take)).validate({"value": value})


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (Annotated[int, msgspec.Meta(ge=1)], 0, "Expected `int` >= 1"),
        (Annotated[int, pydantic.Field(ge=1)], 0, "Input should be greater than or equal to 1 - at `$`"),
        (Basket, {"orders": [{"item": 1}]}, "Input should be a valid string - at `$.orders[0].item`"),
        (Path, 1, "Expected `str`, got `int`"),
    ],
    ids=str,
)
async def test_bounds_of_a_type_are_kept_and_values_are_not_repeated(kind: Any, value: Any, problem: str) -> None:
    def take(value: Any) -> None: ...

    take.__annotations__["value"] = kind

    assert (await run_tool(take, value=value)).content == f"The arguments do not fit take:\n- value: {problem}"


def test_types_of_the_same_name_keep_apart() -> None:
    first = msgspec.defstruct("Thing", [("a", int)])
    second = msgspec.defstruct("Thing", [("b", str)])

    def both(first: Any, second: Any, third: Any) -> None: ...

    both.__annotations__.update(first=first, second=second, third=first)
    schema = schema_of(both)

    assert [schema["properties"][name]["$ref"] for name in ("first", "second", "third")] == [
        "#/$defs/Thing",
        "#/$defs/second.Thing",
        "#/$defs/Thing",
    ]
    jsonschema_rs.validator_for(schema).validate({"first": {"a": 1}, "second": {"b": ""}, "third": {"a": 2}})


class Clock:
    def __init__(self, hour: int) -> None:
        self.hour = hour

    @makai.tool(read_only=True)
    def now(self, offset: int = 0) -> int:
        """The hour."""
        return self.hour + offset

    def __call__(self, hours: int, /, minutes: int = 5) -> str:
        """Later."""
        return f"{self.hour + hours}:{minutes}"


async def test_methods_partials_and_callable_objects_are_tools() -> None:
    clock = Clock(12)
    later = functools.partial(clock.now, offset=2)
    makai.tool(name="later")(later)
    makai.tool(name="call-me")(clock)

    assert (await run_tool(clock.now, offset=1)).content == "13"
    assert (await run_tool(later)).content == "14"
    assert (await run_tool(clock, hours=1)).content == "13:5"
    assert [tool_of_function(each).definition.read_only for each in (clock.now, clock)] == [True, False]
    assert tool_of_function(clock).description == "Later."


async def test_the_methods_of_two_objects_are_tools_under_names_of_their_own() -> None:
    class Search:
        def __init__(self, place: str) -> None:
            self.place = place

        async def search(self, word: str) -> str:
            """Find a word."""
            return f"{word} in {self.place}"

    tools = [makai.tool(name=f"search_{place}")(Search(place).search) for place in ("docs", "code")]
    described = makai.tool(description="Look it up.")(Search("web").search)

    assert [(await run_tool(each, word="x")).content for each in tools] == ["x in docs", "x in code"]
    assert [
        (each.name, each.description) for each in map(tool_of_function, [*tools, described, Search("").search])
    ] == [
        ("search_docs", "Find a word."),
        ("search_code", "Find a word."),
        ("search", "Look it up."),
        ("search", "Find a word."),
    ]


def test_the_decorator_says_more_and_leaves_the_function_as_it_is() -> None:
    @makai.tool(name="send-mail", description="Send it.", permission="ask", timeout_s=2)
    def send(to: str) -> str:
        return to.upper()

    tool = tool_of_function(send)

    assert send("a") == "A"
    assert (tool.name, tool.description, tool.permission, tool.read_only) == ("send-mail", "Send it.", "ask", False)


def untyped(city) -> None:  # type: ignore[no-untyped-def]
    ...


def many(*cities: str) -> None: ...


def named(**cities: str) -> None: ...


def strange(lock: threading.Event) -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def stream() -> AsyncIterator[int]:
    yield 1


def later_type(value: NotThere) -> None:  # type: ignore[name-defined]  # noqa: F821
    ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda city: city, "A lambda cannot be a tool: it has no name and no types. Write it with `def`."),
        (untyped, "untyped: the parameter 'city' has no type. Write `city: str`, or another type."),
        (Clock.now, "now: the parameter 'self' has no type. Give the method of an object."),
        (many, "many takes *cities: a model must know every parameter. Name each one, or take a list or a dict."),
        (named, "named takes **cities: a model must know every parameter."),
        (strange, "the type of the parameter 'lock' has no JSON Schema: Event is not a type that JSON can hold. Use"),
        (generator, "generator is a generator, and a tool answers once. Return a list."),
        (stream, "stream is a generator, and a tool answers once."),
        (later_type, "later_type: the type 'NotThere' of an annotation is not found."),
        (Clock, "Clock is a class, and a tool is a function."),
        (functools.partial(weather), "has no name that a tool can have. Give one with"),
        (3, "tools: 3 is no tool"),
        ("weather", "tools: 'weather' is no tool"),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__),
)
async def test_what_cannot_be_a_tool_is_refused_before_a_model_is_asked(function: Any, said: str) -> None:
    async with makai.connect(environ={}) as client:
        for ask in (client.agent.stream, client.provider.stream):
            with pytest.raises(makai.InvalidRequest) as refused:
                ask(model_ref="scripted/scripted@echo", messages="Hi", tools=[function])
            assert said in str(refused.value)


@pytest.mark.parametrize("tools", [weather, "weather", {"name": "weather"}, makai.AgentTool(name="weather")])
async def test_one_tool_without_a_list_is_refused(tools: Any) -> None:
    async with makai.connect(environ={}) as client:
        for ask in (client.agent.stream, client.provider.stream):
            with pytest.raises(makai.InvalidRequest, match=r"^tools is a list of tools, not one tool"):
                ask(model_ref="scripted/scripted@echo", messages="Hi", tools=tools)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"permission": "never"}, "makai.tool: Invalid enum value 'never' - at `$.permission`"),
        ({"color": 1}, "makai.tool has no color"),
        ({"timeout_s": 0.0}, "makai.tool: timeout_s is more than 0"),
        ({"name": "two words"}, "has no name that a tool can have."),
    ],
    ids=str,
)
def test_the_decorator_refuses_at_the_definition(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(makai.InvalidRequest) as refused:
        makai.tool(**fields)(weather_copy())
    assert said in str(refused.value)
    with pytest.raises(makai.InvalidRequest, match="has no type"):
        makai.tool(untyped)


def weather_copy() -> Callable[..., Any]:
    def copy(city: str) -> None: ...

    return copy


def test_a_default_that_json_cannot_hold_is_left_out() -> None:
    def take(a: float = float("nan"), b: int | None = None, c: Any = print) -> None: ...

    properties = schema_of(take)["properties"]

    assert {name: "default" in schema for name, schema in properties.items()} == {"a": False, "b": True, "c": False}


def test_the_decorator_takes_no_name_by_position() -> None:
    with pytest.raises(makai.InvalidRequest, match="'weather' cannot be marked as a tool"):
        makai.tool("weather")  # type: ignore[call-overload]


def test_a_type_that_is_defined_later_is_found_when_the_tool_is_used() -> None:
    space: dict[str, Any] = {"makai": makai}
    exec(
        "from __future__ import annotations\n@makai.tool\ndef take(it: Later) -> None: ...\nclass Later(dict): ...\n"
        "Later = int",
        space,
    )

    assert schema_of(space["take"])["properties"] == {"it": {"type": "integer"}}


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(makai.InvalidRequest, match="two have the name weather"):
        tools_of([weather, {"name": "weather"}])


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (Place(name="a"), '{"name":"a","country":"FR"}'),
        (Wind(speed=1.5), '{"speed":1.5}'),
        (Order(item="a"), '{"item":"a","count":1}'),
        ([Order(item="a")], '[{"item":"a","count":1}]'),
        ({"at": Path("a/b"), "unit": Unit.CELSIUS}, '{"at":"a/b","unit":"C"}'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (3, "3"),
    ],
    ids=str,
)
async def test_what_a_function_returns_is_sent_as_json(answer: Any, content: str) -> None:
    def give() -> Any:
        return answer

    assert await run_tool(give) == makai.AgentToolResult(content=content)


async def test_plain_functions_run_in_a_thread_and_async_ones_on_the_loop() -> None:
    def plain() -> bool:
        return threading.current_thread() is threading.main_thread()

    async def waiting() -> bool:
        await asyncio.sleep(0)
        return threading.current_thread() is threading.main_thread()

    assert [(await run_tool(plain)).content, (await run_tool(waiting)).content] == ["false", "true"]


async def test_a_function_that_takes_too_long_fails_and_is_cancelled() -> None:
    ended: list[str] = []

    @makai.tool(timeout_s=0.01)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    @makai.tool(timeout_s=60)
    async def own() -> None:
        raise TimeoutError("the database")

    assert await run_tool(slow) == makai.AgentToolResult(content="slow had no answer within 0.01 s.", is_error=True)
    assert ended == ["cancelled"]
    with pytest.raises(TimeoutError, match="the database"):
        await run_tool(own)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def failing(how: str) -> str:
    """Fail in some way."""
    match how:
        case "value":
            raise ValueError("the city is unknown")
        case "exit":
            sys.exit(3)
        case "next":
            return next(iter(()))
        case "unprintable":
            raise Unprintable
        case _:
            return object()  # type: ignore[return-value]


async def failing_async(how: str) -> str:
    return failing(how)


@pytest.mark.parametrize("function", [failing, failing_async], ids=["plain", "async"])
async def test_what_a_function_raises_is_an_error_that_the_model_sees_and_the_run_continues(
    function: Callable[..., Any],
) -> None:
    hows = ["value", "exit", "next", "unprintable", "object"]
    name = function.__name__
    with ScriptedModel([*(call(name, how=how) for how in hows), call(name)], "Sorry.") as model:
        async with model.connect() as client:
            answer = await client.agent.run(model_ref=model.ref, messages="Go", tools=[function])

    next_error = "StopIteration" if function is failing else "coroutine raised StopIteration"
    assert answer.text == "Sorry."
    assert [(result.text(), result.is_error) for result in model.requests[-1].tool_results] == [
        ("ValueError: the city is unknown", True),
        ("RuntimeError: it wanted to exit with 3", True),
        (f"RuntimeError: {next_error}", True),
        ("Unprintable", True),
        ("TypeError: a value of the type object cannot be written as JSON", True),
        (f'The arguments do not fit the schema of {name}:\n- "how" is a required property', True),
    ]


def test_functions_are_tools_of_the_synchronous_client() -> None:
    asked: list[str] = []

    def weather(city: str) -> str:
        asked.append(city)
        return "sun"

    with ScriptedModel(call("weather", city="Rome"), "Sunny.") as model, model.connect_sync() as client:
        answer = client.agent.run(model_ref=model.ref, messages="Rome?", tools=[weather])

    assert (answer.text, asked) == ("Sunny.", ["Rome"])
    model.assert_tool_result("weather", "sun")


async def test_a_function_is_cancelled_with_its_run() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with ScriptedModel(call("wait")) as model:
        async with model.connect() as client:
            running = asyncio.create_task(client.agent.run(model_ref=model.ref, messages="Wait", tools=[wait]))
            async with asyncio.timeout(60):
                await begun.wait()
                running.cancel()
                await ended.wait()
            with pytest.raises(asyncio.CancelledError):
                await running


@dataclass
class Shipment:
    number: int
    weight: float
    parts: list[int]


async def test_numbers_and_keys_of_json_are_converted_as_its_schema_allows() -> None:
    def order(count: int, stock: dict[int, str], wanted: Shipment, price: int | float) -> str:
        return repr((count, stock, wanted, price))

    given = {
        "count": 2.0,
        "stock": {"7": "screw"},
        "wanted": {"number": 1e3, "weight": 2.0, "parts": [1.0, 2]},
        "price": 2.0,
    }
    expected = "(2, {7: 'screw'}, Shipment(number=1000, weight=2.0, parts=[1, 2]), 2.0)"
    assert (await run_tool(order, **given)).content == expected
    wrong = await run_tool(order, **given | {"count": 2.5, "stock": {"seven": "screw"}})
    assert (wrong.is_error, wrong.content) == (
        True,
        "The arguments do not fit order:\n- count: Expected `int`, got `float`\n"
        "- stock: Expected `int`, got `str` - at `key` in `$`",
    )


async def test_a_function_that_waits_for_something_cancelled_fails_and_the_run_continues() -> None:
    async def look_up() -> None:
        await asyncio.create_task(cancelled())

    def read() -> None:
        raise asyncio.CancelledError

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with ScriptedModel(call("look_up"), call("read"), "Sorry.") as model:
        async with asyncio.timeout(30), model.connect() as client:
            answer = await client.agent.run(model_ref=model.ref, messages="Look", tools=[look_up, read])

    assert answer.text == "Sorry."
    model.assert_tool_result("look_up", "RuntimeError: what it waited for was cancelled", is_error=True)
    model.assert_tool_result("read", "RuntimeError: what it waited for was cancelled", is_error=True)


async def test_functions_are_served_to_other_clients_and_ask_there_too() -> None:
    asked: list[str] = []

    @makai.tool(permission="ask")
    def send(to: str) -> str:
        return f"sent to {to}"

    def decide(request: makai.PermissionRequest) -> makai.Allow:
        asked.append(request.tool_name)
        return makai.Allow()

    with ScriptedModel([call("desk__send", to="Ada"), call("desk__weather", city="Rome")], "Done.") as model:
        async with (
            model.connect() as program,
            program.tools.serve("desk", tools=[send, weather]),
            model.connect() as client,
        ):
            await client.agent.run(
                model_ref=model.ref, messages="Send", tool_servers=["desk"], on_permission_request=decide
            )

    assert asked == ["desk__send"]
    model.assert_tool_result("desk__send", "sent to Ada")
    model.assert_tool_result("desk__weather", "Rome 1 Unit.CELSIUS short None None")


async def test_calls_of_a_model_that_was_asked_directly_are_carried_out_on_request() -> None:
    calls = [call("weather", city="Rome"), call("weather", city=3), call("gone"), call("failing", how="value")]
    with ScriptedModel(calls, "Sunny.") as model:
        async with model.connect() as client:
            asked = client.provider.complete(model_ref=model.ref, messages="Rome?", tools=[weather, failing])
            first = await asked
            results = await client.provider.call_tools(first, [weather, failing])
            messages: list[Any] = ["Rome?", first.message, *results]
            second = await client.provider.complete(model_ref=model.ref, messages=messages)

    assert second.text == "Sunny."
    assert [(result.text(), result.is_error) for result in model.requests[-1].tool_results] == [
        ("Rome 1 Unit.CELSIUS short None None", False),
        ('The arguments do not fit the schema of weather:\n- at city: 3 is not of type "string"', True),
        ("LookupError: there is no function for the tool 'gone'", True),
        ("ValueError: the city is unknown", True),
    ]


def test_the_synchronous_client_carries_them_out_too() -> None:
    with ScriptedModel(call("weather", city="Rome")) as model, model.connect_sync() as client:
        first = client.provider.complete(model_ref=model.ref, messages="Rome?", tools=[weather])
        (message,) = client.provider.call_tools(first, [weather])

    assert "Rome 1" in str(message.content)


@pytest.mark.parametrize(
    ("mode", "allow", "decision", "executed", "asked"),
    [
        ("ask", (), makai.Allow(), ["a@b"], ["send"]),
        ("ask", (), makai.Deny(reason="No."), [], ["send"]),
        ("ask", ("send",), makai.Deny(reason="No."), ["a@b"], []),
        ("never_ask", (), makai.Deny(reason="No."), ["a@b"], []),
        ("plan", (), makai.Allow(), [], []),
    ],
)
async def test_a_tool_that_asks_is_an_approval_of_its_session(
    mode: Any, allow: tuple[str, ...], decision: Any, executed: list[str], asked: list[str]
) -> None:
    sent: list[str] = []
    questions: list[str] = []

    @makai.tool(permission="ask")
    def send(to: str) -> str:
        sent.append(to)
        return "sent"

    @makai.tool(read_only=True)
    def look() -> str:
        return "seen"

    def decide(request: makai.PermissionRequest) -> Any:
        questions.append(request.tool_name)
        return decision

    with ScriptedModel([call("send", to="a@b"), call("look")], "Done.") as model:
        async with model.connect() as client:
            answer = await client.agent.run(
                model_ref=model.ref,
                messages="Send",
                tools=[send, look],
                mode=mode,
                on_permission_request=decide,
                options={"allow": allow},
            )

    assert (answer.text, sent, questions) == ("Done.", executed, asked)
    model.assert_tool_result("look", "seen")


def test_pydantic_is_not_imported_for_types_that_do_not_need_it() -> None:
    program = (
        "import sys, dataclasses\nfrom makai.client.type_schema import TypeSchema, jsonable\n"
        "@dataclasses.dataclass\nclass A:\n    x: int\n"
        "assert TypeSchema(list[A], 'A').convert([{'x': 1}]) == [A(1)]\nassert 'pydantic' not in sys.modules\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env={"PYTHONPATH": "src"}
    )

    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.parametrize("answer", [{"name": "a\ud800b"}, ["a\ud800b"]])
def test_half_a_surrogate_pair_in_a_structured_result_is_replaced(answer: Any) -> None:
    assert "a\ufffdb" in str(result_of(answer).content)
