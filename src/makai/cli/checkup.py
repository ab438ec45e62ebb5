"""What `makai doctor` checks and reports: versions, the home directory, every provider, the default model, and which
other agents are installed.

It looks at files, asks installed agents for their version, and opens (and closes) TCP connections; it sends nothing and
never holds any part of a credential.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from makai.auth.credentials import DEFAULT_ACCOUNT
from makai.catalog.resolver import DEFAULT_ORDER, Resolver
from makai.cli.agent_check import CheckPlace, HarnessCheck, check_harnesses
from makai.cli.console import Paint, plain
from makai.cli.machine_checks import CheckedPlace, MachineCheck, machine_checks
from makai.cli.provider_access import ProviderAccess, Reachability, access_to, reach_all
from makai.core.errors import MakaiError
from makai.core.home import home_directory
from makai.core.session_events import SandboxLevel
from makai.core.version import __version__
from makai.harness.acp.known_agents import OfferedAgent, offered_agents
from makai.providers.local.weights import SMOLLM2, installed
from makai.providers.logins import Logins
from makai.providers.scripted import scripted_models
from makai.tools.sandbox.detect import detect


class HomeCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """MAKAI_HOME. `problem` says what is wrong and how to fix it."""

    path: str
    exists: bool
    mode: str = ""
    problem: str = ""


class WeightsCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    path: str = ""
    """Where they are; empty when they are not."""


class SandboxCheck(msgspec.Struct, frozen=True, kw_only=True):
    works: bool
    level: SandboxLevel
    """Of new sessions, as config.toml says."""
    text: str


class ProviderCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`reach` is None when the address was not tried."""

    access: ProviderAccess
    reach: Reachability | None = None

    @property
    def usable(self) -> bool:
        """Whether a request could be sent now. An address that was not tried counts as reachable, unless it is the
        user's own server, which is usually not running.
        """
        if not self.access.ready:
            return False
        return not self.reach.problem if self.reach else not self.access.is_own_server


class Checkup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    makai: str
    python: str
    platform: str
    uvloop: str | None
    xllamacpp: str | None
    home: HomeCheck
    weights: WeightsCheck
    sandbox: SandboxCheck
    providers: tuple[ProviderCheck, ...]
    default_model: str
    default_reason: str
    usable: bool
    agents: tuple[OfferedAgent, ...] = ()
    checks: tuple[MachineCheck, ...] = ()
    """Settings, the session log, MCP servers, the npm SDK and the page."""
    harnesses: tuple[HarnessCheck, ...] = ()
    """The versions of the agents that are installed."""


async def examine(environ: Mapping[str, str], *, offline: bool) -> Checkup:
    """Check everything. With `offline`, only servers on this machine are tried."""
    with tempfile.TemporaryDirectory(prefix="makai-doctor-") as empty:
        stated = home_directory(environ)
        try:
            return await _examined(environ, stated, Logins(environ, stated), stated, offline=offline)
        except (MakaiError, OSError):
            # What is wrong with the home is a row of its own; the rest is looked at as if it were empty.
            return await _examined(environ, stated, Logins(environ, Path(empty)), Path(empty), offline=offline)


async def _examined(environ: Mapping[str, str], stated: Path, logins: Logins, home: Path, *, offline: bool) -> Checkup:
    """`home` is the one that was stated, or an empty folder in its place."""
    vendors = [vendor for vendor in logins.vendors.values() if vendor.api != "scripted"]
    access = access_to(vendors, environ, home, logins)
    to_try = {one.provider: one.base_url for one in access if _is_worth_a_try(one, offline)}
    reached = await reach_all(to_try.values())
    providers = tuple(
        ProviderCheck(access=one, reach=reached[to_try[one.provider]] if one.provider in to_try else None)
        for one in access
    )
    default, reason = _default_model(logins.resolver(scripted_models(environ)), access)
    sandbox = detect()
    agents = offered_agents(logins.config.agents, environ)
    place = CheckPlace(environ=environ, home=home)
    checked = CheckedPlace(home=stated, folder=os.getcwd(), environ=environ)
    return Checkup(
        makai=__version__,
        python=f"{platform.python_version()} ({sys.executable})",
        platform=f"{platform.system()} {platform.machine()}",
        uvloop=_version("uvloop"),
        xllamacpp=_version("xllamacpp"),
        home=_with_store(check_home(stated), logins),
        weights=WeightsCheck(model=SMOLLM2.display_name, path=str(installed(home) or "")),
        sandbox=SandboxCheck(works=sandbox.backend is not None, level=logins.settings.sandbox, text=sandbox.describe()),
        providers=providers,
        default_model=default,
        default_reason=reason,
        usable=any(one.usable for one in providers),
        agents=agents,
        checks=await machine_checks(checked),
        harnesses=await check_harnesses(place, [one.name for one in agents if one.program], start=False),
    )


def _is_worth_a_try(one: ProviderAccess, offline: bool) -> bool:
    if not (one.ready and one.base_url):
        return False
    return not offline or urlsplit(one.base_url).hostname in ("127.0.0.1", "::1", "localhost")


def _default_model(resolver: Resolver, access: list[ProviderAccess]) -> tuple[str, str]:
    try:
        model = resolver.default_model()
    except MakaiError as error:
        return "none", error.message
    name = f"{model.provider}/{model.id}"
    if (source := resolver.settings.sources.get("model", "default")) != "default":
        return name, "MAKAI_MODEL is set" if source == "environment" else "config.toml names it"
    if model.provider not in DEFAULT_ORDER:
        return name, "you have no login and no API key is set"
    one = next(one for one in access if one.provider == model.provider)
    return name, f"you are logged in to {one.provider}" if one.account else f"{one.key_variable} is set"


def _with_store(home: HomeCheck, logins: Logins) -> HomeCheck:
    """Logins that cannot be read are a problem of the home directory."""
    try:
        logins.store.snapshot()
    except MakaiError as error:
        return msgspec.structs.replace(home, problem=home.problem or str(error))
    return home


def check_home(home: Path) -> HomeCheck:
    """It must belong to the user and be closed to others, and is created when something is first stored."""
    try:
        found = home.stat()
    except FileNotFoundError:
        return HomeCheck(path=str(home), exists=False)
    except OSError as error:
        return HomeCheck(path=str(home), exists=True, problem=f"it cannot be read: {error.strerror}")
    mode = stat.S_IMODE(found.st_mode)
    problem = ""
    if not stat.S_ISDIR(found.st_mode):
        problem = "it is not a directory: move it, or set MAKAI_HOME to another path"
    elif sys.platform != "win32" and mode & 0o022:
        problem = f"others may write to it: chmod 700 {home}"
    elif sys.platform != "win32" and mode & 0o055:
        problem = f"others may read it: chmod 700 {home}"
    elif not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        problem = f"you may not read or write it: chmod 700 {home}"
    return HomeCheck(path=str(home), exists=True, mode=f"{mode:04o}", problem=problem)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


_MARKS = {"good": ("ok", "green"), "bad": ("!!", "red"), "neutral": ("--", "bright_black")}


def checkup_text(found: Checkup, *, paint: Paint = plain) -> list[str]:
    lines = [paint("This machine", bold=True)]
    lines += _table(_machine(found), paint)
    lines += ["", paint("Providers", bold=True)]
    lines += _table([(_mark(one), one.access.provider, _provider(one)) for one in found.providers], paint, 18)
    lines += ["", paint("Default model", bold=True), f"   {found.default_model}, because {found.default_reason}"]
    if found.agents:
        lines += ["", paint("Other agents", bold=True) + ", for `makai -a NAME` and the page"]
        checks = {one.name: one for one in found.harnesses}
        lines += _table([_agent(one, checks.get(one.name)) for one in found.agents], paint)
    lines += ["", paint("What to do next", bold=True)]
    lines += [f"   {step}" for step in next_steps(found)]
    return lines


def _table(rows: Sequence[tuple[str, str, str]], paint: Paint, width: int = 11) -> list[str]:
    """Rows of a mark, a name and a text; the lines of all texts begin in one column, behind the longest name."""
    width = max(width, *(len(name) for _, name, _ in rows)) if rows else width
    texts = [text.replace("\n", "\n" + " " * (width + 4)) for _, _, text in rows]
    marks = [paint(_MARKS[mark][0], fg=_MARKS[mark][1]) for mark, _, _ in rows]
    return [f"{mark} {row[1]:<{width}} {text}" for mark, row, text in zip(marks, rows, texts, strict=True)]


def _machine(found: Checkup) -> list[tuple[str, str, str]]:
    home, weights = found.home, found.weights
    return [
        ("good", "makai", found.makai),
        ("good", "python", f"{found.python}, {found.platform}"),
        _installed("uvloop", found.uvloop, "asyncio's slower event loop is used"),
        _installed("xllamacpp", found.xllamacpp, "needed for the local model"),
        _installed("weights", f"{weights.model}, {weights.path}" if weights.path else None, weights.model),
        ("bad" if home.problem else "good" if home.exists else "neutral", "MAKAI_HOME", _home(home)),
        ("good" if found.sandbox.works else "bad", "sandbox", f"{found.sandbox.level}, {found.sandbox.text}"),
        *((one.state, one.name, one.text) for one in found.checks),
    ]


def _installed(name: str, what: str | None, otherwise: str) -> tuple[str, str, str]:
    return ("good", name, what) if what else ("neutral", name, f"not installed: {otherwise}")


def _home(home: HomeCheck) -> str:
    if home.problem:
        return f"{home.path} ({home.problem})"
    return f"{home.path} ({home.mode})" if home.exists else f"{home.path} (created when it is first needed)"


def _mark(one: ProviderCheck) -> str:
    if one.usable:
        return "good"
    # A key that is not set, and a server that the user never mentioned, are no faults.
    wanted = one.access.key_variable or one.access.account or one.access.base_url_variable or one.access.is_broken
    return "bad" if wanted else "neutral"


def _provider(one: ProviderCheck) -> str:
    access = one.access
    moved = f", {access.base_url_variable}={access.base_url}" if access.base_url_variable else ""
    if not access.ready:
        key = f"{access.key_variable} is set; " if access.key_variable else ""
        return f"{key}{access.status}{moved}"
    if access.is_own_server:
        is_running = one.reach is not None and not one.reach.problem
        return f"{'listening' if is_running else 'not running'} at {access.base_url}{moved}"
    if not access.base_url:
        return access.status
    name = "" if access.account == DEFAULT_ACCOUNT else f" as {access.account}"
    credential = f"logged in{name}" if access.account else f"{access.key_variable} is set"
    return f"{credential}{moved}, {_reached(one)}"


def _reached(one: ProviderCheck) -> str:
    if one.reach is None:
        return "not tried"
    way = f" through the proxy {one.reach.via_proxy}" if one.reach.via_proxy else ""
    return f"not reachable{way}: {one.reach.problem}" if one.reach.problem else f"reachable{way}"


def _agent(one: OfferedAgent, check: HarnessCheck | None) -> tuple[str, str, str]:
    """The mark, the name and the text of an agent's row."""
    if not one.program:
        return "neutral", one.name, f"{one.title}, not installed" + (f": {one.install}" if one.install else "")
    if check is None:
        return "good", one.name, f"{one.title}, {one.program}"
    title = f"{one.title} {check.version}".rstrip()
    said = " ".join(part for part in (check.problem, check.notice) if part)
    return "bad" if check.problem else "good", one.name, f"{title}, {one.program}" + (f". {said}" if said else "")


def next_steps(found: Checkup) -> list[str]:
    """What to do, most useful first; never empty."""
    steps = []
    if found.home.problem:
        steps.append(f"{found.home.path}: {found.home.problem}")
    if not found.sandbox.works:
        steps.append("apt install bubblewrap          to confine the commands of agents")
    steps += [one.next_step or f"{one.name}: {one.text}" for one in found.checks if one.state == "bad"]
    known = found.home.problem  # a store that cannot be read is a problem of every provider too
    steps += [_repair(one) for one in found.providers if _mark(one) == "bad" and one.access.status != known]
    steps += [f"{one.problem} {one.next_step}".strip() for one in found.harnesses if one.problem]
    local = {one.access.provider: one for one in found.providers}["local"]
    if not local.access.ready:
        size = f"{SMOLLM2.download_text}, no account needed"
        if found.xllamacpp is None:
            steps.append("pip install 'makai[local]'      to run a model on this machine")
        if not found.weights.path:
            steps.append(f"makai models pull {SMOLLM2.name}       a small model for this machine ({size})")
    if not any(one.access.key_variable or one.access.account for one in found.providers):
        steps.append("makai auth login anthropic      or another provider above, for a capable model")
    return [*steps, *_first_try(found)]


def _first_try(found: Checkup) -> list[str]:
    """A command that works now, with the default model if it answers."""
    usable = [one.access.provider for one in found.providers if one.usable]
    models = {one.access.provider: one.access.default_model for one in found.providers}
    if found.default_model.partition("/")[0] in usable:
        return ['makai run "Say hello"           or just `makai` to chat']
    for provider in usable:
        return [f'makai run -m {provider}/{models[provider] or "MODEL"} "Say hello"']
    return []


def _repair(one: ProviderCheck) -> str:
    access = one.access
    if not access.ready:
        return f"{access.provider}: {access.status}"
    where = f"check {access.base_url_variable}" if access.base_url_variable else "check the network and the firewall"
    return f"{access.provider}: {access.base_url} cannot be reached; {where}"
