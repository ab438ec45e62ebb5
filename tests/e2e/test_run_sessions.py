"""`makai run` in a session, as scripts and people at a terminal use it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from support.cli import Cli, interrupt

import makai

WRITE = 'tool: write {"path": "new.txt", "content": "hi"}'
SCENARIO = ("run", "-m", "scripted/scenario")
ANSWER = "Your answer, then Enter > "


class Here:
    """A home, a folder to work in and a scripted model."""

    def __init__(self, path: Path) -> None:
        self.home, self.folder = path / "home", path / "folder"
        self.home.mkdir(mode=0o700)
        self.folder.mkdir()
        self.makai = Cli(self.home)

    def environ(self, script: str) -> dict[str, str]:
        path = self.home.parent / "scenario.txt"
        path.write_text(script)
        return {"MAKAI_SCENARIO": str(path)}

    async def log(self, session_id: str) -> list[dict[str, object]]:
        """The events of a session, from the beginning."""
        exported = await self.makai("sessions", "export", session_id, "--format", "jsonl")
        return [msgspec.convert(line["event"], dict[str, object]) for line in exported.json_lines()]

    async def session_ids(self) -> list[str]:
        listed = (await self.makai("sessions", "list", "--all", "--json")).json()
        return [session["session_id"] for session in listed["sessions"]]


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


@asynccontextmanager
async def stalled(here: Here, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A run whose model says one word and then nothing."""
    environ = here.environ("say: Hello\nstall")
    command = (*SCENARIO, "--cwd", str(here.folder), *more, "Hi")
    async with here.makai.started(*command, environ=environ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        async with asyncio.timeout(60):
            assert await process.stdout.readexactly(5) == b"Hello"
        yield process


async def test_stream_json_begins_with_init_and_ends_with_the_result(here: Here) -> None:
    environ = here.environ(f"think: Hm\n{WRITE}\nusage: input=5 output=3\n---\nsay: Done it\nusage: input=2 output=2")
    more = ("--permission-mode", "acceptEdits", "--output-format", "stream-json")
    finished = await here.makai(*SCENARIO, *more, "--cwd", str(here.folder), "Write", environ=environ)

    first, *events, last = finished.json_lines()
    (session_id,) = await here.session_ids()
    assert (finished.code, finished.err) == (0, "")
    terms = {"cwd": str(here.folder), "permission_mode": "accept_edits", "sandbox": "workspace-write", "tools": True}
    began = {"type": "init", "session_id": session_id, "model": "scripted/scripted@scenario", "schema_version": 1}
    assert {name: first[name] for name in first if name != "run_id"} == {**began, **terms}
    kinds = [event["type"] for event in events if event["type"] not in ("text_delta", "thinking_delta", "notice")]
    assert kinds == [
        *("user_message", "turn_started", "reasoning", "tool_call", "turn_ended", "usage"),
        *("tool_started", "tool_finished"),
        *("turn_started", "assistant_text", "turn_ended", "usage"),
    ]
    numbers = [event["event_id"] for event in events]
    assert numbers == sorted(numbers, key=lambda number: int(str(number)))
    assert "".join(str(event["delta"]) for event in events if event["type"] == "text_delta") == "Done it"
    (called,) = [event for event in events if event["type"] == "tool_call"]
    assert (called["name"], called["arguments_json"]) == ("write", '{"path": "new.txt", "content": "hi"}')
    assert "vendor_call_id" not in called
    assert isinstance(last["duration_ms"], int)
    ended = {"type": "result", "stop_reason": "end_turn", "is_error": False, "cost_usd": 0.0}
    told = {name: last[name] for name in last if name not in ("duration_ms", "usage")}
    assert told == {**ended, "session_id": session_id, "text": "Done it"}
    assert (here.folder / "new.txt").read_text() == "hi"


async def test_a_script_that_allowed_nothing_is_told_how(here: Here) -> None:
    environ = here.environ(f"{WRITE}\n---\nsay: I may not.")
    finished = await here.makai(*SCENARIO, "--cwd", str(here.folder), "Write", environ=environ)

    assert (finished.code, finished.out) == (0, "I may not.\n")
    assert finished.err.startswith("makai: denied: ")
    assert "--allowed-tools '" in finished.err
    assert list(here.folder.iterdir()) == []

    rule = finished.err.partition("--allowed-tools '")[2].partition("'")[0]
    allowed = (*SCENARIO, "--cwd", str(here.folder), "--allowed-tools", rule)
    again = await here.makai(*allowed, "Write", environ=here.environ(f"{WRITE}\n---\nsay: Done."))
    assert (again.code, again.out, again.err) == (0, "Done.\n", "")
    assert (here.folder / "new.txt").exists()


async def test_a_denied_command_names_rules_that_allow_exactly_it(here: Here) -> None:
    command = 'tool: shell {"command": "cd sub && touch made"}'
    (here.folder / "sub").mkdir()
    there = (*SCENARIO, "--cwd", str(here.folder))
    denied = await here.makai(*there, "Go", environ=here.environ(f"{command}\n---\nsay: I may not."))

    rules = denied.err.partition("--allowed-tools '")[2].partition("'")[0]
    assert rules == "Bash(cd sub),Bash(touch made)"
    allowed = await here.makai(
        *there, "--allowed-tools", rules, "Go", environ=here.environ(f"{command}\n---\nsay: Done.")
    )
    assert (allowed.code, allowed.out, allowed.err) == (0, "Done.\n", "")
    assert [path.name for path in (here.folder / "sub").iterdir()] == ["made"]


async def test_a_session_is_continued_by_folder_and_by_id(here: Here) -> None:
    environ = here.environ("say: one\n---\nsay: two\n---\nsay: three")
    at = ("--cwd", str(here.folder))
    first = await here.makai(*SCENARIO, *at, "a", environ=environ)
    second = await here.makai("run", "-c", *at, "b", environ=environ)
    (session_id,) = await here.session_ids()
    third = await here.makai("-r", session_id[:8], "-p", "c", environ=environ)
    forgotten = await here.makai(*SCENARIO, "--no-session", *at, "d", environ=environ)

    assert [one.out for one in (first, second, third, forgotten)] == ["one\n", "two\n", "three\n", "one\n"]
    assert await here.session_ids() == [session_id]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("-r", "nothing"), 2, "there is no session 'nothing'"),
        (("-c",), 2, "to continue"),
        (("--cwd", "no-such-folder"), 2, "no-such-folder is not a folder"),
        (("--add-dir", "no-such-folder"), 2, "no-such-folder is not a folder"),
        (("--allowed-tools", "Bash(x"), 2, "--allowed-tools: permission rule 'Bash(x' cannot be read"),
        (("-m", "groq/any"), 3, "No API key for Groq"),
    ],
)
async def test_a_refused_run_leaves_no_session(here: Here, arguments: tuple[str, ...], code: int, says: str) -> None:
    finished = await here.makai("run", *arguments, "Hi")

    assert (finished.code, finished.out) == (code, "")
    assert says in finished.err
    assert "Traceback" not in finished.err
    assert await here.session_ids() == []


async def test_a_limit_ends_the_run_with_1_and_the_session_can_go_on(here: Here) -> None:
    environ = here.environ("tool: list {}")
    more = ("--max-turns", "2", "--output-format", "json", "--cwd", str(here.folder))
    finished = await here.makai(*SCENARIO, *more, "Look", environ=environ)

    result = finished.json()
    assert (finished.code, result["type"], result["error_code"]) == (1, "error", "limit_turns")
    assert (result["is_error"], result["stop_reason"]) == (True, "max_turns")
    assert result["session_id"] == (await here.session_ids())[0]


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_an_interrupted_run_is_over_in_its_session_too(here: Here, way: signal.Signals) -> None:
    async with stalled(here) as process:
        process.send_signal(way)
        async with asyncio.timeout(60):
            await process.communicate()
    (session_id,) = await here.session_ids()
    events = await here.log(session_id)

    assert process.returncode == 128 + way
    assert [event["type"] for event in events if str(event["type"]).startswith("run_")][-1] == "run_finished"
    assert events[-1]["stop_reason"] == "aborted"


async def test_another_process_sees_and_uses_the_sessions_of_a_running_one(here: Here) -> None:
    async with stalled(here) as process:
        (busy,) = await here.session_ids()
        refused = await here.makai("run", "-r", busy, "Me too")
        other = await here.makai("run", "-m", "scripted/echo", "--cwd", str(here.folder), "Beside it")
        looked = await here.makai("sessions", "repair", "--check")
        interrupt(process)
        await process.communicate()
    sessions = await here.session_ids()

    assert (refused.code, other.code, other.out, len(sessions)) == (1, 0, "Beside it\n", 2)
    assert refused.err == f"makai: A run is active.\n       Wait for it, or watch it: `makai -r {busy}`.\n"
    assert (looked.code, looked.out.partition(" with ")[0]) == (0, "2 sessions")


async def test_a_run_goes_on_when_the_process_that_carried_it_out_is_killed(here: Here) -> None:
    async with stalled(here) as owner:
        environ = here.environ("say: Hello\nwait: 1s\nsay: world")
        command = (*SCENARIO, "--cwd", str(here.folder), "--output-format", "stream-json", "Go on")
        async with here.makai.started(*command, environ=environ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            async with asyncio.timeout(60):
                while b'"text_delta"' not in await process.stdout.readline():
                    pass
                owner.kill()
                out, err = await process.communicate()

    events = [msgspec.json.decode(line, type=dict[str, object]) for line in out.splitlines()]
    numbers = [int(str(event["event_id"])) for event in events if "event_id" in event]
    assert (process.returncode, err) == (0, b"")
    assert "run_resumed" in [event["type"] for event in events]
    assert (events[-1]["type"], events[-1]["text"]) == ("result", "Helloworld")
    assert numbers == sorted(set(numbers))


async def test_a_person_at_the_terminal_is_asked_and_told_how_to_go_on(here: Here) -> None:
    environ = here.environ(f"{WRITE}\n---\nsay: Done it.")
    command = (*SCENARIO, "--cwd", str(here.folder), "Write")
    async with here.makai.on_terminal(*command, environ=environ) as terminal:
        await terminal.shows("Write new.txt?", "+ hi", ANSWER)
        await terminal.types("y\n", "Done it.", "continue with `makai run -r ")

        assert await terminal.ended() == 0
    assert (here.folder / "new.txt").read_text() == "hi"
    (session_id,) = await here.session_ids()
    decided = [event for event in await here.log(session_id) if event["type"] == "approval_decided"]
    assert [(event["decision"], event["by"]) for event in decided] == [("approve", "run")]


async def test_ctrl_c_during_a_question_leaves_nothing_done(here: Here) -> None:
    environ = here.environ(f"{WRITE}\n---\nsay: Done it.")
    command = (*SCENARIO, "--cwd", str(here.folder), "Write")
    async with here.makai.on_terminal(*command, environ=environ) as terminal:
        await terminal.shows(ANSWER)
        terminal.press("\x03")

        assert await terminal.ended() == 130
    assert list(here.folder.iterdir()) == []


async def test_a_terminal_reads_nothing_hidden_and_a_file_gets_the_exact_answer(here: Here) -> None:
    said = "safe \u202ecod.exe \u200b\U000e0041 \u05e9\u05dc\u05d5\u05dd over\rwrite"
    environ = here.environ("echo")
    command = (*SCENARIO, "--cwd", str(here.folder), said)
    piped = await here.makai(*command, environ=environ)
    assert piped.out == f"{said}\n"

    written_out = "safe \\u202ecod.exe \\u200b\\U000e0041 \u05e9\u05dc\u05d5\u05dd over\\rwrite"
    async with here.makai.on_terminal(*command, environ=environ) as terminal:
        await terminal.shows(written_out)
        assert await terminal.ended() == 0
    (session_id, *_) = await here.session_ids()
    for reading in (("sessions", "show", session_id), ("sessions", "export", session_id), ("sessions", "list")):
        async with here.makai.on_terminal(*reading, environ={"NO_COLOR": "1"}) as terminal:
            assert await terminal.ended() == 0
            assert not [sign for sign in terminal.screen if sign in "\u202e\u200b\U000e0041"], reading


async def _sandbox(here: Here, *more: str) -> tuple[str, str]:
    """The sandbox of a run, and what stderr says."""
    environ = here.environ("say: Done.")
    command = (*SCENARIO, "--cwd", str(here.folder), *more, "--output-format", "stream-json", "Hi")
    finished = await here.makai(*command, environ=environ)
    return str(finished.json_lines()[0].get("sandbox", finished.out)), finished.err


async def test_the_sandbox_is_that_of_the_flag_else_of_the_user_else_the_default(here: Here) -> None:
    project = here.folder / ".makai" / "config.toml"
    project.parent.mkdir()
    project.write_text('[sandbox]\nlevel = "full-access"\n')
    assert await _sandbox(here) == ("workspace-write", "")

    (here.home / "config.toml").write_text('[sandbox]\nlevel = "read-only"\n')
    assert await _sandbox(here) == ("read-only", "")
    level, told = await _sandbox(here, "--sandbox", "full-access")
    assert level == "full-access"
    assert "no sandbox (full-access): a command can read, change and send everything" in told

    assert (await _sandbox(here, "-c"))[0] == "full-access"
    assert (await _sandbox(here, "-c", "--sandbox", "workspace-write"))[0] == "workspace-write"
    (session_id, *_) = await here.session_ids()
    shown = await here.makai("sessions", "show", session_id)
    assert "- Sandbox: workspace-write\n" in shown.out
    as_json = (await here.makai("sessions", "show", session_id, "--json")).json()
    assert as_json["sandbox"] == "workspace-write"


async def test_a_sandbox_of_another_name_is_refused(here: Here) -> None:
    (here.home / "config.toml").write_text('[sandbox]\nlevel = "none"\n')
    refused = await here.makai("run", "-m", "scripted/echo", "Hi")
    assert (refused.code, refused.out) == (2, "")
    assert "sandbox.level" in refused.err
    flag = await here.makai("run", "--sandbox", "none", "Hi")
    assert flag.code == 2
    assert "'read-only', 'workspace-write', 'full-access'" in flag.err


async def test_escape_at_a_question_denies_and_stops_without_enter(here: Here) -> None:
    environ = here.environ(f"{WRITE}\n---\nsay: Done it.")
    async with here.makai.on_terminal(*SCENARIO, "--cwd", str(here.folder), "Write", environ=environ) as terminal:
        await terminal.shows(ANSWER)
        await terminal.types("\x1b[A\n", ANSWER)  # an arrow is another key that begins with Esc
        await terminal.types("\x1b", "you denied the call and stopped the run.")

        assert await terminal.ended() == 1
    assert list(here.folder.iterdir()) == []
    (session_id,) = await here.session_ids()
    decided = [event for event in await here.log(session_id) if event["type"] == "approval_decided"]
    assert [(event["decision"], event["by"]) for event in decided] == [("deny_abort", "abort")]


async def test_what_was_typed_before_a_question_is_no_answer_to_it(here: Here) -> None:
    environ = here.environ(f"say: Let me write.\nwait: 1s\n{WRITE}\n---\nsay: Done it.")
    async with here.makai.on_terminal(*SCENARIO, "--cwd", str(here.folder), "Write", environ=environ) as terminal:
        await terminal.shows("Let me write.")
        await terminal.types("y\na\n", "Write new.txt?", ANSWER)
        await terminal.types("n\n", "Done it.")

        assert await terminal.ended() == 0
    assert list(here.folder.iterdir()) == []


@pytest.mark.sqlite_file("damages the file")
async def test_a_home_that_cannot_be_used_says_what_to_do(here: Here) -> None:
    (here.home / "sessions.db").write_bytes(b"this is no database, and never was one" * 100)
    damaged = await here.makai("run", "-m", "scripted/echo", "Hi")
    without = await here.makai("run", "-m", "scripted/echo", "--no-session", "Hi")

    assert (damaged.code, damaged.out) == (1, "")
    assert "Run `makai sessions repair`" in damaged.err
    assert (without.code, without.out) == (0, "Hi\n")


@pytest.mark.req("MK-TOOL-012")
async def test_a_run_uses_the_tools_of_a_program_that_serves_them(here: Here) -> None:
    environ = here.environ("tool: desk__look {}\n---\nsay: Calm.")
    look = makai.AgentTool(name="look", execute=lambda arguments: "It is calm.")
    options = ("--tool-server", "desk", "--cwd", str(here.folder))
    connecting = makai.connect(environ={**environ, "MAKAI_HOME": str(here.home)})
    async with connecting as program, program.tools.serve("desk", tools=[look]):
        served = await here.makai(*SCENARIO, *options, "--output-format", "stream-json", "Look", environ=environ)
    alone = await here.makai(*SCENARIO, *options, "--no-session", "Look", environ=environ)

    results = [event for event in served.json_lines() if event["type"] == "tool_finished"]
    assert [(event["content"], event.get("is_error", False)) for event in results] == [
        ([{"type": "text", "text": "It is calm."}], False)
    ]
    assert (served.code, alone.code, alone.out) == (0, 2, "")
