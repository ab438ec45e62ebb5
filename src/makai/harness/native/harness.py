"""Runs the native agent loop for sessions: the tools of a run, its permissions, and where a resumed run continues."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from makai.agent.host import Decide, Models
from makai.agent.loop import run_agent, run_compaction
from makai.agent.settings import AgentOutcome, AgentSettings, Standing
from makai.core import session_events as ev
from makai.core.confinement import Confinement
from makai.core.content import Text
from makai.core.errors import InvalidRequest
from makai.core.messages import UserMessage
from makai.core.model import ModelCapability
from makai.core.request import Context
from makai.harness import base
from makai.harness.base import PlacedMessage, RunPort, Settlement
from makai.harness.client_tools import ClientTool
from makai.harness.native.workbench_pool import WorkbenchPool
from makai.tools.base import CallDescription, Tool
from makai.tools.permissions.judging import judge_call
from makai.tools.permissions.looking import LookingCalls
from makai.tools.permissions.rules import PermissionRules

if TYPE_CHECKING:
    from makai.agent.workbench import Workbench

MCP_WAIT_S: Final = 3.0
"""How long a prompt waits for tool servers that are still starting, unless it says how long. The others join later."""
MCP_RESUME_WAIT_S: Final = 30.0
"""How long a resumed run waits for the servers whose tools it was about to call."""
MAX_TITLE_LENGTH: Final = 80


class NativeHarness:
    """`harness.base.Harness` for the loop of `agent`."""

    id = "native"
    capabilities = ev.HarnessCapabilities()

    def __init__(self, models: Models, workbenches: WorkbenchPool) -> None:
        self._models = models
        self._workbenches = workbenches

    def check(self, cwd: str | None, roots: tuple[str, ...], terms: ev.SessionTerms) -> None:
        if terms.mcp_servers or terms.client != ev.ClientCapabilities():
            raise InvalidRequest("The native agent does not use MCP servers or files of a client yet.")
        if not terms.builtin_tools:
            return
        if cwd is None:
            raise InvalidRequest("Built-in tools need a working directory (cwd).")
        for folder in (cwd, *roots):
            if not Path(folder).is_absolute() or not Path(folder).is_dir():
                raise InvalidRequest(f"{folder} is not a folder.", hint="Name an existing folder by its absolute path.")

    async def run(self, port: RunPort, start: base.RunStart) -> Settlement:
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
        placed = await port.conversation()
        if not self._models.resolve(port.run.model_ref).can(ModelCapability.TOOLS):
            return await self._answer_with(port, standing, placed, None)
        async with self._workbenches.use(port.session_id, port.session) as bench:
            return await self._answer_with(port, standing, placed, bench)

    async def _answer_with(
        self, port: RunPort, standing: Standing, placed: Sequence[PlacedMessage], bench: Workbench | None
    ) -> Settlement:
        run, session = port.run, port.session
        built_in: Mapping[str, Tool] = {}
        rules = PermissionRules(workspace="/")
        system = session.terms.system
        if bench is not None:
            standing = await _with_servers(bench, port, standing)
            rules = bench.rules(run.terms.allow, run.terms.deny)
            built_in = bench.built_in_tools(rules)
            system = bench.system_prompt() if system is None else system
        own_tools = {definition.name: ClientTool(definition, port) for definition in session.terms.tools}

        async def toolbox() -> Mapping[str, Tool]:
            """The tools that are up now. What is new about their servers is said in the turn that it applies to."""
            if bench is None:
                return own_tools
            tools = {**built_in, **bench.server_tools(), **own_tools}
            for notice in bench.take_notices():
                await port.emit(notice)
            return tools

        if session.title == "" and run.run_number == 1 and (title := _title(placed)):
            await port.emit(ev.TitleChanged(title=title))
        context = Context(messages=tuple(each.message for each in placed), system_prompt=system)
        standing = msgspec.structs.replace(standing, places=_places(placed), usage_before=session.usage)
        decide = _decider(port, rules, own_tools, bench.looking if bench is not None else LookingCalls())
        return _settlement(
            await run_agent(port, self._models, context, toolbox, decide, _settings(port, run.terms), standing)
        )

    async def _compact(self, port: RunPort, instructions: str) -> Settlement:
        placed = await port.conversation()
        context = Context(messages=tuple(each.message for each in placed))
        settings, places = _settings(port, ev.RunTerms()), _places(placed)
        return _settlement(
            await run_compaction(port, self._models, context, settings, instructions=instructions, places=places)
        )


async def _with_servers(bench: Workbench, port: RunPort, standing: Standing) -> Standing:
    """Wait for MCP servers as the run's terms say. What that took counts as time of the run."""
    began_at, terms = port.now(), port.run.terms
    called = {call.name.split("__")[1] for call in standing.open_calls if call.name.startswith("mcp__")}
    if called:
        await bench.ready(MCP_RESUME_WAIT_S, servers=called)
    elif terms.mcp_wait_s is None:
        await bench.ready(MCP_WAIT_S)
    else:
        left_s = ev.MAX_MCP_WAIT_S if terms.max_seconds is None else max(terms.max_seconds - standing.seconds, 0.0)
        await bench.wait_for_servers(min(terms.mcp_wait_s, left_s, ev.MAX_MCP_WAIT_S), port.emit)
    return msgspec.structs.replace(standing, seconds=standing.seconds + port.now() - began_at)


def _decider(port: RunPort, rules: PermissionRules, own_tools: Collection[str], looking: LookingCalls) -> Decide:
    """Decides calls by rules, grants and the mode, and asks a person about what they leave open."""

    async def decide(
        call: ev.ToolCalled, description: CallDescription, diffs: tuple[ev.FileDiff, ...]
    ) -> ev.ApprovalDecided:
        is_own = call.name in own_tools
        opened = description.confinement
        if rules.asks_every_command and description.kind == "execute" and not is_own:
            opened = Confinement(unsandboxed=True)
        if (earlier := await port.earlier_decision(call, diffs, opened)) is not None:
            return earlier
        grants = await port.grants()
        mode = port.session.mode  # now: it may change during a run
        verdict = await judge_call(mode, rules, grants, call.name, description, is_clients_own=is_own)
        if verdict.decision != "deny" and description.problem:
            # The caller does not run it, so there is nothing to ask.
            return ev.ApprovalDecided(call_id=call.call_id, decision="approve", by=verdict.by)
        if verdict.decision == "ask":
            question = base.Question(
                call=call,
                title=description.title,
                diffs=diffs,
                grant=verdict.grant,
                grants=verdict.grants,
                confinement=opened,
            )
            return await port.decide(question)
        if verdict.looks_at is not None:
            looking.add(call.call_id)
        decided = ev.ApprovalDecided(
            call_id=call.call_id,
            decision="approve" if verdict.decision == "allow" else "deny_continue",
            by=verdict.by,
            reason=verdict.reason,
        )
        if verdict.decision == "deny" or verdict.by == "rule":
            await port.emit(decided)
        return decided

    return decide


def _places(placed: Sequence[PlacedMessage]) -> tuple[int, ...]:
    return tuple(each.event_id for each in placed)


def _settings(port: RunPort, terms: ev.RunTerms) -> AgentSettings:
    return AgentSettings(
        model=port.run.model_ref,
        options=msgspec.structs.replace(terms.options, session_id=port.session_id),
        max_turns=terms.max_turns,
        max_output_tokens=terms.max_output_tokens,
        max_usd=terms.max_usd,
        allow_unknown_price=terms.allow_unknown_price,
        max_seconds=terms.max_seconds,
    )


def _settlement(outcome: AgentOutcome) -> Settlement:
    if outcome.error is not None:
        return base.run_failed(outcome.error, outcome.usage)
    return ev.RunFinished(stop_reason=outcome.stop_reason, usage=outcome.usage)


def _title(placed: Sequence[PlacedMessage]) -> str:
    """The first line of the user's first message, until a better title is set."""
    for each in placed:
        content = each.message.content if isinstance(each.message, UserMessage) else ""
        text = content if isinstance(content, str) else next((p.text for p in content if isinstance(p, Text)), "")
        if line := " ".join(text.split()):
            return line if len(line) <= MAX_TITLE_LENGTH else line[: MAX_TITLE_LENGTH - 1].rstrip() + "…"
    return ""
