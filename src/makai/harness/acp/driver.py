"""Runs an external agent as the harness of a session: `acp:NAME`, `acp:COMMAND LINE`, or the name of a driver.

The agent keeps its conversation, its tools and its model itself. makai gives it the prompts, logs what it says, answers
its questions by people or the session's mode, and finds its session again by its own id after a restart. What a prompt
of a dead agent had begun cannot be continued, so such a run ends as interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from makai.agent.workbench import Workbench
from makai.aio.tasks import BackgroundTasks
from makai.core import session_events as ev
from makai.core.config import AgentConfig
from makai.core.content import SessionPart, Text, with_note
from makai.core.errors import InvalidRequest, SessionNotFound
from makai.core.lent_variables import CallerVariables
from makai.harness.acp.agent_run import AgentRun, first_line
from makai.harness.acp.client_services import BenchServices, NoServices
from makai.harness.acp.connection import AgentTransport, start_process
from makai.harness.acp.driven_agent import DrivenAgent, Opened
from makai.harness.acp.ignored_settings import ignored_of_run, ignored_of_session
from makai.harness.acp.known_agents import AgentSpec, agent_of
from makai.harness.acp.peer import AgentLaunch, StartTransport
from makai.harness.acp.pool import AgentPool
from makai.harness.acp.transcript import transcript
from makai.harness.base import RunPort, RunStart, Settlement, StartRun
from makai.harness.budget import usd_left
from makai.harness.editor_calls import MCP_VALUES, McpValuesRequest, ask_editor
from makai.harness.native.workbench_pool import WorkbenchPool
from makai.harness.reported_calls import USER_INPUT_TOOLS
from makai.providers.logins import CONFIG_FILE, read_config
from makai.tools.commands import BLOCKLIST_VARIABLE
from makai.tools.launching import launcher
from makai.tools.permissions.rules import PermissionRules, Rule, parse_rule

CAPABILITIES: Final = ev.HarnessCapabilities(
    has_turns=False, needs_model=False, resume=False, compact=False, own_approvals=True
)


class AcpAgents:
    """The external agents of a process, and the processes that run for its sessions."""

    def __init__(
        self,
        home: Path,
        tasks: BackgroundTasks,
        workbenches: WorkbenchPool,
        *,
        environ: Mapping[str, str] | None = None,
        start: StartTransport = start_process,
        on_process: Callable[[str, int], None] | None = None,
    ) -> None:
        """`on_process` is called with a session and the id of each process that is started to answer its prompts."""
        self._home = home
        self._pool = AgentPool(tasks)
        self._workbenches = workbenches
        self._environ = os.environ if environ is None else environ
        self._start = start
        self._on_process = on_process

    def get(self, harness_id: str) -> AcpHarness:
        return AcpHarness(
            harness_id, self._pool, self._workbenches, self._environ, self._start, self._configured, self._on_process
        )

    def _configured(self) -> Mapping[str, AgentConfig]:
        """Read when it is needed: an agent that was added to the file can be used at once."""
        return read_config(self._home / CONFIG_FILE).agents


class AcpHarness:
    """`harness.base.SessionHarness` for one agent."""

    capabilities = CAPABILITIES

    def __init__(
        self,
        harness_id: str,
        pool: AgentPool,
        workbenches: WorkbenchPool,
        environ: Mapping[str, str],
        start: StartTransport,
        configured: Callable[[], Mapping[str, AgentConfig]],
        on_process: Callable[[str, int], None] | None = None,
    ) -> None:
        self.id = harness_id
        self._pool = pool
        self._workbenches = workbenches
        self._environ = environ
        self._start = start
        self._configured = configured
        self._on_process = on_process

    def check(self, cwd: str | None, roots: tuple[str, ...], terms: ev.SessionTerms) -> None:
        spec = self._spec()
        if cwd is None or not os.path.isabs(cwd) or not os.path.isdir(cwd):
            raise InvalidRequest(f"{spec.title} needs a folder to work in.", hint="Name an existing one as `cwd`.")
        if terms.system is not None:
            raise InvalidRequest(
                f"{spec.title} has instructions of its own.", hint="Say what you want in the prompt instead."
            )
        if terms.tools or terms.tool_servers:
            raise InvalidRequest(
                f"{spec.title} cannot use tools that a client declares.", hint="Offer them as an MCP server instead."
            )
        spec.argv(cwd, self._environ)

    def not_taken(self, terms: ev.SessionTerms) -> list[str]:
        spec = self._spec()
        return [
            *ignored_of_session(terms, spec),
            *(["max_usd"] if terms.max_usd is not None and not spec.reports_cost else ()),
        ]

    async def run(self, port: RunPort, start: RunStart) -> Settlement:
        if not isinstance(start, StartRun):
            raise InvalidRequest("An external agent answers prompts only.")
        spec, cwd = self._spec(), port.session.cwd
        assert cwd is not None, "`check` refuses a session without a folder"
        _check_budget(port, spec)
        if not spec.asks and port.session.mode != "never_ask":
            raise InvalidRequest(
                f"{spec.title} acts without asking, and outside of makai's sandbox.",
                hint="If you want that, use it in the mode never_ask (`--mode never_ask`, or /mode never_ask).",
            )
        launcher().start()  # before the agent can write a file

        async with self._workbenches.use(port.session_id, port.session, client_servers=False) as bench:
            rules = self._rules(port, bench, cwd)

            async def started() -> DrivenAgent:
                services = NoServices() if bench is None else BenchServices(bench.command_sandbox)
                named = spec.with_model(port.session.model_ref)
                noted = None if self._on_process is None else partial(self._on_process, port.session_id)
                return await DrivenAgent.start(named, launch, environ, services, start_with_chosen, noted)

            async def start_with_chosen(argv: Sequence[str], env: dict[str, str], folder: str) -> AgentTransport:
                return await self._start(argv, _layered(env, chosen), folder)

            environ, chosen = _variables(self._environ, port.environ)
            launch = _launch(port, spec, cwd)
            key = (spec, launch, None if bench is None else bench.command_sandbox, dict(port.environ))
            async with self._pool.use(port.session_id, key, started) as agent:
                await agent.services.begin(port, bench)
                try:
                    return await _answered(port, agent, start.input_id, rules)
                finally:
                    agent.services.end()

    async def forget(self, session_id: str) -> None:
        await self._pool.stop(session_id)
        await self._workbenches.forget(session_id)

    def _rules(self, port: RunPort, bench: Workbench | None, cwd: str) -> PermissionRules:
        """The rules for the agent's questions: those that restrict, of the user, a trusted project and the run, and
        what the run allows. Written rules that allow are for makai's own tools in their sandbox."""
        takes, terms = self._spec().takes, port.run.terms
        allow, deny = _readable(terms.allow, "allow" in takes), _readable(terms.deny, "deny" in takes)
        written = self._workbenches.user_rules(ev.RunTerms()) if bench is None else bench.rules()
        return PermissionRules(workspace=cwd, allow=allow, ask=written.ask, deny=(*written.deny, *deny))

    def _spec(self) -> AgentSpec:
        return agent_of(self.id, self._configured())


def _readable(rules: Sequence[str], is_taken: bool) -> tuple[Rule, ...]:
    """`InvalidRequest` for a rule that cannot be read, unless the agent takes rules itself: it may know others."""
    found: list[Rule] = []
    for text in rules:
        try:
            found.append(parse_rule(text))
        except InvalidRequest:
            if not is_taken:
                raise
    return tuple(found)


def _variables(own: Mapping[str, str], callers: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The variables of both processes with the blocklists of both, and those that the caller chose for the run: no
    blocklist holds for them (DM-SPEC-011)."""
    inherited = callers.inherited if isinstance(callers, CallerVariables) else frozenset[str]()
    chosen = {name: value for name, value in callers.items() if name not in inherited}
    lists = (environ.get(BLOCKLIST_VARIABLE, "") for environ in (own, callers))
    return {**_layered(own, callers), BLOCKLIST_VARIABLE: " ".join(lists)}, chosen


def _layered(own: Mapping[str, str], callers: Mapping[str, str]) -> dict[str, str]:
    """The environment with the caller's variables. One that the caller says is not set there ("") is not set."""
    return {name: value for name, value in {**own, **callers}.items() if value or name not in callers}


async def _answered(port: RunPort, agent: DrivenAgent, input_id: str, rules: PermissionRules) -> Settlement:
    content = said = (await port.input(input_id)).content
    if await _open(port, agent) in ("new", "forgotten") or not agent.spec.remembers:
        content = await _with_transcript(port, agent, said)
    for note in reversed(port.session.restored):  # its own memory does not know of an undo
        content = with_note(note, content)
    run = AgentRun(port, agent, rules)
    if port.run.run_number == 1:
        await run.log_title(first_line(said))
    return await run.carry_out(content)


async def _with_transcript(
    port: RunPort, agent: DrivenAgent, said: str | tuple[SessionPart, ...]
) -> str | tuple[SessionPart, ...]:
    """The input after what was said before it: the agent begins a session of its own, and has no memory of ours."""
    *before, _ = await port.conversation()  # the last message is the input itself
    text = transcript([placed.message for placed in before])
    if text is None:
        return said
    if agent.spec.remembers:
        message = f"{agent.spec.title} begins a session of its own, with the transcript of this one."
        await port.emit(ev.Notice(level="info", code="agent_got_transcript", message=message))
    return (text, Text(text=said)) if isinstance(said, str) else (text, *said)


async def _open(port: RunPort, agent: DrivenAgent) -> Opened:
    """Have a session with the mode and the model that were chosen, and log what it offers."""
    session, terms = port.session, port.session.terms
    known = terms.agent_session_id or None if session.agent is None else session.agent.agent_session_id
    if not agent.spec.remembers:
        known = None
    opened = await agent.open(known, terms.mcp_servers, await _mcp_values(port), session.roots)
    choices = agent.choices
    assert choices is not None
    if opened == "forgotten" and session.agent is None:
        raise SessionNotFound(f"{agent.spec.title} knows no session {known!r}.")
    if opened == "forgotten":
        message = f"{agent.spec.title} did not find its earlier session."
        await port.emit(ev.Notice(level="warning", code="agent_session_lost", message=message))
    elif opened == "reopened":
        message = f"{agent.spec.title} continues its own session."
        await port.emit(ev.Notice(level="info", code="agent_session_resumed", message=message))
        if agent.spec.protocol == "acp":  # an agent counts its whole session (makai's drivers count their processes)
            agent.cost_usd = agent.cost_usd or session.agent_cost_usd
    for notice in _unkept(port, agent.spec, is_new=opened != "kept"):
        await port.emit(notice)
    mode = session.agent_mode
    is_new_choice = mode not in ("", choices.fact.mode, agent.logged.mode if agent.logged is not None else "")
    if is_new_choice and mode in {offered.id for offered in choices.fact.modes}:
        await agent.choose(choices.mode_request(mode))
        choices.chose(mode=mode)
    if (model := session.model_ref) and model != choices.fact.model and "model" not in agent.spec.takes:
        if model not in {offered.id for offered in choices.fact.models}:
            names = ", ".join(offered.id for offered in choices.fact.models) or "none"
            raise InvalidRequest(f"{agent.spec.title} offers no model {model!r}.", hint=f"It offers: {names}.")
        await agent.choose(choices.model_request(model))
        choices.chose(model=model)
    if choices.fact != session.agent:
        await port.emit(choices.fact)
    agent.logged = choices.fact
    return opened


async def _mcp_values(port: RunPort) -> dict[str, dict[str, str]]:
    """Values of the variables and headers that the session's MCP servers need, from the client that brought them."""
    wanted = [server for server in port.session.terms.mcp_servers if server.env_names or server.header_names]
    if not wanted:
        return {}
    params = McpValuesRequest(servers=tuple(server.name for server in wanted))
    found = await ask_editor(port.execute, MCP_VALUES, params, session_id=port.session_id, run_id=port.run_id)
    if found is None:
        raise InvalidRequest("The client that brought the MCP servers of this session is not connected.")
    return {name: values.env | values.headers for name, values in found.servers.items()}


def _check_budget(port: RunPort, spec: AgentSpec) -> None:
    """Refuse a limit of money that is used up, or that cannot be kept because the agent does not say what it costs."""
    spec.check_limit(usd_left(port), allow_unknown_price=port.run.terms.allow_unknown_price)


def _launch(port: RunPort, spec: AgentSpec, cwd: str) -> AgentLaunch:
    """What the session and the run want of the agent, as far as its process can be started with it."""
    terms, run = port.session.terms, port.run.terms
    wanted = {
        "model": port.session.model_ref,
        "effort": run.options.reasoning_effort or terms.reasoning_effort or "",
        "sandbox": terms.sandbox,
        "system_append": terms.system_append,
        "allow": run.allow,
        "deny": run.deny,
        "max_turns": run.max_turns,
        "json_schema": run.options.json_schema,
        "options_json": terms.agent_options_json or "{}",
    }
    return AgentLaunch(cwd=cwd, **{name: wanted[name] for name in spec.takes})  # type: ignore[arg-type]


def _unkept(port: RunPort, spec: AgentSpec, *, is_new: bool) -> list[ev.Notice]:
    """Notices about settings that the agent does not take. Those of the session are named when the agent opens its own
    session (`is_new`), those of the run with every run."""
    run, notices = port.run.terms, list[ev.Notice]()
    ignored = [*ignored_of_run(run, spec), *(ignored_of_session(port.session.terms, spec) if is_new else ())]
    if ignored:
        message = f"{spec.title} does not take these settings: {', '.join(dict.fromkeys(ignored))}."
        notices.append(ev.Notice(level="warning", code="setting_ignored", message=message))
    denied = [rule for rule in run.deny if rule not in USER_INPUT_TOOLS]
    if denied and spec.obeys_rules and "deny" not in spec.takes:
        rules = ", ".join(denied)
        message = f"{spec.title} decides itself what it asks about; makai can forbid only that: {rules}."
        notices.append(ev.Notice(level="warning", code="deny_when_asked", message=message))
    return notices
