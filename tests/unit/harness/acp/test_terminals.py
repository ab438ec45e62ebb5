"""The five terminal methods as makai serves them to an agent that it drives."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.served_agent import Served, rpc_refused, served_agent
from support.transports import eventually

from makai.core import session_events as ev
from makai.harness.acp.terminals import MAX_TERMINALS, OutputTail, command_line, exit_status
from makai.wire.acp.client_calls import TerminalExit, TerminalOutput

INTERNAL, INVALID, MISSING = -32603, -32602, -32002
ENDLESS = "echo up; sleep 1000"


async def until_output(served: Served, terminal_id: str, text: str) -> TerminalOutput:
    shown = served.agent.terminals.shown
    await eventually(lambda: text in (found.output if (found := shown(terminal_id)) else ""))
    return await served.output(terminal_id)


def running(*process_ids: str) -> list[str]:
    return [each for each in process_ids if Path(f"/proc/{each}").exists()]


@pytest.mark.req("ACP-TERM-002", "ACP-TERM-003", "ACP-CLIENT-009")
async def test_a_command_runs_with_its_arguments_variables_and_folder(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "never_ask") as served:
        folder = served.folder / "sub folder"
        folder.mkdir()
        terminal_id = await served.start(
            "sh", "-c", 'echo "$A|$NO_COLOR|$1"; pwd; echo problem >&2; exit 3', "sh", "it's",
            env={"A": "a 'b' $c", "NO_COLOR": "yes"}, cwd=str(folder),
        )  # fmt: skip
        assert await served.wait(terminal_id) == TerminalExit(exit_code=3)
        assert await served.output(terminal_id) == TerminalOutput(
            output=f"a 'b' $c|yes|it's\n{folder}\nproblem\n", truncated=False, exit_status=TerminalExit(exit_code=3)
        )


@pytest.mark.req("ACP-TERM-002", "ACP-TERM-003")
async def test_create_does_not_wait_and_output_has_no_status_before_the_end(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "never_ask") as served:
        terminal_id = await served.start(ENDLESS)
        assert await until_output(served, terminal_id, "up") == TerminalOutput(output="up\n", truncated=False)


@pytest.mark.req("ACP-TERM-004", "ACP-TERM-005", "ACP-CLIENT-009")
async def test_several_waiters_learn_of_a_kill_and_the_terminal_stays(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "never_ask") as served:
        terminal_id = await served.start(ENDLESS)
        await until_output(served, terminal_id, "up")
        waiting = [asyncio.create_task(served.wait(terminal_id)) for _ in range(5)]
        given_up = asyncio.create_task(served.wait(terminal_id))
        await asyncio.sleep(0)
        given_up.cancel()  # one that no longer waits takes nothing from the others
        began = time.monotonic()
        await served.kill(terminal_id)
        assert time.monotonic() - began < 10
        statuses = await asyncio.gather(*waiting)
        assert {status.signal for status in statuses} <= {"SIGTERM", "SIGKILL"}
        assert len(set(map(str, statuses))) == 1
        shown = TerminalOutput(output="up\n", truncated=False, exit_status=statuses[0])
        assert await served.output(terminal_id) == shown
        await served.kill(terminal_id)  # again: nothing happens
        assert await served.wait(terminal_id) == statuses[0]
        await served.release(terminal_id)
        for request in (served.output, served.wait, served.kill, served.release):
            with rpc_refused(MISSING, f"no terminal '{terminal_id}'"):
                await request(terminal_id)
        assert served.agent.terminals.shown(terminal_id) == shown


@pytest.mark.req("ACP-TERM-005", "ACP-CLIENT-009")
async def test_a_release_ends_the_command_with_all_it_started(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "never_ask", sandbox="full-access") as served:
        terminal_id = await served.start("sleep 1000 & echo $!; setsid sleep 1000 & echo $! up; wait")
        words = (await until_output(served, terminal_id, "up")).output.split()
        waiting = asyncio.create_task(served.wait(terminal_id))
        await asyncio.sleep(0)
        await served.release(terminal_id)
        assert (await waiting).signal in ("SIGTERM", "SIGKILL")
        assert running(*words[:2]) == []


@pytest.mark.req("ACP-CLIENT-009", "ACP-CLIENT-010")
async def test_the_end_of_the_agent_releases_all_terminals(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "never_ask", sandbox="full-access") as served:
        started = [await served.start("echo $$ up; exec sleep 1000") for _ in range(3)]
        shown = [(await until_output(served, terminal_id, "up")).output for terminal_id in started]
        await served.agent.terminals.close()
        assert running(*(text.split()[0] for text in shown)) == []
        with rpc_refused(MISSING, "no terminal"):
            await served.output(started[0])


@pytest.mark.req("ACP-TERM-006", "ACP-TERM-007")
@pytest.mark.parametrize(("limit", "kept"), [(0, ""), (1, ""), (3, "€"), (4, "€"), (5, "€"), (6, "€€"), (30, "€" * 10)])
async def test_output_is_cut_from_its_beginning_between_characters(tmp_path: Path, limit: int, kept: str) -> None:
    async with served_agent(tmp_path, "never_ask") as served:
        terminal_id = await served.start("printf '€€€€€'; printf '€€€€€'", output_byte_limit=limit)
        await served.wait(terminal_id)
        shown = await served.output(terminal_id)
        assert (shown.output, shown.truncated) == (kept, limit < 30)


async def test_output_without_a_limit_is_bounded_too(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "never_ask") as served:
        first = await served.start("head -c 3000000 /dev/zero | tr '\\0' x; echo end")
        second = await served.start("head -c 3000000 /dev/zero | tr '\\0' x; echo end", output_byte_limit=10**12)
        for terminal_id in (first, second):
            await served.wait(terminal_id)
            shown = await served.output(terminal_id)
            assert (len(shown.output), shown.output[-5:], shown.truncated) == (1024 * 1024, "xend\n", True)
        await served.release(first)
        kept = served.agent.terminals.shown(first)
        assert kept is not None
        assert (len(kept.output), kept.truncated) == (64 * 1024, True)


@pytest.mark.req("ACP-TERM-006", "ACP-TERM-007")
@given(st.lists(st.one_of(st.binary(max_size=20), st.text(max_size=8).map(str.encode))), st.integers(0, 40))
def test_the_tail_is_the_end_of_the_text_however_it_arrives(chunks: list[bytes], limit: int) -> None:
    tail = OutputTail(limit)
    for chunk in chunks:
        tail.add(chunk)
    tail.add(b"", final=True)
    whole = b"".join(chunks).decode("utf-8", "replace")
    assert whole.endswith(tail.text())
    assert len(tail.text().encode()) <= limit
    assert tail.truncated == (tail.text() != whole)
    if tail.truncated:
        left_out = whole[: len(whole) - len(tail.text())]
        assert len((left_out[-1:] + tail.text()).encode()) > limit


@pytest.mark.req("ACP-TERM-004")
@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, TerminalExit(exit_code=0)),
        (1, TerminalExit(exit_code=1)),
        (128, TerminalExit(exit_code=128)),
        (137, TerminalExit(signal="SIGKILL")),
        (143, TerminalExit(signal="SIGTERM")),
        (-9, TerminalExit(signal="SIGKILL")),
        (165, TerminalExit(exit_code=165)),
        (255, TerminalExit(exit_code=255)),
    ],
)
def test_an_exit_status_is_a_code_or_a_signal(code: int, status: TerminalExit) -> None:
    assert exit_status(code) == status


def test_a_command_without_arguments_is_a_command_line() -> None:
    assert command_line("echo a && ls | wc", ()) == "echo a && ls | wc"
    assert command_line("echo", ("a b", "$c")) == "echo 'a b' '$c'"
    assert command_line("my tool", ("x",)) == "'my tool' x"


@pytest.mark.parametrize(
    ("command", "args", "line"),
    [
        ("bash", ("-c", "echo a && ls"), "echo a && ls"),
        ("/usr/bin/bash", ("--noprofile", "--norc", "-c", "echo $PWD"), "echo $PWD"),
        ("bash", ("-c", "echo $1", "name", "x"), "bash -c 'echo $1' name x"),
        ("bash", ("-l", "-c", "ls"), "bash -l -c ls"),
        ("bash", ("-c",), "bash -c"),
        ("/tmp/bash", ("-c", "ls"), "/tmp/bash -c ls"),
        ("sh", ("-c", "ls"), "sh -c ls"),
    ],
)
def test_the_line_of_bash_is_the_command_line(command: str, args: tuple[str, ...], line: str) -> None:
    assert command_line(command, args) == line


async def test_a_program_whose_path_has_a_space_is_no_command_line(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "never_ask") as served:
        program = served.folder / "my tool"
        program.write_text("#!/bin/sh\necho ran\n")
        program.chmod(0o755)
        assert await served.result_of(str(program)) == ("ran\n", TerminalExit(exit_code=0))
        said, status = await served.result_of("no-such-program", "x")
        assert (status, "not found" in said) == (TerminalExit(exit_code=127), True)


@pytest.mark.req("ACP-CLIENT-009")
async def test_a_command_that_may_change_something_is_asked_about(tmp_path: Path) -> None:
    async with served_agent(tmp_path) as served:
        assert await served.result_of("pwd") == (f"{served.folder}\n", TerminalExit(exit_code=0))  # it only looks
        starting = asyncio.create_task(served.start("touch", "a b", env={"TERM": "dumb", "LD_PRELOAD": "./x.so"}))
        asked = await served.desk.until_asked()
        assert (asked.name, asked.arguments_json) == (
            "shell", '{"command":"export LD_PRELOAD=./x.so; touch \'a b\'"}',
        )  # fmt: skip
        await served.desk.deny(asked.call_id, "No.")
        with rpc_refused(INTERNAL, "Denied: No."):
            await starting
        starting = asyncio.create_task(served.start("touch", "a b", env={"TERM": "dumb"}))
        asked = await served.desk.until_asked()
        assert asked.arguments_json == '{"command":"touch \'a b\'"}'
        await served.desk.approve(asked.call_id)
        await served.wait(await starting)
        assert (served.folder / "a b").exists()
        starting = asyncio.create_task(served.start("pwd", env={"PATH": "."}))
        await served.desk.deny((await served.desk.until_asked()).call_id)
        with rpc_refused(INTERNAL, "Denied"):
            await starting


@pytest.mark.req("ACP-CLIENT-009")
async def test_in_plan_mode_a_command_that_may_change_something_is_refused(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "plan") as served:
        with rpc_refused(INTERNAL, "plan mode"):
            await served.start("touch a")
        assert (await served.result_of("ls"))[1] == TerminalExit(exit_code=0)


@pytest.mark.req("ACP-CLIENT-009")
async def test_commands_run_in_the_sessions_sandbox(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "never_ask") as served:
        await served.result_of(f"echo in > a; echo out > {tmp_path}/escaped; echo {os.getpid()} > .git 2>/dev/null")
        assert (served.folder / "a").read_text() == "in\n"
        assert not (tmp_path / "escaped").exists()


async def test_what_cannot_be_started_is_refused_with_its_code(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "never_ask") as served:
        with rpc_refused(INVALID, "is not an absolute path"):
            await served.start("ls", cwd="sub")
        with rpc_refused(MISSING, "does not exist"):
            await served.start("ls", cwd=str(served.folder / "missing"))
        with rpc_refused(INVALID, "outside the session's folders"):
            await served.start("ls", cwd=str(tmp_path))
        with rpc_refused(INVALID, "not be negative"):
            await served.start("ls", output_byte_limit=-1)
        with rpc_refused(INVALID, "not the name of a variable"):
            await served.start("ls", env={"A=1; rm -rf": "x"})
        with rpc_refused(INVALID, "NUL"):
            await served.start("ls", "a\0b")
        with rpc_refused(INVALID, "NUL"):
            await served.start("ls", env={"TERM": "a\0b"})
        with rpc_refused(INVALID, "The arguments do not fit|longer than"):
            await served.start("")
        with rpc_refused(INVALID, "is longer than 128,000 bytes"):
            await served.start("x" * 200_000)


async def test_the_number_of_terminals_is_bounded(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "never_ask", sandbox="full-access") as served:
        started = [await served.start("exec sleep 1000") for _ in range(MAX_TERMINALS)]
        with rpc_refused(INTERNAL, "Release one of them first"):
            await served.start("ls")
        await served.release(started[0])
        await served.start("ls")


async def test_a_command_that_left_a_protected_file_is_reported(tmp_path: Path) -> None:
    async with served_agent(tmp_path, "never_ask") as served:
        said, _ = await served.result_of("mkdir -p .vscode && echo '{}' > .vscode/tasks.json; echo done")
        assert said.startswith("done\n")
    notices = served.desk.events(ev.Notice)
    assert [notice.message in said for notice in notices] == [True] * len(notices)
