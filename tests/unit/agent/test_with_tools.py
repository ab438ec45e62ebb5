"""The loop with the model runtime and real tools: a scripted agent works on real files."""

from pathlib import Path

from support.agent import FakeHost, asked, fixed

from makai.agent.host import AgentHost, Models
from makai.agent.loop import run_agent
from makai.agent.settings import AgentSettings
from makai.core.session_events import FileDiff, ToolFinished
from makai.providers.runtime import ModelRuntime
from makai.tools.base import Tool
from makai.tools.edit import EditTool
from makai.tools.files import ReadTool
from makai.tools.workspace import Workspace

SCRIPT = """
tool: read {"path": "a.txt"}
tool: edit {"path": "a.txt", "old_text": "old", "new_text": "new"}
tool: read {"path": "a.txt"}
---
say: Done.
"""


async def test_a_scripted_agent_edits_a_file_between_two_reads(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/a.txt").write_text("the old words\n")
    (tmp_path / "script").write_text(SCRIPT)
    workspace = Workspace((tmp_path / "work",))
    tools: dict[str, Tool] = {tool.definition.name: tool for tool in (ReadTool(workspace), EditTool(workspace))}
    host = FakeHost()
    keeper: AgentHost = host
    async with ModelRuntime({"MAKAI_SCENARIO": str(tmp_path / "script")}, home=tmp_path / "home") as runtime:
        models: Models = runtime
        settings = AgentSettings(model="scripted/scripted@scenario")
        outcome = await run_agent(keeper, models, asked("Edit it"), fixed(tools), host.decide, settings)

    assert outcome.stop_reason == "end_turn"
    assert (tmp_path / "work/a.txt").read_text() == "the new words\n"
    before, edited, after = (fact for fact in host.facts if isinstance(fact, ToolFinished))
    assert "the old words" in str(before.content)
    assert "the new words" in str(after.content)
    assert [diff.new_text for diff in edited.diffs] == ["the new words\n"]
    assert host.questions[1][2] == (
        FileDiff(path=host.questions[1][2][0].path, old_text="the old words\n", new_text="the new words\n"),
    )
