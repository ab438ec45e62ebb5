"""The keys, addresses and proxies of this process, for a run in the process that owns the sessions: they travel with
the input, stay in the owner's memory, belong to that run alone and end with the connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from makai.auth.credentials import PROXY_VARIABLES
from makai.catalog.logins import additional_vendors
from makai.catalog.vendor_table import builtin_vendors
from makai.core.config import Config
from makai.core.errors import InvalidRequest
from makai.core.secret import Secret
from makai.harness.acp.known_agents import agent_of, named_agents
from makai.harness.registry import NATIVE
from makai.providers.logins import CONFIG_FILE, read_config
from makai.sessions.state import SessionState
from makai.tools.commands import BLOCKLIST_VARIABLE, without_blocked


def may_lend(environ: Mapping[str, str], home: Path) -> bool:
    """Whether there is anything to send for a session of some kind."""
    try:
        config = read_config(home / CONFIG_FILE)
        agents = named_agents(config.agents).values()
        groups = [
            (BLOCKLIST_VARIABLE,),
            PROXY_VARIABLES,
            *_vendor_groups(environ, config),
            *(agent.env for agent in agents),
        ]
    except InvalidRequest:
        return False
    return any(_is_set(environ, group) for group in groups)


def caller_variables(environ: Mapping[str, str], home: Path, state: SessionState) -> dict[str, Secret]:
    """What the providers of the native loop read, or what the session's agent may see, as far as it is set here.

    A group of variables is sent whole, with "" for those that are not set, as soon as one of them is set: a key of this
    process is then never used with an address of the owner's, nor the other way round. Agents get none that the
    blocklist of this process names, neither from here nor from the owner, which is sent the list."""
    try:
        config = read_config(home / CONFIG_FILE)
        is_native = state.harness == NATIVE
        own = _vendor_groups(environ, config) if is_native else [agent_of(state.harness, config.agents).env]
    except InvalidRequest:
        return {}  # the owner says what is wrong with the configuration
    seen, blocklist = (environ, "") if is_native else (without_blocked(environ), environ.get(BLOCKLIST_VARIABLE, ""))
    chosen = [group for group in (PROXY_VARIABLES, *own) if _is_set(seen, group)]
    found = {name: Secret(seen.get(name, "")) for group in chosen for name in group}
    return found | ({BLOCKLIST_VARIABLE: Secret(blocklist)} if blocklist else {})


def _vendor_groups(environ: Mapping[str, str], config: Config) -> list[tuple[str, ...]]:
    groups = []
    for vendor in builtin_vendors().with_rows(additional_vendors(config, environ)).values():
        options = (name for names in vendor.option_variables.values() for name in names)
        groups.append(tuple(filter(None, (*vendor.key_variables, vendor.base_url_variable, *options))))
    return groups


def _is_set(environ: Mapping[str, str], group: Iterable[str]) -> bool:
    return any(environ.get(name, "").strip() for name in group)
