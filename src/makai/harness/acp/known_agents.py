"""Which agents there are: those of `known_agents.toml`, those of the user's config.toml, and any command line.

The id of a harness is `acp:NAME` or `acp:COMMAND LINE`. A name always wins over a command of the same spelling, so that
what a caller may choose by name (`is_named`) is what is started.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Literal, TypeAlias

import msgspec

from makai.auth.credentials import PROXY_VARIABLES
from makai.core.config import AgentConfig
from makai.core.errors import InvalidRequest
from makai.core.programs import find_program
from makai.harness.registry import DRIVERS, EXTERNAL, NATIVE, harness_id_of
from makai.tools.commands import child_environment, without_blocked

AgentProtocol: TypeAlias = Literal["acp", "amp", "antigravity", "claude-code", "codex-app-server", "stub"]
"""What an agent speaks: the Agent Client Protocol, or a protocol of its own that a driver translates."""


LaunchSetting: TypeAlias = Literal[
    "model", "effort", "sandbox", "system_append", "allow", "deny", "max_turns", "json_schema", "options_json"
]


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent: how it is started, and what a person does when that fails."""

    name: str = ""
    """Empty for a command line."""
    title: str
    command: tuple[str, ...] = ()
    """Empty for an agent that needs no program."""
    protocol: AgentProtocol = "acp"
    install: str = ""
    login: str = ""
    env: tuple[str, ...] = ()
    auth: dict[str, str] = {}
    aliases: tuple[str, ...] = ()
    remembers: bool = True
    """Whether it knows in a prompt what was said before; one that does not gets the transcript with every prompt."""
    asks: bool = True
    """Whether it asks before it acts. One that does not runs only in the mode in which makai asks nothing either."""
    obeys_rules: bool = True
    """Whether it puts its questions to makai, where the rules of a run decide them."""
    uses_servers: bool = True
    """Whether it can use the MCP servers of a session."""
    reports_cost: bool = False
    """Whether it says what it costs in US dollars while it works, so that a budget can be kept."""
    model_option: str = ""
    """The option of the command that names the model of new sessions. Without it the agent opens a session with its
    default model, for which a login may be missing, before another one can be chosen."""
    takes: tuple[LaunchSetting, ...] = ()
    """The settings of a run and a session that its process can be started with."""
    tested: tuple[str, str] | None = None
    """The oldest version that a driver can use, and the newest one that it was tried with."""
    hidden: bool = False
    """Not for people: no list of agents offers it."""

    @property
    def harness_id(self) -> str:
        return self.name if self.name in DRIVERS.values() else EXTERNAL + (self.name or shlex.join(self.command))

    def with_model(self, model_ref: str) -> AgentSpec:
        """The agent with this model for new sessions, if its command takes one."""
        if not (self.model_option and model_ref):
            return self
        return msgspec.structs.replace(self, command=(*self.command, self.model_option, model_ref))

    def check_limit(self, usd: float | None, *, allow_unknown_price: bool) -> None:
        """Refuse a limit of money that cannot be kept, because the agent does not say what it costs."""
        if usd is None or self.reports_cost or allow_unknown_price:
            return
        raise InvalidRequest(
            f"{self.title} does not say what it costs: the limit of {usd:g} USD cannot be kept.",
            hint="Limit the time instead, or accept it with --allow-unknown-price (allow_unknown_price in an SDK).",
        )

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """What the agent may see of our environment. It needs the network, so proxies are passed on as they are."""
        wanted = {*self.env, *PROXY_VARIABLES}
        seen = without_blocked(environ)
        return child_environment(seen) | {name: value for name, value in seen.items() if name in wanted}

    def argv(self, cwd: str, environ: Mapping[str, str], *, roots: Sequence[str] | None = None) -> list[str]:
        """The command line with the path of its program, which is not taken from `roots`, by default `cwd`.
        `InvalidRequest` says how to install what is missing."""
        if self.protocol == "stub":
            return []
        program, *rest = (word.replace("{python}", sys.executable) for word in self.command)
        found = _found(program, cwd, environ, (cwd,) if roots is None else roots)
        if found is None and (inside := shutil.which(program, path=child_environment(environ)["PATH"])):
            raise InvalidRequest(
                f"{self.title} is found only as {inside}, which commands may write, so it is not started.",
                hint="Install it outside of the session's folder, or name its path: acp:/path/to/program.",
            )
        if found is None:
            what = f"{self.title} is not installed" if self.name else f"There is no agent or program {program!r}"
            raise InvalidRequest(
                f"{what}: `{program}` is not on your PATH." if self.name else f"{what}.",
                hint=f"Install it: {self.install}" if self.install else _hint(),
            )
        return [found, *rest]


def _found(program: str, cwd: str, environ: Mapping[str, str], roots: Sequence[str]) -> str | None:
    """The program that a person wrote, or one on PATH that commands cannot have put there."""
    if os.sep in program:
        return shutil.which(os.path.join(cwd, program))
    return find_program(program, child_environment(environ)["PATH"], roots)


@functools.cache
def known_agents() -> Mapping[str, AgentSpec]:
    table = tomllib.loads(resources.files(__package__).joinpath("known_agents.toml").read_text(encoding="utf-8"))
    return {name: msgspec.convert({"name": name, **row}, AgentSpec) for name, row in table.items()}


def _hint() -> str:
    names = sorted(name for name, spec in known_agents().items() if not spec.hidden)
    return f"Use one of {', '.join(names)}, or acp: with a command line."


def named_agents(configured: Mapping[str, AgentConfig]) -> dict[str, AgentSpec]:
    """Every agent by its name and its further names. Those that the user configured come first."""
    own = {
        name: AgentSpec(
            name=name,
            title=row.title or name,
            command=row.command,
            login=row.login,
            env=row.env,
            auth=row.auth,
            reports_cost=row.reports_cost,
        )
        for name, row in configured.items()
    }
    known = known_agents()
    aliases = {alias: spec for spec in known.values() for alias in spec.aliases}
    return aliases | dict(known) | own


def is_named(harness_id: str, configured: Mapping[str, AgentConfig]) -> bool:
    """Whether the id names an agent; otherwise it is a command line of the caller's choice."""
    is_external = harness_id.startswith(EXTERNAL) or harness_id in DRIVERS.values()
    return is_external and harness_id.removeprefix(EXTERNAL) in named_agents(configured)


def agent_of(harness_id: str, configured: Mapping[str, AgentConfig]) -> AgentSpec:
    """The agent that a harness id means. `InvalidRequest` for one that is neither a name nor a command line."""
    text = harness_id.removeprefix(EXTERNAL)
    if (named := named_agents(configured).get(text)) is not None:
        return named
    try:
        command = tuple(shlex.split(text))
    except ValueError:
        command = ()
    if not command or not command[0]:
        raise InvalidRequest(f"{harness_id!r} names no agent.", hint=_hint())
    return AgentSpec(title=os.path.basename(command[0]), command=command)


def check_agent_name(agent: str, configured: Mapping[str, AgentConfig]) -> None:
    """Refuse what a person wrote as the default agent when it is neither a name nor `acp:COMMAND LINE`."""
    harness_id = harness_id_of(agent)
    if harness_id == NATIVE or is_named(harness_id, configured):
        return
    if not agent.strip().startswith(EXTERNAL):
        raise InvalidRequest(f"There is no agent {agent!r}.", hint=_hint())
    agent_of(harness_id, configured)


class OfferedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that a person can pick, and whether it is on this machine."""

    name: str
    harness: str
    title: str
    program: str
    """Its path; empty when it is not installed."""
    install: str


def offered_agents(configured: Mapping[str, AgentConfig], environ: Mapping[str, str]) -> tuple[OfferedAgent, ...]:
    """Every agent by one name, installed ones first. makai is not among them: it needs no other process for itself."""
    specs = {spec.name: spec for spec in named_agents(configured).values()}
    found = [
        OfferedAgent(
            name=name, harness=spec.harness_id, title=spec.title, program=_program(spec, environ), install=spec.install
        )
        for name, spec in sorted(specs.items())
        if not spec.hidden and (name != "makai" or name in configured)
    ]
    return tuple(sorted(found, key=lambda agent: not agent.program))


def _program(spec: AgentSpec, environ: Mapping[str, str]) -> str:
    try:
        return spec.argv(os.sep, environ, roots=())[0]
    except InvalidRequest:
        return ""
