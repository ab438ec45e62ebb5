"""Runs the native agent loop for sessions: the tools of a run, its permissions, and where a resumed run continues."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from makai.agent.host import CallerModels, InputModels, Models
from makai.agent.loop import run_agent, run_compaction
from makai.agent.settings import AgentOutcome, AgentSettings, Standing
from makai.core import session_events as ev
from makai.core.content import SessionPart, title_words
from makai.core.errors import AuthRequired, InvalidRequest, ModelNotFound, ModelRetired
from makai.core.lent_variables import CallerVariables
from makai.core.messages import UserMessage
from makai.core.model import ModelCapability
from makai.core.request import Context
from makai.core.session_terms import MAX_MCP_WAIT_S
from makai.core.tool_server_ids import check_server_ids
from makai.harness import base
from makai.harness.base import PlacedMessage, RunPort, Settlement
from makai.harness.budget import usd_left
from makai.harness.client_tools import EDITOR_CALLS, ClientTool
from makai.harness.deciding import decider
from makai.harness.native.workbench_pool import WorkbenchPool
from makai.harness.tool_servers import ServedTools, ToolServers, prefix_of
from makai.tools.base import Tool
from makai.tools.permissions.looking import LookingCalls
from makai.tools.permissions.rules import PermissionRules

if TYPE_CHECKING:
    from makai.agent.workbench import Workbench
    from makai.harness.native.editor import RunEditor

MCP_WAIT_S: Final = 3.0
"""How long a prompt waits for tool servers that are still starting, unless it says how long. The others join later."""
MCP_RESUME_WAIT_S: Final = 30.0
"""How long a resumed run waits for the servers whose tools it was about to call."""
MAX_TITLE_LENGTH: Final = 80


class NativeHarness:
    """`harness.base.SessionHarness` for the loop of `agent`."""

    id = "native"
    capabilities = ev.HarnessCapabilities()

    def __init__(self, models: Models, workbenches: WorkbenchPool, tool_servers: ToolServers) -> None:
        self._models = models
        self._workbenches = workbenches
        self._tool_servers = tool_servers

    def check(self, cwd: str | None, roots: tuple[str, ...], terms: ev.SessionTerms) -> None:
        _check_names(terms)
        if not terms.builtin_tools:
            if terms.mcp_servers:
                raise InvalidRequest("MCP servers of a client need the built-in tools (builtin_tools).")
            return
        if cwd is None:
            raise InvalidRequest("Built-in tools need a working directory (cwd).")
        for folder in (cwd, *roots):
            if not os.path.isabs(folder) or not os.path.isdir(folder):  # False also for a name that is too long
                raise InvalidRequest(f"{folder} is not a folder.", hint="Name an existing folder by its absolute path.")

    def check_input(self, model_ref: str, content: str | tuple[SessionPart, ...]) -> None:
        if not isinstance(content, str) and isinstance(self._models, InputModels):
            with suppress(ModelNotFound, ModelRetired, AuthRequired):  # the run says so, with the caller's variables
                self._models.check_input(model_ref, content)

    async def run(self, port: RunPort, start: base.RunStart) -> Settlement:
        return _naming_the_process(await self._run(port, start), port, start)

    async def _run(self, port: RunPort, start: base.RunStart) -> Settlement:
        match start:
            case base.StartCompaction(instructions=instructions):
                return await self._compact(port, instructions)
            case base.StartRun():
                return await self._answer(port, Standing())
            case base.ResumeRun():
                run, open_calls = port.run, await port.open_calls()
                standing = Standing(turns=run.turn, usage=run.usage, seconds=port.elapsed_s(), open_calls=open_calls)
                return await self._answer(port, standing)
            case _:
                assert_never(start)

    async def forget(self, session_id: str) -> None:
        await self._workbenches.forget(session_id)

    async def _answer(self, port: RunPort, standing: Standing) -> Settlement:
        placed, models = await port.conversation(), self._models_of(port)
        if not models.resolve(port.run.model_ref).can(ModelCapability.TOOLS):
            return await self._answer_with(port, standing, placed, None)
        async with self._workbenches.use(port.session_id, port.session) as bench:
            return await self._answer_with(port, standing, placed, bench)

    async def _answer_with(
        self, port: RunPort, standing: Standing, placed: Sequence[PlacedMessage], bench: Workbench | None
    ) -> Settlement:
        run, session = port.run, port.session
        settings = self._settings(port, run.terms, usd_left(port))
        built_in: Mapping[str, Tool] = {}
        editor: RunEditor | None = None
        rules = PermissionRules(workspace="/")
        system = session.terms.system
        if bench is not None:
            standing = await _with_servers(bench, port, standing)
            rules = bench.rules(run.terms.allow, run.terms.deny)
            editor = _editor(port)
            built_in = bench.built_in_tools(rules, editor)
            system = bench.system_prompt() if system is None else system
        elif session.terms.tools or session.terms.tool_servers:
            rules = self._workbenches.user_rules(run.terms)
        system = "\n\n".join(part for part in (system, session.terms.system_append) if part) or None
        own_tools = {
            definition.name: ClientTool(definition, port)
            for definition in session.terms.tools
            if not definition.name.startswith(EDITOR_CALLS)  # terms that changed later were not checked
        }

        await self._tool_servers.arrival(session.terms)
        served_tools = ServedTools(self._tool_servers, port)
        clients_own = set(own_tools)

        async def toolbox() -> Mapping[str, Tool]:
            """The tools that are up now. What is new about their servers is said in the turn that it applies to."""
            served, notices = served_tools.current()
            clients_own.update(served)
            mcp_tools: Mapping[str, Tool] = {}
            if bench is not None:
                mcp_tools = bench.server_tools()
                notices += bench.take_notices()
            for notice in notices:
                await port.emit(notice)
            return {**built_in, **mcp_tools, **served, **own_tools}

        if session.title == "" and run.run_number == 1 and (title := _title(placed)):
            await port.emit(ev.TitleChanged(title=title))
        context = Context(messages=tuple(each.message for each in placed), system_prompt=system)
        standing = msgspec.structs.replace(standing, places=_places(placed), usage_before=session.usage)
        looking = bench.looking if bench is not None else LookingCalls()
        decide = decider(port, rules, looking, clients_own, editor=editor)
        return _settlement(await run_agent(port, self._models_of(port), context, toolbox, decide, settings, standing))

    async def _compact(self, port: RunPort, instructions: str) -> Settlement:
        placed = await port.conversation()
        context = Context(messages=tuple(each.message for each in placed))
        settings, places = self._settings(port, ev.RunTerms()), _places(placed)
        return _settlement(
            await run_compaction(
                port, self._models_of(port), context, settings, instructions=instructions, places=places
            )
        )

    def _settings(self, port: RunPort, terms: ev.RunTerms, max_usd: float | None = None) -> AgentSettings:
        effort = terms.options.reasoning_effort or port.session.terms.reasoning_effort
        given_s = terms.options.retry_for_s
        retry_for_s = self._workbenches.max_retry_s() if given_s is None else given_s
        return AgentSettings(
            model=port.run.model_ref,
            options=msgspec.structs.replace(
                terms.options, session_id=port.session_id, reasoning_effort=effort, retry_for_s=retry_for_s
            ),
            max_turns=terms.max_turns,
            max_output_tokens=terms.max_output_tokens,
            max_usd=max_usd,
            allow_unknown_price=terms.allow_unknown_price,
            max_seconds=terms.max_seconds,
            tool_servers=tuple(map(prefix_of, port.session.terms.tool_servers)),
        )

    def _models_of(self, port: RunPort) -> Models:
        """The models with the keys and addresses of the caller that started the run."""
        models = self._models
        return models.for_caller(port.environ) if port.environ and isinstance(models, CallerModels) else models


async def _with_servers(bench: Workbench, port: RunPort, standing: Standing) -> Standing:
    """Wait for MCP servers as the run's terms say. What that took counts as time of the run."""
    began_at, terms = port.now(), port.run.terms
    called = {call.name.split("__")[1] for call in standing.open_calls if call.name.startswith("mcp__")}
    if called:
        await bench.ready(MCP_RESUME_WAIT_S, servers=called)
    elif terms.mcp_wait_s is None:
        await bench.ready(MCP_WAIT_S)
    else:
        left_s = MAX_MCP_WAIT_S if terms.max_seconds is None else max(terms.max_seconds - standing.seconds, 0.0)
        await bench.wait_for_servers(min(terms.mcp_wait_s, left_s, MAX_MCP_WAIT_S), port.emit)
    return msgspec.structs.replace(standing, seconds=standing.seconds + port.now() - began_at)


def _check_names(terms: ev.SessionTerms) -> None:
    """Refuse tools and MCP servers of a client that could be taken for something else, or cannot be used."""
    check_server_ids(terms.tool_servers)
    for tool in terms.tools:
        if tool.name.startswith(EDITOR_CALLS):
            raise InvalidRequest(f"No tool can be called {tool.name!r}.", hint=f"{EDITOR_CALLS} is a reserved name.")
    if not terms.mcp_servers:
        return
    from makai.tools.mcp.config import client_server

    names = [server.name for server in terms.mcp_servers]
    for server in terms.mcp_servers:
        if names.count(server.name) > 1:
            raise InvalidRequest(f"Two MCP servers are called {server.name!r}.")
        client_server(server.name, server, dict.fromkeys(server.env_names, ""), dict.fromkeys(server.header_names, ""))


def _editor(port: RunPort) -> RunEditor | None:
    """The editor of a session whose terms say that its client has files or terminals."""
    if port.session.terms.client == ev.ClientCapabilities():
        return None
    from makai.harness.native.editor import RunEditor

    return RunEditor(port)


def _places(placed: Sequence[PlacedMessage]) -> tuple[int, ...]:
    return tuple(each.event_id for each in placed)


def _settlement(outcome: AgentOutcome) -> Settlement:
    if outcome.error is not None:
        return base.run_failed(outcome.error, outcome.usage)
    return ev.RunFinished(stop_reason=outcome.stop_reason, usage=outcome.usage)


def _naming_the_process(settlement: Settlement, port: RunPort, start: base.RunStart) -> Settlement:
    """A missing key is explained when the process that had it is not, or no longer, connected to this one."""
    if not isinstance(settlement, ev.RunFailed) or settlement.code != "auth_required":
        return settlement
    if isinstance(start, base.ResumeRun):
        why = f"Process {os.getpid()} resumed this run with its own keys; those of the process that began it are gone."
    elif isinstance(port.environ, CallerVariables) and port.environ.have_ended:
        why = f"The process that began this run has left with its keys; process {os.getpid()} continued with its own."
    else:
        return settlement
    again = "Send a message from a shell that has the key to continue."
    hint = " ".join(part for part in (settlement.hint, why, again) if part)
    return msgspec.structs.replace(settlement, hint=hint)


def _title(placed: Sequence[PlacedMessage]) -> str:
    """The first line of the user's first message, until a better title is set."""
    for each in placed:
        content = each.said or (each.message.content if isinstance(each.message, UserMessage) else "")
        if line := " ".join(title_words(content).split()):
            return line if len(line) <= MAX_TITLE_LENGTH else line[: MAX_TITLE_LENGTH - 1].rstrip() + "…"
    return ""
