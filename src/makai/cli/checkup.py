"""What `makai doctor` finds out.

In: an environment. Out: a `Checkup`: versions, the state directory, every provider, the default model. It looks at
files and opens (and closes) TCP connections; it sends nothing and never holds any part of a credential.
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

from makai.catalog.resolver import DEFAULT_ORDER, Resolver
from makai.cli.access import Access, access_to
from makai.cli.reach import Reach, reach_all
from makai.core.errors import MakaiError
from makai.core.home import home_directory
from makai.core.version import __version__
from makai.providers.local.weights import SMOLLM2, installed
from makai.providers.logins import Logins
from makai.tools.sandbox.detect import detect


class HomeCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """MAKAI_HOME. `problem` says what is wrong and what to do."""

    path: str
    exists: bool
    mode: str = ""
    problem: str = ""


class WeightsCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The weights of the local model."""

    model: str
    path: str = ""
    """Where they are; empty when they are not."""


class SandboxCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What confines the commands of agents on this machine, in words."""

    works: bool
    text: str


class ProviderCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a provider stands, and whether its address answered. `reach` is absent where nobody tried."""

    access: Access
    reach: Reach | None = None

    @property
    def usable(self) -> bool:
        """Whether a request could go there now. An address nobody tried gets the benefit of the doubt, unless it is a
        server of the user's own, which is usually not running."""
        if not self.access.ready:
            return False
        return not self.reach.problem if self.reach else not self.access.is_own_server


class Checkup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything the doctor found."""

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
    """Look at everything. With `offline`, only this machine's own servers are tried."""
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
    return Checkup(
        makai=__version__,
        python=f"{platform.python_version()} ({sys.executable})",
        platform=f"{platform.system()} {platform.machine()}",
        uvloop=_version("uvloop"),
        xllamacpp=_version("xllamacpp"),
        home=_with_store(check_home(home), logins),
        weights=WeightsCheck(model=SMOLLM2.display_name, path=str(installed(home) or "")),
        sandbox=check_sandbox(),
        providers=providers,
        default_model=default,
        default_reason=reason,
        usable=any(one.usable for one in providers),
    )


def _is_worth_a_try(one: Access, offline: bool) -> bool:
    if not (one.ready and one.base_url):
        return False
    return not offline or urlsplit(one.base_url).hostname in ("127.0.0.1", "::1", "localhost")


def _default_model(resolver: Resolver, access: list[Access]) -> tuple[str, str]:
    try:
        model = resolver.default_model()
    except MakaiError as error:
        return "none", error.message
    name = f"{model.provider}/{model.id}"
    if model.provider not in DEFAULT_ORDER:
        return name, "there is no login and no API key of a provider"
    one = next(one for one in access if one.provider == model.provider)
    return name, f"you are logged in to {one.provider}" if one.account else f"{one.key_variable} is set"


def _with_store(home: HomeCheck, logins: Logins) -> HomeCheck:
    """What keeps the logins from being read is a problem of the directory."""
    try:
        logins.store.snapshot()
    except MakaiError as error:
        return msgspec.structs.replace(home, problem=home.problem or str(error))
    return home


def check_sandbox() -> SandboxCheck:
    """Which sandbox works here; it is tried."""
    found = detect()
    return SandboxCheck(works=found.backend is not None, text=found.describe())


def check_home(home: Path) -> HomeCheck:
    """The state directory: there, ours and closed to others. It is made when something is first stored."""
    try:
        found = home.stat()
    except FileNotFoundError:
        return HomeCheck(path=str(home), exists=False)
    except OSError as error:
        return HomeCheck(path=str(home), exists=True, problem=f"it cannot be looked at: {error.strerror}")
    mode = stat.S_IMODE(found.st_mode)
    problem = ""
    if not stat.S_ISDIR(found.st_mode):
        problem = "it is not a directory: move it away, or set MAKAI_HOME to another place"
    elif sys.platform != "win32" and mode & 0o022:
        problem = f"others may write to it: chmod 700 {home}"
    elif sys.platform != "win32" and mode & 0o055:
        problem = f"others may look into it: chmod 700 {home}"
    return HomeCheck(path=str(home), exists=True, mode=f"{mode:04o}", problem=problem)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
