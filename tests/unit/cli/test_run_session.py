"""One question in a session: with the real engine, a log in memory and a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.acp_agent import AGENT_COMMAND

from makai.cli import run_session
from makai.cli.line_reader import LineReader
from makai.cli.run_output import RunInit, RunOutcome, TextOutput
from makai.cli.run_request import RunRequest
from makai.cli.run_session import run_in_session
from makai.cli.session_selection import shown_agent
from makai.core import session_events as ev
from makai.core.errors import MakaiError
from makai.core.request import StreamOptions, ToolDefinition
from makai.providers.runtime import ModelRuntime
from makai.providers.scenario import read_scenario
from makai.providers.scripted import ScriptedProvider
from makai.sessions.commands import Abort, Close, DenyCall, Send
from makai.sessions.log.encoding import decoded_one
from makai.sessions.log.memory import MemoryLog
from makai.sessions.owner import OwnedSessions
from makai.sessions.requests import CreateSession, GetState, ListApprovals, ListSessions, ReadEvents, RunCommand

MODEL = "scripted/scenario"
WRITE = 'tool: write {"path": "new.txt", "content": "hi"}'
PERSON = '{"type":"object","required":["name"]}'


class Kept(TextOutput):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self._wanted: type | None = None
        self._came = asyncio.Event()
        self.began_with: list[RunInit] = []
        self.events: list[ev.Logged] = []
        self.denials: list[tuple[ev.ApprovalRequested, str]] = []
        self.outcomes: list[RunOutcome] = []
        self.errors: list[tuple[MakaiError, RunOutcome | None]] = []

    def began(self, began: RunInit) -> None:
        self.began_with.append(began)

    def event(self, logged: ev.Logged) -> None:
        self.events.append(logged)
        if self._wanted is not None and isinstance(logged.event, self._wanted):
            self._came.set()

    async def sees(self, kind: type) -> None:
        """Wait for an event of this kind."""
        self._wanted = kind
        async with asyncio.timeout(60):
            while not any(isinstance(logged.event, kind) for logged in self.events):
                self._came.clear()
                await self._came.wait()

    def denied(self, request: ev.ApprovalRequested, reason: str) -> None:
        self.denials.append((request, reason))

    def ended(self, outcome: RunOutcome) -> None:
        self.outcomes.append(outcome)

    def failed(self, error: MakaiError, outcome: RunOutcome | None = None) -> None:
        self.errors.append((error, outcome))


class Place:
    """Sessions, models and a folder for a test."""

    def __init__(self, sessions: OwnedSessions, models: ModelRuntime, folder: Path) -> None:
        self.sessions = sessions
        self.models = models
        self.folder = folder

    async def run(self, question: str = "Hi", *, kept: Kept | None = None, **more: Any) -> tuple[int, Kept]:
        kept = kept or Kept()
        options: dict[str, Any] = {"model": MODEL, "cwd": str(self.folder), "tools": False} | more
        request = RunRequest(question=question, **options)
        async with asyncio.timeout(60):
            return await run_in_session(request, self.sessions, self.models, kept), kept

    async def begin(self, until: type, **more: Any) -> asyncio.Task[tuple[int, Kept]]:
        """A run, once such an event has come."""
        seen = Kept()
        running = asyncio.create_task(self.run(kept=seen, **more))
        await seen.sees(until)
        return running

    async def decisions(self, kept: Kept) -> list[ev.ApprovalDecided]:
        events = await self.log(kept.outcomes[0].session_id)
        return [event for event in events if isinstance(event, ev.ApprovalDecided)]

    async def log(self, session_id: str) -> list[Any]:
        records = await self.sessions.dispatch(ReadEvents(session_id))
        return [logged.event for logged in map(decoded_one, records) if isinstance(logged, ev.Logged)]

    def asked(self) -> list[list[str]]:
        """The roles of every request the model got."""
        provider = self.models.registry.provider_for(self.models.resolve(MODEL))
        assert isinstance(provider, ScriptedProvider)
        return [[message.__class__.__name__ for message in one.context.messages] for one in provider.requests]


@asynccontextmanager
async def place(tmp_path: Path, script: str) -> AsyncIterator[Place]:
    scenario, home, folder = tmp_path / "scenario.txt", tmp_path / "home", tmp_path / "folder"
    folder.mkdir()
    scenario.write_text(script)
    async with ModelRuntime({"MAKAI_SCENARIO": str(scenario), "MAKAI_HOME": str(home)}) as models:
        models.registry.register("scripted", ScriptedProvider(read_scenario(script)))  # it keeps its requests
        sessions = await OwnedSessions.open(home, models, log=MemoryLog())
        try:
            yield Place(sessions, models, folder)
        finally:
            await sessions.close()


async def test_a_question_becomes_a_session_and_its_answer_an_outcome(tmp_path: Path) -> None:
    async with place(tmp_path, "say: Hello there\nusage: input=3 output=2") as here:
        code, kept = await here.run("Say hello\nnow", system_prompt="Be brief.")
        (summary,) = await here.sessions.dispatch(ListSessions())
        state = await here.sessions.dispatch(GetState(summary.session_id))

    (outcome,) = kept.outcomes
    assert (code, outcome.text, outcome.stop_reason) == (0, "Hello there", "end_turn")
    assert (outcome.usage.input, outcome.usage.output, outcome.usage.cost_usd) == (3, 2, 0.0)
    assert (summary.title, summary.cwd, summary.mode) == ("Say hello now", str(here.folder), "ask")
    assert state.terms == ev.SessionTerms(system="Be brief.")
    ids: Any = {"session_id": summary.session_id, "run_id": kept.events[0].run_id or ""}
    terms: Any = {"cwd": str(here.folder), "permission_mode": "ask", "sandbox": "workspace-write", "tools": False}
    assert kept.began_with == [RunInit(model="scripted/scripted@scenario", **ids, **terms)]


async def test_the_newest_session_or_a_named_one_goes_on_with_what_was_said(tmp_path: Path) -> None:
    async with place(tmp_path, "say: ok") as here:
        _, first = await here.run("one")
        session_id = first.outcomes[0].session_id
        await here.run("two", continue_newest=True, model=None)
        code, third = await here.run("three", resume=session_id[:8], model=None, mode="plan", system_prompt="New.")
        state = await here.sessions.dispatch(GetState(session_id))
        sessions = await here.sessions.dispatch(ListSessions())

    assert (code, len(sessions), third.outcomes[0].session_id) == (0, 1, session_id)
    assert (state.mode, state.terms.system, state.run_counter) == ("plan", "New.", 3)
    turn = ["UserMessage", "AssistantMessage"]
    assert here.asked() == [turn[:1], [*turn, turn[0]], [*turn, *turn, turn[0]]]


async def test_an_unknown_session_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    async with place(tmp_path, "say: ok") as here:
        unknown = await here.run(resume="nothing")
        no_newest = await here.run(continue_newest=True)

    assert (unknown[0], no_newest[0], here.asked()) == (2, 2, [])
    assert unknown[1].errors[0][0].message == "there is no session 'nothing'."
    assert "there is no session to continue in" in no_newest[1].errors[0][0].message


async def test_a_busy_session_and_a_closed_one_say_what_to_do(tmp_path: Path) -> None:
    async with place(tmp_path, "stall") as here:
        model_ref = "scripted/scripted@scenario"
        busy = await here.sessions.dispatch(CreateSession(model_ref=model_ref))
        await here.sessions.dispatch(RunCommand(busy, Send(now=0, input_id="i", content="Hi")))
        closed = await here.sessions.dispatch(CreateSession(model_ref=model_ref))
        await here.sessions.dispatch(RunCommand(closed, Close(now=0)))
        results = [await here.run(resume=session_id, model=None) for session_id in (busy, closed)]

    assert [(code, kept.errors[0][0].code, kept.errors[0][0].hint) for code, kept in results] == [
        (1, "BUSY", f"Wait for it, or watch it: `makai -r {busy}`."),
        (1, "SESSION_CLOSED", f"Continue in a copy: `makai sessions fork {closed}`."),
    ]


@pytest.mark.parametrize(
    ("script", "code", "error_code"),
    [
        ("fail: auth_required No key.", 3, "auth_required"),
        ("fail: provider_error Broken.", 1, "provider_error"),
        ("say: Hello\ncut", 1, "provider_error"),
    ],
)
async def test_a_failed_run_is_told_with_its_code(tmp_path: Path, script: str, code: int, error_code: str) -> None:
    async with place(tmp_path, script) as here:
        result, kept = await here.run()

    ((error, outcome),) = kept.errors
    assert outcome is not None
    assert (result, error.code, getattr(error, "provider_id", None)) == (code, error_code, "scripted")
    assert (outcome.stop_reason, outcome.text) == ("error", "Hello" if "Hello" in script else "")


async def test_a_limit_that_ended_the_run_is_no_success(tmp_path: Path) -> None:
    async with place(tmp_path, "tool: nothing {}") as here:
        code, kept = await here.run(terms=ev.RunTerms(max_turns=2))

    ((error, outcome),) = kept.errors
    assert outcome is not None
    assert (code, error.code, error.message) == (1, "limit_turns", "The run reached its limit of 2 turns.")
    assert (outcome.stop_reason, len(here.asked())) == ("max_turns", 2)


@pytest.mark.parametrize(
    ("keep", "hint"),
    [
        (True, 'Give a higher --max-tokens, or have the rest written: `makai run -c "go on"`.'),
        (False, "Give a higher --max-tokens."),
    ],
)
async def test_an_answer_that_was_cut_is_no_success_and_says_what_to_do(tmp_path: Path, keep: bool, hint: str) -> None:
    async with place(tmp_path, "say: Once upon\nstop: max_tokens") as here:
        code, kept = await here.run(keep=keep)

    ((error, outcome),) = kept.errors
    assert outcome is not None
    assert (code, error.code, error.message) == (1, "limit_tokens", "the answer was cut at the length limit.")
    assert (error.hint, outcome.stop_reason, outcome.text) == (hint, "max_tokens", "Once upon")


async def test_a_run_that_another_client_stopped_is_no_success(tmp_path: Path) -> None:
    async with place(tmp_path, "say: Hello\nstall") as here:
        running = await here.begin(ev.AssistantTextDelta)
        found = await here.sessions.dispatch(ListSessions())
        await here.sessions.dispatch(RunCommand(found[0].session_id, Abort(now=0, by="web", reason="wrong folder")))
        code, kept = await running

    error, _ = kept.errors[0]
    assert (code, error.code, error.message) == (1, "aborted", "the run was stopped by web: wrong folder")


async def test_an_answer_that_does_not_fit_its_schema_is_a_failure(tmp_path: Path) -> None:
    terms = ev.RunTerms(options=StreamOptions(json_schema=PERSON))
    async with place(tmp_path, 'say: {}\n---\nsay: {"name": 1}') as here:
        misfit = await here.run(terms=terms)
        fit = await here.run(terms=terms, continue_newest=True)
        unusable = await here.run(terms=ev.RunTerms(options=StreamOptions(json_schema="[1]")))

    assert (misfit[0], misfit[1].errors[0][0].code, misfit[1].outcomes) == (1, "provider_error", [])
    assert (fit[0], fit[1].outcomes[0].text) == (0, '{"name": 1}')
    assert (unusable[0], unusable[1].began_with) == (2, [])


async def test_without_a_person_a_call_is_denied_at_once_and_the_model_is_told_how_to_allow_it(tmp_path: Path) -> None:
    async with place(tmp_path, f"{WRITE}\n---\nsay: Then not.") as here:
        code, kept = await here.run(tools=True)
        decided = await here.decisions(kept)

    ((request, reason),) = kept.denials
    assert (code, kept.outcomes[0].text, request.name) == (0, "Then not.", "write")
    assert [(event.decision, event.by, event.reason) for event in decided] == [("deny_continue", "run", reason)]
    assert reason == (
        "This needs an approval, and `makai run` has no terminal to ask on. "
        "Allow it with --allowed-tools 'Edit(./new.txt)'."
    )
    assert list(here.folder.iterdir()) == []


@pytest.mark.parametrize(
    "allowing", [{"mode": "accept_edits"}, {"mode": "never_ask"}, {"terms": ev.RunTerms(allow=("Write",))}]
)
async def test_a_mode_or_a_rule_of_the_run_lets_a_call_happen(tmp_path: Path, allowing: dict[str, Any]) -> None:
    async with place(tmp_path, f"{WRITE}\n---\nsay: Done.") as here:
        code, kept = await here.run(tools=True, **allowing)

    assert (code, kept.denials, kept.outcomes[0].text) == (0, [], "Done.")
    assert (here.folder / "new.txt").read_text() == "hi"


async def test_a_rule_of_the_run_denies_what_the_mode_would_allow(tmp_path: Path) -> None:
    async with place(tmp_path, f"{WRITE}\n---\nsay: Then not.") as here:
        code, kept = await here.run(tools=True, mode="never_ask", terms=ev.RunTerms(deny=("Write",)))

    assert (code, kept.denials, list(here.folder.iterdir())) == (0, [], [])


async def test_no_tools_in_a_session_that_has_some_counts_for_this_run_only(tmp_path: Path) -> None:
    tool = ToolDefinition(name="change", description="Changes.", parameters_schema_json='{"type":"object"}')
    async with place(tmp_path, "say: ok") as here:
        wanted = CreateSession(model_ref="scripted/scripted@scenario", terms=ev.SessionTerms(tools=(tool,)))
        session_id = await here.sessions.dispatch(wanted)
        await here.run(resume=session_id, model=None)
        state = await here.sessions.dispatch(GetState(session_id))

    assert state.run is not None
    assert state.run.terms.options.tool_choice is not None
    assert (state.run.terms.options.tool_choice.mode, state.terms.tools) == ("none", (tool,))


async def test_tool_servers_are_those_of_a_new_session_and_replace_those_of_an_old_one(tmp_path: Path) -> None:
    named: list[tuple[str, ...]] = []
    async with place(tmp_path, "say: ok") as here:
        await here.run(tool_servers=("desk",))
        (session,) = await here.sessions.dispatch(ListSessions())
        for servers in ((), ("desk", "lab")):
            await here.run(resume=session.session_id, model=None, tool_servers=servers)
            named.append((await here.sessions.dispatch(GetState(session.session_id))).terms.tool_servers)
        code, kept = await here.run(resume=session.session_id, model=None, tool_servers=("a__b",))

    assert named == [("desk",), ("desk", "lab")]
    assert (code, kept.errors[0][0].code) == (2, "invalid_request")


async def test_ctrl_c_aborts_the_run_and_waits_for_its_settlement(tmp_path: Path) -> None:
    async with place(tmp_path, "say: Hello\nstall") as here:
        running = await here.begin(ev.AssistantTextDelta)
        found = await here.sessions.dispatch(ListSessions())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        events = await here.log(found[0].session_id)

    assert ev.RunAborted(by="run", reason="Ctrl-C", token="local") in events
    assert isinstance(events[-1], ev.RunFinished)
    assert events[-1].stop_reason == "aborted"


async def test_a_missing_key_leaves_no_session_behind(tmp_path: Path) -> None:
    async with place(tmp_path, "say: ok") as here:
        code, kept = await here.run(model="groq/any")
        sessions = await here.sessions.dispatch(ListSessions())

    assert (code, kept.errors[0][0].code, sessions) == (3, "auth_required", [])


class Person:
    """Types into a pipe that the run takes for its terminal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reading, self._writing = os.pipe()
        monkeypatch.setattr(run_session, "_has_terminal", lambda: True)
        monkeypatch.setattr(run_session, "LineReader", lambda: LineReader(reading))

    def types(self, text: str) -> None:
        os.write(self._writing, text.encode())

    def leaves(self) -> None:
        os.close(self._writing)


@pytest.mark.parametrize(
    ("typed", "decision", "scope"),
    [
        ("maybe\nalso look\nyes, but\ny\n", "approve", "once"),
        ("s\n", "approve", "session"),
        ("2\na\ns\n", "approve", "session"),
        ("always\n", "approve", "always"),
        ("no\n", "deny_continue", "once"),
        ("", "deny_continue", "once"),
    ],
)
async def test_a_person_is_asked_until_the_answer_is_understood(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    decision: str,
    scope: str,
) -> None:
    person = Person(monkeypatch)
    person.types(typed)
    if not typed:
        person.leaves()
    async with place(tmp_path, f"{WRITE}\n---\nsay: Done.") as here:
        code, kept = await here.run(tools=True)
        decided = await here.decisions(kept)

    assert (code, kept.denials) == (0, [])
    assert [(event.decision, event.by, event.scope) for event in decided] == [(decision, "run", scope)]
    saved = "" if scope == "once" else "Edit" if typed.startswith("2") else "Edit(./new.txt)"
    assert [event.grant for event in decided] == [saved]
    assert (here.folder / "new.txt").exists() is (decision == "approve")
    shown = capsys.readouterr().err
    assert f"\nWrite new.txt?\n  new file {here.folder}/new.txt  +1 -0\n  1 + hi\n  Expires in 24 h\n" in shown
    assert (
        "  y allow once  n deny  Esc deny and stop\n"
        "  s allow for this session: Edit(./new.txt)\n  a allow always: Edit(./new.txt)\n"
        "  2 or choose all edits of this session: Edit\nYour answer, then Enter > "
    ) in shown


async def test_a_person_sees_a_long_command_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Person(monkeypatch).types("n\n")
    command = f"echo {'x' * 600}\n" + "\n".join(f"touch {number}" for number in range(50)) + "\nrm -rf \u202eend"
    async with place(tmp_path, f"tool: shell {json.dumps({'command': command})}\n---\nsay: Done.") as here:
        await here.run(tools=True)

    shown = capsys.readouterr().err
    expected = command.replace("\u202e", "\\u202e").split("\n")
    assert [line.strip() for line in shown.split("\n") if line.strip() in expected] == expected


async def test_a_question_that_is_decided_elsewhere_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Person(monkeypatch)
    async with place(tmp_path, f"{WRITE}\n---\nsay: Done.") as here:
        running = await here.begin(ev.ApprovalRequested, tools=True)
        (pending,) = await here.sessions.dispatch(ListApprovals())
        denial = DenyCall(now=0, call_id=pending.request.call_id, by="web")
        await here.sessions.dispatch(RunCommand(pending.session_id, denial))
        code, kept = await running

    assert (code, kept.outcomes[0].text) == (0, "Done.")
    assert "(decided by another client)" in capsys.readouterr().err


async def test_another_agent_answers_in_a_session_of_its_own_and_goes_on_there(tmp_path: Path) -> None:
    async with place(tmp_path, "say: not me") as here:
        code, first = await here.run("say Hello", agent=AGENT_COMMAND, model=None)
        (summary,) = await here.sessions.dispatch(ListSessions())
        again, second = await here.run("say Bye", continue_newest=True, model=None)
        refused, third = await here.run("Hi", agent="no-such-agent", model=None)

    assert (code, first.outcomes[0].text, again, second.outcomes[0].text) == (0, "Hello", 0, "Bye")
    assert (summary.harness, summary.model_ref) == (AGENT_COMMAND, "")
    assert shown_agent(summary) == AGENT_COMMAND.removeprefix("acp:")
    assert refused == 2
    assert "There is no agent or program 'no-such-agent'." in str(third.errors[0][0])
