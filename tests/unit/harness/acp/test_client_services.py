"""Files and terminals that a driven agent uses through makai."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.acp_lab import AcpLab
from support.orphan_trials import processes_with, unique_mark
from support.transports import eventually

from makai.core import session_events as ev
from makai.core.approval_text import approval_text
from makai.core.confinement import Confinement
from makai.core.content import Text
from makai.tools.sandbox.detect import detect

TOOLS = ev.SessionTerms(builtin_tools=True)


def call(method: str, **params: Any) -> str:
    return f"call {method} {json.dumps(params)}"


@pytest.mark.req("ACP-CLIENT-001", "ACP-CLIENT-008")
async def test_files_are_offered_with_built_in_tools_and_served_beneath_the_sessions_folders(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    file = lab.work / "a.txt"
    file.write_text("one\ntwo\nthree\n")
    async with lab.session(terms=TOOLS) as (_, client):
        reads = [
            call("fs/read_text_file", path=str(file), line=2, limit=1),
            call("fs/read_text_file", path="/etc/passwd"),
            call("fs/read_text_file", path=str(file), sessionId="another"),
            call("_vendor/thing"),
        ]
        for read, said in zip(
            reads, ('{"content": "two\\n"}', "-32602", "-32602 There is no such session", "-32601"), strict=True
        ):
            await client.run(read)
            assert client.events(ev.AssistantText)[-1].text.startswith(said)
    assert lab.heard_of("initialize")[0]["clientCapabilities"] == {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
        "session": {"compaction": {}, "notices": {}},
        **({"_meta": {"makai.terminal_sandbox": "workspace-write"}} if detect().backend else {}),
    }


async def test_what_a_person_approved_in_the_agents_question_is_not_asked_a_second_time(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    file = lab.work / "a.txt"
    file.write_text("a\n")
    write = call("fs/write_text_file", path=str(file), content="b\n")
    async with lab.session(terms=TOOLS) as (_, client):
        await client.send(f"ask change edit {file}\n{write}")
        assert (await client.until_asked()).call_id == "change"
        await client.approve("change")
        await client.until_settled()
        assert len(client.events(ev.ApprovalRequested)) == 1
        assert file.read_text() == "b\n"
        # Another change is another question.
        await client.send(call("fs/write_text_file", path=str(file), content="c\n"))
        asked = await client.until_asked()
        assert (asked.name, asked.diffs[0].new_text) == ("write", "c\n")
        await client.deny(asked.call_id)
        await client.until_settled()
        assert client.events(ev.AssistantText)[-1].text == "-32603 Denied."
        assert file.read_text() == "b\n"


@pytest.mark.parametrize(
    ("method", "odd"),
    [
        ("fs/write_text_file", {"content": "a\0b"}),
        ("fs/write_text_file", {"name": "a\0b.txt", "content": "new"}),
        ("terminal/create", {"command": "touch", "args": ["a\0b"]}),
    ],
    ids=["content", "name", "argument"],
)
async def test_what_cannot_be_written_or_run_exactly_is_refused_and_not_mended(
    tmp_path: Path, method: str, odd: dict[str, Any]
) -> None:
    lab = AcpLab(tmp_path)
    (lab.work / "a.txt").write_text("old")
    before = sorted(lab.work.iterdir())
    params = {"path": f"{lab.work}/{odd.pop('name', 'a.txt')}", **odd} if "fs/" in method else odd
    async with lab.session(terms=TOOLS, mode="never_ask") as (_, client):
        await client.run(call(method, **params))
    assert client.events(ev.AssistantText)[-1].text.startswith("-32700 ")
    assert (sorted(lab.work.iterdir()), (lab.work / "a.txt").read_text()) == (before, "old")


@pytest.mark.req("ACP-CLIENT-009")
async def test_commands_run_in_terminals_of_the_session_and_end_with_the_agent(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session(terms=TOOLS, mode="never_ask") as (_, client):
        create = call("terminal/create", command="echo", args=["hello"])
        wait = call("terminal/wait_for_exit", terminalId="terminal-1")
        shown = {"sessionUpdate": "tool_call_update", "toolCallId": "run", "status": "completed", "title": "echo"}
        shown["content"] = [{"type": "terminal", "terminalId": "terminal-1"}]  # type: ignore[assignment]
        await client.run(
            f"{create}\n{wait}\n{call('terminal/release', terminalId='terminal-1')}\nupdate {json.dumps(shown)}"
        )
        said = "".join(event.text for event in client.events(ev.AssistantText))
        assert said == '{"terminalId": "terminal-1"}{"exitCode": 0}{}'
        assert client.events(ev.ToolFinished)[-1].content == (Text(text="hello\n"),)


@pytest.mark.req("ACP-CLIENT-009", "ACP-TERM-003", "ACP-TERM-005")
async def test_an_agent_kills_a_command_and_reads_its_output_until_it_releases_the_terminal(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    named = {"terminalId": "terminal-1"}
    async with lab.session(terms=TOOLS, mode="never_ask") as (_, client):
        steps = [call("terminal/create", command="trap 'exit 7' TERM; sleep 1000 & wait"), *(
            call(f"terminal/{method}", **named) for method in ("output", "kill", "wait_for_exit", "output", "release")
        ), call("terminal/output", **named)]  # fmt: skip
        said = []
        for step in steps:
            await client.run(step)
            said.append(client.events(ev.AssistantText)[-1].text)
    assert said[:3] == ['{"terminalId": "terminal-1"}', '{"output": "", "truncated": false}', "{}"]
    ended = json.loads(said[3])
    assert ended.keys() <= {"exitCode", "signal"}
    assert json.loads(said[4]) == {"output": "", "truncated": False, "exitStatus": ended}
    assert said[5:] == ["{}", "-32002 There is no terminal 'terminal-1'."]


@pytest.mark.req("ACP-CLIENT-010")
@pytest.mark.parametrize("end", ["die 3", "junk 1100"])
async def test_the_terminals_of_an_agent_that_ends_or_breaks_the_protocol_end_with_it(tmp_path: Path, end: str) -> None:
    lab = AcpLab(tmp_path)
    mark = unique_mark()
    terms = ev.SessionTerms(builtin_tools=True, sandbox="full-access")
    async with lab.session(terms=terms, mode="never_ask") as (_, client):
        await client.run(call("terminal/create", command="sh", args=["-c", "sleep 1000 & wait", mark]))
        await eventually(lambda: processes_with(mark) != [])
        assert isinstance(await client.run(f"{end}\nstuck"), ev.RunFailed)
        assert processes_with(mark) == []


async def test_a_command_that_a_person_approved_runs_without_a_second_question(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session(terms=TOOLS) as (_, client):
        await client.send(f"ask touch-x execute\n{call('terminal/create', command='touch-x')}")
        await client.until_asked()
        await client.approve("touch-x")
        await client.until_settled()
        assert len(client.events(ev.ApprovalRequested)) == 1
        await client.send(call("terminal/create", command="touch-x"))
        asked = await client.until_asked()
        assert json.loads(asked.arguments_json)["command"] == "touch-x"
        await client.deny(asked.call_id)
        await client.until_settled()


@pytest.mark.parametrize("terms", [TOOLS, ev.SessionTerms()], ids=["terminals", "none"])
async def test_a_question_about_a_command_says_that_makai_does_not_confine_the_agents_process(
    tmp_path: Path, terms: ev.SessionTerms
) -> None:
    lab = AcpLab(tmp_path)
    async with lab.session(terms=terms) as (_, client):
        await client.send("ask rm execute\nask f edit")
        command = await client.until_asked()
        await client.deny("rm")
        edit = await client.until_asked()
        await client.deny("f")
        await client.until_settled()
    assert (command.confinement, edit.confinement) == (
        Confinement(agent="Scripted", agent_terminals=terms.builtin_tools),
        Confinement(),
    )
    opened = [line.text for line in approval_text(command).lines if line.kind == "opened"]
    place = "+ in the process of Scripted, outside of makai's sandbox"
    assert opened == [f"{place}, unless it uses a terminal of makai" if terms.builtin_tools else place]


async def test_a_command_that_was_approved_for_one_folder_is_asked_about_in_another(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    (lab.work / "sub").mkdir()
    async with lab.session(terms=TOOLS) as (_, client):
        create = call("terminal/create", command="touch-x", cwd=str(lab.work / "sub"))
        await client.send(f"ask touch-x execute\n{create}")
        await client.until_asked()
        await client.approve("touch-x")
        asked = await client.until_asked()
        assert json.loads(asked.arguments_json) == {"command": "touch-x", "directory": str(lab.work / "sub")}
        await client.deny(asked.call_id)
        await client.until_settled()


async def test_a_command_is_asked_about_although_its_agent_called_it_an_accepted_edit(tmp_path: Path) -> None:
    lab = AcpLab(tmp_path)
    (lab.work / "a.txt").write_text("a\n")
    async with lab.session(mode="accept_edits", terms=TOOLS) as (_, client):
        lie = f"ask touch-x edit {lab.work / 'a.txt'}"
        await client.send(f"{lie}\n{call('terminal/create', command='touch-x')}")
        asked = await client.until_asked()
        assert json.loads(asked.arguments_json) == {"command": "touch-x"}
        await client.deny(asked.call_id)
        await client.until_settled()
    assert [decided.by for decided in client.events(ev.ApprovalDecided)] == ["mode", "tester"]
