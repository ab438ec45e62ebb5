"""The tool plan, and the schema every tool shows."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec
import pytest
from support.orphan_trials import Silent

from makai.core.errors import InvalidRequest
from makai.core.session_events import PlanEntry
from makai.tools.base import CallDescription, text_outcome
from makai.tools.edit import EditTool, WriteTool
from makai.tools.fetch import FetchTool
from makai.tools.files import ListTool, ReadTool
from makai.tools.plan import PlanTool, plan_of
from makai.tools.search import GlobTool, GrepTool
from makai.tools.shell import ShellTool

STEPS = {"steps": [{"content": "look", "status": "completed"}, {"content": "leap", "status": "in_progress"}]}


async def test_a_plan_is_answered_as_a_list_and_read_as_entries() -> None:
    assert await PlanTool().describe(STEPS) == CallDescription(kind="think", title="Plan: 1 of 2 steps done")
    assert await PlanTool().run(STEPS, Silent()) == text_outcome("[x] look\n[>] leap")
    assert plan_of(STEPS) == (
        PlanEntry(content="look", status="completed"),
        PlanEntry(content="leap", status="in_progress"),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"steps": [{"content": ""}]},
        {"steps": [{"content": "a", "status": "done"}]},
        {"steps": [{"content": "a", "owner": "me"}]},
        {"steps": [{"content": "a", "status": "in_progress"}, {"content": "b", "status": "in_progress"}]},
    ],
)
async def test_what_is_no_plan_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        plan_of(arguments)
    assert (await PlanTool().run(arguments, Silent())).is_error


@pytest.mark.req("MK-TOOL-001")
@pytest.mark.parametrize(
    "tool", [ReadTool, WriteTool, EditTool, ListTool, GlobTool, GrepTool, ShellTool, FetchTool, PlanTool]
)
def test_every_tool_has_a_schema_without_references_that_refuses_unknown_fields(tool: Any) -> None:
    schema = msgspec.json.decode(tool.definition.parameters_schema_json)

    jsonschema_rs.validator_for(schema)
    assert "$ref" not in tool.definition.parameters_schema_json
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    assert len(tool.definition.description) > 40
