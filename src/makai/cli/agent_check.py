"""Finds out about the harnesses of this machine: what each can do, whether its program is there, in which version, and
whether it starts. `makai harness list`, `makai harness check` and `makai doctor` use it.

Nothing is sent to a model: a program is asked for its version and, in a full check, to `initialize`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from makai.core.errors import AgentFailed, InvalidRequest, MakaiError, NoProvider
from makai.core.home import home_directory
from makai.harness.acp.client_services import NoServices
from makai.harness.acp.connection import start_process
from makai.harness.acp.driven_agent import DrivenAgent
from makai.harness.acp.known_agents import AgentSpec, agent_of, known_agents, named_agents
from makai.harness.acp.peer import AgentLaunch
from makai.harness.acp.version_probe import probe_version
from makai.harness.manifests import DECLARATIONS, HarnessDeclaration, harness_declaration
from makai.harness.registry import EXTERNAL, NATIVE, harness_id_of
from makai.providers.logins import CONFIG_FILE, read_config
from makai.tools.launching import launcher

CHECK_S: Final = 60.0
MAX_AT_ONCE: Final = 4
BUILT_IN: Final = frozenset({"raw", "stub"})
"""Harnesses without a program of their own."""
_BILLING_KEYS: Final = {
    "claude-code": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "codex": ("OPENAI_API_KEY", "CODEX_API_KEY"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
"""A key that is set moves an agent from its user's subscription to billing by use."""
_ONE_PER_PROMPT: Final = frozenset({"amp", "antigravity"})
"""Protocols whose process is started by a prompt, which would ask a model: it is not known whether these start."""
_WORDS: Final = {
    "supports_session_resume": "resume",
    "supports_message_injection": "steering",
    "accepts_mcp_server_spec": "MCP",
    "accepts_allowed_tools_list": "tool rules",
    "supports_reasoning_effort": "effort",
    "emits_subagent_events": "sub-agents",
}


class HarnessCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One harness on this machine. `problem` is what stops it from working, `notice` what a person should know."""

    name: str
    title: str
    can: tuple[str, ...] = ()
    built_in: bool = False
    program: str = ""
    """Its path. Empty when it is not installed, or needs none."""
    version: str = ""
    tested: tuple[str, str] | None = None
    """The oldest version that works, and the newest one that was tried."""
    starts: bool | None = None
    """Whether its process began to answer. None when that was not tried, or would take a prompt."""
    drift: Mapping[str, int] = {}
    """Messages of kinds that this makai does not know, seen while it started."""
    notice: str = ""
    problem: str = ""
    next_step: str = ""
    login: str = ""

    @property
    def installed(self) -> bool:
        return self.built_in or bool(self.program)


class CheckPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where harnesses are looked for."""

    environ: Mapping[str, str]
    home: Path

    def spec(self, name: str) -> AgentSpec:
        return agent_of(harness_id_of(name), read_config(self.home / CONFIG_FILE).agents)

    def names(self) -> tuple[str, ...]:
        """Every harness that people use, by one name: makai's own loop, those with a manifest, and other agents."""
        configured = read_config(self.home / CONFIG_FILE).agents
        declared = sorted(DECLARATIONS.keys() - BUILT_IN)
        others = {spec.name for spec in named_agents(configured).values()}
        others -= {self.spec(name).name for name in declared} | BUILT_IN | {"makai"}
        return (NATIVE, *declared, *sorted(others))


def here(environ: Mapping[str, str]) -> CheckPlace:
    return CheckPlace(environ=environ, home=home_directory(environ))


async def check_harnesses(place: CheckPlace, names: Sequence[str], *, start: bool) -> tuple[HarnessCheck, ...]:
    """Check several harnesses at the same time. With `start`, each installed one is started once."""
    room = asyncio.Semaphore(MAX_AT_ONCE)

    async def one(name: str) -> HarnessCheck:
        async with room:
            return await check_harness(place, name, start=start)

    launcher().start()
    return tuple(await asyncio.gather(*map(one, names)))


async def check_harness(place: CheckPlace, name: str, *, start: bool) -> HarnessCheck:
    """Raises `NoProvider` for a name that is neither a harness, nor an agent, nor a command line."""
    declared = _declaration(name)
    if declared is not None and declared.name in BUILT_IN:
        title = declared.capabilities.human_label
        shown = NATIVE if declared.name == "raw" else declared.name
        return HarnessCheck(name=shown, title=title, can=_can(declared), built_in=True)
    spec = place.spec(name)
    if declared is None and not spec.name and not name.startswith(EXTERNAL):
        known = ", ".join(place.names())
        raise NoProvider(f"There is no harness {name!r}.", hint=f"Use one of: {known}, or acp:COMMAND.")
    found = HarnessCheck(
        name=declared.name if declared is not None else spec.name or name,
        title=spec.title,
        can=() if declared is None else _can(declared),
        tested=spec.tested,
        login=spec.login,
    )
    try:
        argv = spec.argv(os.getcwd(), place.environ)
    except InvalidRequest as error:
        return msgspec.structs.replace(found, problem=error.message, next_step=error.hint or "")
    found = msgspec.structs.replace(found, program=argv[0], notice=_billing_notice(found.name, place.environ))
    return await _examined(found, spec, place, start=start)


async def _examined(found: HarnessCheck, spec: AgentSpec, place: CheckPlace, *, start: bool) -> HarnessCheck:
    """Ask an installed program for its version, and start it."""
    try:
        async with asyncio.timeout(CHECK_S):
            if spec == known_agents().get(spec.name):
                found = await _with_version(found, spec, place)
            return await _started(found, spec, place) if start else found
    except TimeoutError:
        problem = f"{found.title} did not answer within {CHECK_S:g} s."
        return msgspec.structs.replace(found, problem=problem, starts=False if start else None)
    except MakaiError as error:
        step = error.hint or spec.login
        return msgspec.structs.replace(found, problem=error.message, next_step=step, starts=False if start else None)


async def _with_version(found: HarnessCheck, spec: AgentSpec, place: CheckPlace) -> HarnessCheck:
    """Of a command line the program may be an interpreter, so only known agents are asked."""
    try:
        probed = await probe_version(spec, found.program, spec.environment(place.environ), os.sep, start_process)
    except AgentFailed as error:
        if spec.tested is not None:
            raise
        return msgspec.structs.replace(found, notice=error.message)
    notices = " ".join(part for part in (probed.notice, found.notice) if part)
    return msgspec.structs.replace(found, version=probed.version, notice=notices)


async def _started(found: HarnessCheck, spec: AgentSpec, place: CheckPlace) -> HarnessCheck:
    agent = await DrivenAgent.start(spec, AgentLaunch(cwd=os.getcwd()), place.environ, NoServices(), start_process)
    try:
        if spec.protocol == "claude-code":  # its process belongs to a session
            await agent.open(None, (), {}, ())
        drift = dict(agent.drift)
    finally:
        await agent.close()
    return msgspec.structs.replace(found, starts=None if spec.protocol in _ONE_PER_PROMPT else True, drift=drift)


def _declaration(name: str) -> HarnessDeclaration | None:
    with suppress(NoProvider):
        return harness_declaration(name)
    return None


def _can(declared: HarnessDeclaration) -> tuple[str, ...]:
    flags = [word for flag, word in _WORDS.items() if getattr(declared.capabilities, flag)]
    return (*flags, *(["JSON schema"] if declared.native_json_mode else [])) or ("answer prompts, one at a time",)


def _billing_notice(name: str, environ: Mapping[str, str]) -> str:
    """A hint for people who have a subscription and a key: many agents prefer the key."""
    blocked = environ.get("AGENT_ENV_BLOCKLIST", "")
    found = [key for key in _BILLING_KEYS.get(name, ()) if environ.get(key) and key not in blocked]
    if not found:
        return ""
    return f"{found[0]} is set, so it may bill that key; AGENT_ENV_BLOCKLIST={found[0]} keeps it away."


def check_lines(found: Sequence[HarnessCheck]) -> list[str]:
    """The report of `makai harness check`, one or more lines per harness."""
    lines = []
    for one in found:
        mark = "!!" if one.problem else "ok" if one.installed else "--"
        facts = [one.version or ("built in" if one.built_in else "")]
        facts += ["starts"] if one.starts else []
        facts += [f"unknown messages: {_counts(one.drift)}"] if one.drift else []
        text = one.problem or ", ".join(fact for fact in facts if fact) or one.program
        lines.append(f"{mark} {one.name:<12} {text}")
        lines += [f"   {'':<12} {extra}" for extra in (one.notice, one.next_step) if extra]
    return lines


def _counts(drift: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} ({count})" for kind, count in sorted(drift.items()))


def list_lines(found: Sequence[HarnessCheck]) -> list[str]:
    """The report of `makai harness list`: installed harnesses first."""
    rows = sorted(found, key=lambda one: not one.installed)
    lines = [f"{'NAME':<14} {'VERSION':<14} CAN"]
    for one in rows:
        version = "built in" if one.built_in else one.version or ("installed" if one.program else "not installed")
        lines.append(f"{one.name:<14} {version:<14} {', '.join(one.can) or 'what it offers over ACP'}")
        if not one.installed and one.next_step:
            lines.append(f"{'':<14} {one.next_step}")
        elif one.login:
            lines.append(f"{'':<14} Login: {one.login}")
        lines += [f"{'':<14} {extra}" for extra in (one.problem, one.notice) if extra and one.installed]
    return lines
