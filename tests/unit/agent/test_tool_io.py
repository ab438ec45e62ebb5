"""Whatever a tool prints, the run continues and its log can hold it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.live_sessions import new_session

from makai.core.content import Text
from makai.core.sanitize import REPLACED, sanitize_text
from makai.core.session_events import RunFinished, ToolFinished, ToolProgress


@pytest.mark.parametrize(
    ("text", "kept"),
    [("plain é 🎉", "plain é 🎉"), ("a\x00b\x00", "a\ufffdb\ufffd"), ("x\ud800y\udfff\x00", "x\ufffdy\ufffd\ufffd")],
    ids=["plain", "NUL", "halves"],
)
def test_only_what_cannot_be_kept_is_replaced(text: str, kept: str) -> None:
    assert sanitize_text(text) == kept


@pytest.mark.parametrize(
    ("call", "prints"),
    [
        pytest.param(r'tool: shell {"command": "printf \"a\\\\0b\""}', "a\ufffdb", id="a command that prints NUL"),
        pytest.param(r'tool: shell {"command": "echo \u0000"}', None, id="a model that writes NUL into its arguments"),
    ],
)
async def test_nul_does_not_end_the_run(tmp_path: Path, call: str, prints: str | None) -> None:
    (project := tmp_path / "project").mkdir()
    async with new_session(tmp_path, f"{call}\n---\nsay: Done.", mode="never_ask", cwd=project) as (_, client):
        assert isinstance(await client.run("Print it"), RunFinished)
        (finished,) = client.events(ToolFinished)
        assert finished.is_error == (prints is None)
        if prints is not None:
            assert (finished.content, finished.exit_code) == ((Text(text=prints), Text(text=REPLACED)), 0)
            assert [shown.text for shown in client.events(ToolProgress)] == [prints]
