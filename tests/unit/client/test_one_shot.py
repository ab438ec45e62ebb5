"""One-shot completion: schemas, values in words, repair, and the sessions behind it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pydantic
import pytest
from support.fixtures import FIXTURES

import makai
from makai.client.harness.opening import MakaiHarness, open_harness
from makai.core.errors import AgentFailed, AuthRequired, InvalidRequest, Unsupported
from makai.harness import complete as complete_once
from makai.harness import spawn_complete
from makai.harness.answer_schema import AnswerSchema
from makai.harness.contract import events as out
from makai.harness.contract.capabilities import Capabilities
from makai.harness.contract.endpoint import EndpointBinding
from makai.harness.contract.one_shot import OneShotMessage, OneShotRequest, OneShotResult
from makai.harness.contract.spec import Spec
from makai.providers.scripted import SCENARIO_VARIABLE

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "born": {"type": "integer"}},
    "required": ["name", "born"],
    "additionalProperties": False,
}
ADA = {"name": "Ada", "born": 1815}
DONE = out.ResultEvent(success=True, cost=out.CostData(input_tokens=1, num_turns=1))


class FakeHandle:
    session_id = ""

    def __init__(self, events: Sequence[out.Event], *, stays_open: bool = False) -> None:
        self._events = events
        self._stays_open = stays_open
        self.stops = 0

    async def __aiter__(self) -> AsyncIterator[out.Event]:
        for event in self._events:
            yield event
        if self._stays_open:
            await asyncio.Event().wait()

    async def inject(self, text: str) -> None: ...

    async def stop(self, *, grace_s: float = 5.0) -> None:
        self.stops += 1


class FakeHarness:
    """A harness that is nothing of makai's: each spawn plays the next script."""

    name = "fake"
    capabilities = Capabilities()

    def __init__(self, *scripts: Sequence[out.Event | str], stays_open: bool = False) -> None:
        self._scripts = [
            [out.AssistantTextEvent(text=event) if isinstance(event, str) else event for event in script]
            for script in scripts
        ]
        self._stays_open = stays_open
        self.specs: list[Spec] = []
        self.handles: list[FakeHandle] = []
        self.spawned = asyncio.Event()

    async def spawn(self, spec: Spec) -> FakeHandle:
        self.specs.append(spec)
        self.handles.append(FakeHandle(self._scripts[len(self.handles)], stays_open=self._stays_open))
        self.spawned.set()
        return self.handles[-1]

    async def resume(self, session_id: str, spec: Spec) -> FakeHandle:
        raise NotImplementedError

    async def shutdown(self) -> None: ...


def request(**fields: Any) -> OneShotRequest:
    return OneShotRequest(**{"messages": (OneShotMessage(content="Who?"),), "response_schema": SCHEMA, **fields})


@pytest.mark.req("DM-ONE-004", "DM-ONE-008", "DM-ONE-002", "DM-ONE-009")
async def test_a_session_is_told_the_schema_and_stopped_at_its_terminal_event() -> None:
    harness = FakeHarness(['Sure: {"name": "Ada", ', '"born": 1815}', DONE], stays_open=True)
    async with asyncio.timeout(10):
        result = await complete_once(harness, request(effort="low", model="m", system="Be brief."))

    assert result == OneShotResult(
        text='Sure: {"name": "Ada", "born": 1815}', structured=ADA, schema_ok=True, cost=DONE.cost
    )
    [spec] = harness.specs
    assert spec.prompt.startswith("Who?\n\nAnswer with one JSON value")
    assert json.dumps(SCHEMA, separators=(",", ":")) in spec.prompt
    assert (spec.response_schema, spec.effort, spec.model, spec.system_prompt_append) == (
        SCHEMA, "low", "m", "Be brief.",
    )  # fmt: skip
    assert [handle.stops for handle in harness.handles] == [1]


@pytest.mark.req("DM-ONE-003")
async def test_a_harness_that_completes_by_itself_spawns_a_session_only_when_it_is_told_to() -> None:
    class Completing(FakeHarness):
        async def complete(self, request: OneShotRequest) -> OneShotResult:
            return OneShotResult(text="by itself")

    harness, asked = Completing(["by a session", DONE]), request(response_schema=None)

    assert (await complete_once(harness, asked)).text == "by itself"
    assert harness.specs == []
    assert (await spawn_complete(harness, asked)).text == "by a session"


@pytest.mark.req("DM-ONE-001", "DM-ONE-002", "DM-ONE-009")
async def test_messages_become_a_conversation_and_the_model_of_the_endpoint_wins() -> None:
    harness = FakeHarness(['{"a": 1}', DONE])
    endpoint = EndpointBinding(company="c", model="of-the-endpoint", brings_own_auth=True)
    messages = (OneShotMessage(content="One"), OneShotMessage(role="assistant", content="Two"))
    asked = request(messages=messages, response_schema=None, model="m", endpoint=endpoint)
    result = await complete_once(harness, asked)

    assert result == OneShotResult(text='{"a": 1}')
    assert (harness.specs[0].prompt, harness.specs[0].model) == ("user: One\n\nassistant: Two", "of-the-endpoint")


@pytest.mark.req("DM-ONE-006")
@pytest.mark.parametrize("text", ["no JSON", '{"name": "Ada"', '{"name": 1, "born": 1815}', ""])
async def test_an_answer_that_does_not_follow_the_schema_is_no_error(text: str) -> None:
    result = await complete_once(FakeHarness([text, DONE]), request())

    assert result == OneShotResult(text=text, schema_ok=False, cost=DONE.cost)


@pytest.mark.req("DM-ONE-007")
@pytest.mark.parametrize(
    "script",
    [
        [out.ResultEvent(success=False, errors=("too bad",))],
        [out.AgentErrorEvent(message="too bad")],
        ["{}"],
        [out.AgentErrorEvent(message="too bad"), DONE],
    ],
)
async def test_a_session_that_fails_raises_and_is_stopped(script: Sequence[out.Event | str]) -> None:
    harness = FakeHarness(script)
    with pytest.raises(AgentFailed):
        await complete_once(harness, request())

    assert harness.handles[0].stops == 1


async def test_an_agent_that_acts_without_asking_completes_nothing_and_is_not_started(tmp_path: Path) -> None:
    """Its program was run with all permissions, on words that the caller may not have written."""
    program = tmp_path / "agy"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\necho Hi\n", encoding="utf-8")
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MAKAI_HOME": str(tmp_path / "home")}

    with pytest.raises(Unsupported, match="Antigravity acts without asking"):
        await makai.complete("antigravity", "Say hi", environ=environ)

    assert not (tmp_path / "started").exists()


async def test_an_agent_that_wants_a_login_says_so_by_its_kind_of_error() -> None:
    """`makai complete` exits with 3 for it."""
    with pytest.raises(AuthRequired, match="Not logged in"):
        await complete_once(
            FakeHarness([out.AgentErrorEvent(code="auth_required", message="Not logged in")]), request()
        )


@pytest.mark.req("DM-ONE-011")
async def test_cancelling_stops_the_session_and_raises() -> None:
    harness = FakeHarness(["Hm"], stays_open=True)
    completing = asyncio.create_task(complete_once(harness, request()))
    await asyncio.wait_for(harness.spawned.wait(), 10)
    completing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await completing

    assert harness.handles[0].stops == 1


@pytest.mark.req("DM-ONE-003")
async def test_a_harness_with_its_own_way_to_complete_is_not_spawned() -> None:
    class Direct(FakeHarness):
        async def complete(self, request: OneShotRequest) -> OneShotResult:
            return OneShotResult(text=f"direct {request.max_tokens}")

    harness = Direct()
    assert await complete_once(harness, request(max_tokens=7)) == OneShotResult(text="direct 7")
    assert harness.handles == []


@pytest.mark.req("DM-ONE-003", "DM-ONE-010")
async def test_the_native_harness_asks_the_model_directly(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.txt"
    scenario.write_text('say: ```json\n  {"name": "Ada", "born": 1815}\n  ```\nusage: input=5 output=4')
    environ = {"MAKAI_HOME": str(tmp_path), SCENARIO_VARIABLE: str(scenario)}
    answer = await makai.complete("scripted/scenario", "Who?", SCHEMA, environ=environ)

    assert (answer.structured, answer.schema_ok, answer.transport_used) == (ADA, True, "direct-api")
    assert answer.cost == out.CostData(input_tokens=5, output_tokens=4, num_turns=1)


@pytest.mark.req("DM-ONE-003", "DM-ONE-009")
async def test_the_native_harness_spawns_no_session_and_an_own_login_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: MakaiHarness, spec: Spec) -> None:
        raise AssertionError("a session is spawned")

    monkeypatch.setattr(MakaiHarness, "spawn", refuse)
    scenario = tmp_path / "scenario.txt"
    scenario.write_text("say: One.\nusage: input=5 output=4")
    own = EndpointBinding(model="scripted/scenario", brings_own_auth=True)
    async with open_harness("native", environ={SCENARIO_VARIABLE: str(scenario)}, home=tmp_path) as harness:
        paid = await complete_once(harness, request(response_schema=None, model="scripted/scenario"))
        free = await complete_once(harness, request(response_schema=None, endpoint=own))

    cost = out.CostData(input_tokens=5, output_tokens=4, num_turns=1)
    assert paid == OneShotResult(text="One.", cost=cost, transport_used="direct-api")
    assert free == OneShotResult(text="One.", transport_used="direct-api")


@pytest.mark.req("DM-ONE-005", "DM-ONE-008")
async def test_a_session_of_the_stub_completes(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin", "MAKAI_HOME": str(tmp_path)}
    async with open_harness("stub", environ=environ) as harness:
        answer = await makai.complete(harness, "Who?", SCHEMA, repairs=0)

    assert answer.text.endswith("WORK_RESULT:passed")
    assert (answer.schema_ok, answer.problem, answer.attempts) == (False, "The answer holds no JSON value.", 1)


async def test_an_answer_is_repaired_once_with_what_is_wrong_about_it() -> None:
    harness = FakeHarness(['{"name": "Ada"}', DONE], ['{"name": "Ada", "born": 1815}', DONE])
    answer = await makai.complete(harness, "Who?", SCHEMA)

    assert (answer.structured, answer.schema_ok, answer.attempts) == (ADA, True, 2)
    assert answer.cost == out.CostData(input_tokens=2, num_turns=2)
    assert 'user: Who?\n\nassistant: {"name": "Ada"}\n\nuser: The answer does not' in harness.specs[1].prompt
    assert '"born" is a required property' in harness.specs[1].prompt


async def test_repairs_are_bounded_and_no_invalid_value_is_returned() -> None:
    harness = FakeHarness(["[]", DONE], ["[]", DONE], ["[]", DONE])
    answer = await makai.complete(harness, "Who?", SCHEMA, repairs=2)

    assert (answer.schema_ok, answer.structured, answer.attempts, answer.text) == (False, None, 3, "[]")


class StructPerson(msgspec.Struct):
    name: str
    born: int


@dataclasses.dataclass
class DataPerson:
    name: str
    born: int


class ModelPerson(pydantic.BaseModel):
    name: str
    born: int


@pytest.mark.parametrize("kind", [StructPerson, DataPerson, ModelPerson])
async def test_a_type_is_a_schema_and_the_answer_an_instance(kind: type[Any]) -> None:
    answer = await makai.complete(FakeHarness([json.dumps(ADA), DONE]), "Who?", kind)

    assert answer.value == kind(**ADA)
    assert answer.schema_ok


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "nonsense"}, "not a JSON Schema"),
        ({"$ref": "#"}, "refers to itself"),
        ({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}, "refers to itself"),
        ({"allOf": [{"$ref": "#/allOf/0"}]}, "refers to itself"),
        ({"allOf": ({"$ref": "#"},)}, "refers to itself"),
        ({"$defs": {"a b": {"allOf": [{"$ref": "#/$defs/a%20b"}]}}, "$ref": "#/$defs/a%20b"}, "refers to itself"),
        ({"allOf": [{"$recursiveRef": "#"}]}, "refers to itself"),
        ({"dependentSchemas": {"a": {"$ref": "#"}}}, "refers to itself"),
        ({"dependencies": {"a": {"$ref": "#"}}}, "refers to itself"),
        ({"$defs": {"a": {"$anchor": "x", "$ref": "#x"}}, "$ref": "#/$defs/a"}, "refers to '#x', which"),
        ({"$dynamicAnchor": "n", "allOf": [{"$dynamicRef": "#n"}]}, "refers to '#n', which"),
        ({"$id": "http://e.test/s", "allOf": [{"$ref": "http://e.test/s"}]}, "refers to 'http://e.test/s', which"),
        ({"$id": "http://e.test/s.json", "allOf": [{"$ref": "s.json"}]}, "refers to 's.json', which"),
        ({"$defs": {"a": {"$id": "http://e.test/a", "allOf": [{"$ref": "#/$defs/b"}]}}}, "an id of its own"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "not": {"id": "http://e.test/a"}}, "an id of its own"),
        ({"$ref": "#/$defs/none"}, "refers to '#/\\$defs/none', which"),
        ({"$ref": "https://elsewhere.test/schema"}, "refers to 'https://elsewhere.test/schema', which"),
        ("[1", "not a JSON Schema"),
        (int.__add__, "has no JSON Schema"),
    ],
)
async def test_a_schema_that_cannot_be_used_is_refused_before_anything_is_asked(schema: Any, message: str) -> None:
    harness = FakeHarness()
    with pytest.raises(InvalidRequest, match=message):
        await makai.complete(harness, "Who?", schema)

    assert harness.specs == []


def test_references_to_parts_by_index_and_by_escaped_names_are_followed() -> None:
    schema = {"$defs": {"a b/c": {"anyOf": [{"type": "null"}, {"type": "object"}]}}}
    for reference, fits in (("#/$defs/a%20b~1c", "[null, {}]"), ("#/$defs/a%20b~1c/anyOf/1", "[{}]")):
        found = AnswerSchema({**schema, "items": {"$ref": reference}})
        assert found.find([fits]).is_valid
        assert not found.find(["[1]"]).is_valid


def test_a_schema_of_a_tree_is_fine() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}

    assert AnswerSchema(tree).find(['{"next": {"next": {}}}']).is_valid
    assert not AnswerSchema(tree).find(['{"next": {"next": {"x": 1}}}']).is_valid
    assert AnswerSchema(True).find(["[1]"]).is_valid
    assert not AnswerSchema(False).find(["[1]"]).is_valid


@pytest.mark.req("DM-ONE-005")
def test_a_valid_value_is_preferred_to_an_earlier_one_that_is_not() -> None:
    found = AnswerSchema(SCHEMA).find(
        ['For {"name": "Ada"}: {"name": "Ada", "born": 1815} or {"name": "B", "born": 1}']
    )

    assert found == (ADA, "")


@pytest.mark.req("DM-ONE-005", "DM-ONE-006")
def test_of_500_generated_answers_no_invalid_one_passes_and_every_plain_valid_one_does() -> None:
    generator, validator = random.Random(7), jsonschema_rs.validator_for(SCHEMA)
    schema = AnswerSchema(SCHEMA)
    missed, wrong = [], []
    for number in range(500):
        texts, has_valid = _generated(generator)
        found = schema.find(texts)
        if found.is_valid and not validator.is_valid(found.value):
            wrong.append((number, texts))
        if found.is_valid != has_valid:
            missed.append((number, texts))

    assert (wrong, missed) == ([], [])


def _generated(generator: random.Random) -> tuple[list[str], bool]:
    """An answer, and whether it holds a valid value."""
    valid = {
        "name": generator.choice(['A "quoted" one', "}{", "Ada\n", "日本", "\\"]),
        "born": generator.randrange(3000),
    }
    value: Any = valid
    how = generator.choice(["valid", "valid", "wrong type", "missing", "extra", "truncated", "no JSON"])
    match how:
        case "wrong type":
            value = {**valid, "born": str(valid["born"])}
        case "missing":
            value = {"name": valid["name"]}
        case "extra":
            value = {**valid, "more": 1}
    text = json.dumps(value, indent=generator.choice([None, 2]), ensure_ascii=generator.random() < 0.5)
    if how == "truncated":
        text = text[: generator.randrange(1, len(text) - 1)]
    elif how == "no JSON":
        text = "I cannot answer this."
    fence = generator.choice(["{}", "```json\n{}\n```", "```\n{}\n```"])
    before = generator.choice(["", "Here it is: ", "Use {braces} or [1]. ", 'Not {"name": 3}. ', "Look:\n"])
    after = generator.choice(["", "\nDone.", " Is that {right}?"])
    whole = before + ("\n" if fence != "{}" else "") + fence.replace("{}", text, 1) + after
    cut = generator.randrange(len(whole)) if generator.random() < 0.3 else len(whole)
    return [whole[:cut], whole[cut:]] if cut < len(whole) else [whole], how == "valid"


CAPTURED_SCHEMAS: tuple[dict[str, Any], ...] = (
    SCHEMA,
    {"type": "object"},
    {"type": "object", "required": ["agent_id"], "properties": {"agent_id": {"type": "string", "minLength": 1}}},
    {"type": "object", "required": ["command"], "additionalProperties": {"type": "string"}},
    {"type": "array", "items": {"type": "string"}, "minItems": 1},
    {"type": ["integer", "boolean", "null"]},
)


@pytest.mark.req("DM-ONE-005", "DM-ONE-006")
@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_of_all_words_that_agents_were_recorded_with_no_invalid_value_passes(agent: str) -> None:
    words: set[str] = set()
    for capture in sorted((FIXTURES / agent).glob("*.jsonl")):
        lines = capture.read_text(encoding="utf-8").splitlines()
        words.update(lines, *(_strings(json.loads(line)) for line in lines))
    valid, wrong = 0, []
    for schema in CAPTURED_SCHEMAS:
        validator, answers = jsonschema_rs.validator_for(schema), AnswerSchema(schema)
        for text in sorted(words):
            half = len(text) // 2
            for texts in ([text], [text[:half], text[half:]], [text[:half]]):
                found = answers.find(texts)
                valid += found.is_valid
                if found.is_valid and not validator.is_valid(found.value):
                    wrong.append((schema, texts))

    assert wrong == []
    assert valid > 500


def _strings(value: Any) -> list[str]:
    """Every text in a JSON value."""
    match value:
        case str():
            return [value]
        case list():
            return [text for part in value for text in _strings(part)]
        case dict():
            return [text for part in value.values() for text in _strings(part)]
    return []
