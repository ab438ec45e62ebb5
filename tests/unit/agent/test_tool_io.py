"""Whatever a tool prints, the run continues and its log can hold it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.live_sessions import new_session

from makai.agent.tool_io import storable
from makai.core.content import Text
from makai.core.session_events import RunFinished, ToolFinished, ToolProgress


@pytest.mark.parametrize(
    ("text", "kept"),
    [("plain é 🎉", "plain é 🎉"), ("a\x00b\x00", "a\ufffdb\ufffd"), ("x\ud800y\udfff\x00", "x\ufffdy\ufffd\ufffd")],
    ids=["plain", "NUL", "halves"],
)
def test_only_what_cannot_be_kept_is_replaced(text: str, kept: str) -> None:
    assert storable(text) == kept


async def test_a_command_that_prints_nul_does_not_end_the_run(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    scenario = r'tool: shell {"command": "printf \"a\\\\0b\""}' + "\n---\nsay: Done."
    async with new_session(tmp_path, scenario, mode="full_access", cwd=project) as (_, client):
        await client.send("Print it")
        assert isinstance(await client.until_settled(), RunFinished)
        (finished,) = client.events(ToolFinished)
        assert (finished.content, finished.exit_code) == ((Text(text="a\ufffdb"),), 0)
        assert [shown.text for shown in client.events(ToolProgress)] == ["a\ufffdb"]


async def test_a_model_that_writes_nul_into_its_arguments_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    async with new_session(
        tmp_path, r'tool: shell {"command": "echo \u0000"}' + "\n---\nsay: Done.", mode="full_access", cwd=project
    ) as (_, client):
        await client.send("Print it")
        assert isinstance(await client.until_settled(), RunFinished)
        (finished,) = client.events(ToolFinished)
        assert finished.is_error
