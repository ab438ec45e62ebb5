"""Runs whose answer is a value of a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import msgspec
import pydantic
import pytest

import makai
from makai.testing import ScriptedModel, call, usage

JSON = '{"name": "Ada", "born": 1815}'
WRONG = '{"name": "Ada"}'


@dataclass
class Person:
    name: str
    born: int


class PersonStruct(msgspec.Struct):
    name: str
    born: int


class PersonModel(pydantic.BaseModel):
    name: str
    born: int


class PersonDict(TypedDict):
    name: str
    born: int


SCHEMA = {"type": "object", "required": ["born"]}


def look(name: str) -> str:
    """Look up a person."""
    return f"{name}, 1815"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Person, JSON, Person("Ada", 1815)),
        (PersonStruct, f"Here it is:\n```json\n{JSON}\n```", PersonStruct("Ada", 1815)),
        (PersonModel, JSON, PersonModel(name="Ada", born=1815)),
        (PersonDict, JSON, {"name": "Ada", "born": 1815}),
        (list[PersonModel], f"[{JSON}]", [PersonModel(name="Ada", born=1815)]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (SCHEMA, JSON, {"name": "Ada", "born": 1815}),
        ('{"type": "integer"}', "42", 42),
    ],
    ids=["dataclass", "struct", "pydantic", "typed dict", "list", "dict", "schema", "schema text"],
)
async def test_the_output_of_a_run_is_a_value_of_the_type(kind: Any, text: str, value: Any) -> None:
    with ScriptedModel(call("look", name="Ada"), text) as model:
        async with model.connect() as client:
            answer = await client.agent.run(model_ref=model.ref, messages="Who?", tools=[look], output=kind)

    assert answer.output == value
    assert type(answer.output) is type(value)
    assert [request.raw.options.json_schema for request in model.requests] == [None, None]
    model.assert_sent("Answer with one JSON value that is valid under this JSON Schema")
    model.assert_asked(2)


async def test_type_checkers_know_the_type_of_the_output() -> None:
    """mypy, which reads the tests too, fails for a wrong `assert_type`."""
    with ScriptedModel(JSON, f"[{JSON}]", JSON, JSON, "Hi") as model:
        async with model.connect() as client:
            one = await client.agent.run(model_ref=model.ref, messages="Who?", output=Person)
            many = await client.agent.run(model_ref=model.ref, messages="Who?", output=list[PersonDict])
            schema = await client.agent.run(model_ref=model.ref, messages="Who?", output=SCHEMA)
            untyped = await client.agent.run({"model_ref": model.ref, "messages": "Who?", "output": Person})
            plain = await client.agent.run(model_ref=model.ref, messages="Who?")

    assert_type(one, makai.AgentRunResponse[Person])
    assert assert_type(one.output, Person).name == "Ada"
    assert assert_type(many.output, list[PersonDict])[0]["born"] == 1815
    assert assert_type(schema.output, Any) == {"name": "Ada", "born": 1815}
    assert assert_type(untyped.output, Any) == Person("Ada", 1815)
    assert assert_type(plain.output, Any) is None
    kept: makai.AgentRunResponse = one  # without the type it is still a whole type
    assert kept.output == Person("Ada", 1815)


def test_type_checkers_know_the_type_of_the_output_without_await_too() -> None:
    with ScriptedModel(JSON, "Hi") as model, model.connect_sync() as client:
        one = client.agent.run(model_ref=model.ref, messages="Who?", output=PersonStruct)
        plain = client.agent.run(model_ref=model.ref, messages="Who?")

    assert assert_type(one.output, PersonStruct) == PersonStruct("Ada", 1815)
    assert assert_type(plain.output, Any) is None


async def test_a_wrong_answer_is_asked_for_again_and_the_stream_is_one_run() -> None:
    with ScriptedModel([WRONG, usage(1, 2)], [JSON, usage(10, 20)]) as model:
        async with model.connect() as client:
            stream = client.agent.stream(model_ref=model.ref, messages="Who?", output=Person)
            kinds = [event.type async for event in stream if event.type != "text_delta"]

    turn = ["turn_start", "message_start", "message_end", "turn_end"]
    assert kinds == ["agent_start", *turn, *turn, "agent_end"]
    assert stream.response is not None
    assert stream.response.output == Person("Ada", 1815)
    assert stream.response.usage == makai.UsageSummary(input=11, output=22, cost_usd=0.0)
    model.assert_sent(
        'The answer does not follow the schema: "born" is a required property. Answer again with the corrected JSON'
    )
    assert model.requests[0].raw.options.json_schema is not None


@pytest.mark.parametrize(
    ("repairs", "options", "asked"),
    [(0, {}, 1), (2, {}, 3), (1, {"max_output_tokens": 2}, 1), (1, {"max_turns": 1}, 1), (1, {"max_turns": 2}, 2)],
    ids=str,
)
async def test_an_answer_that_never_fits_fails_within_the_limits(
    repairs: int, options: dict[str, Any], asked: int
) -> None:
    problem = 'The answer does not follow the schema: "born" is a required property.'
    with ScriptedModel([WRONG, usage(1, 2)], repeat_last=True) as model:
        async with model.connect() as client:
            fields: Any = {"model_ref": model.ref, "messages": "Who?", "output": Person, "output_repairs": repairs}
            with pytest.raises(makai.MakaiStreamError) as failed:
                await client.agent.run(**fields, options=options)
            model.assert_asked(asked)
            stream = client.agent.stream(**fields, options=options)
            events = [event async for event in stream]

    assert (failed.value.message, failed.value.code) == (problem, "invalid_output")
    assert (events[-1], stream.response) == (makai.ErrorEvent(message=problem, code="invalid_output"), None)
    assert sum(event.type in ("agent_end", "error") for event in events) == 1


async def test_a_value_that_only_the_type_refuses_is_asked_for_again() -> None:
    class Even(pydantic.BaseModel):
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def is_even(cls, number: int) -> int:
            if number % 2:
                raise ValueError("odd")
            return number

    with ScriptedModel('{"number": 1}', '{"number": 2}') as model:
        async with model.connect() as client:
            answer = await client.agent.run(model_ref=model.ref, messages="Even?", output=Even)

    assert answer.output == Even(number=2)
    model.assert_sent("The answer does not follow the schema: Value error, odd - at `$.number`.")


def test_the_synchronous_client_and_parts_of_messages_take_a_type_too() -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "Who?"}]}]
    with ScriptedModel(JSON) as model, model.connect_sync() as client:
        answer = client.agent.run(model_ref=model.ref, messages=parts, output=PersonStruct)

    assert answer.output == PersonStruct("Ada", 1815)
    model.assert_sent("Who?\n\nAnswer with one JSON value")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"output": object}, "object has no JSON Schema"),
        ({"output": "no schema"}, "The schema is not a JSON Schema"),
        ({"output": int, "output_repairs": 9}, "output_repairs is from 0 to 5"),
    ],
    ids=str,
)
async def test_a_type_that_cannot_be_answered_is_refused_before_a_model_is_asked(
    fields: dict[str, Any], said: str
) -> None:
    with ScriptedModel("Hi.") as model:
        async with model.connect() as client:
            with pytest.raises(makai.InvalidRequest, match=said):
                await client.agent.run(model_ref=model.ref, messages="Who?", **fields)
        model.assert_asked(0)
