"""The settings of a session, and the one place that decides which source of them counts. Pure.

A flag wins over the environment, that over the project's file, that over the user's file, and that over the default. A
project may make `mode` and `sandbox` stricter than the user's own file and the defaults say, and never wider: what it
writes beyond that is listed in `Settings.ignored`. The caller reads a project's file only when its folder is trusted.
`agent` is for the user's own file: an agent is a program, which no project chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from makai.core.errors import InvalidRequest
from makai.core.model import ReasoningEffort
from makai.core.session_events import PermissionMode
from makai.core.session_terms import SandboxLevel

Theme: TypeAlias = Literal["auto", "dark", "light", "plain"]
Source: TypeAlias = Literal["flag", "environment", "project", "user", "default"]

MODEL_VARIABLE: Final = "MAKAI_MODEL"
NAMES: Final = ("agent", "model", "mode", "effort", "theme", "sandbox")
"""The settings that have one value; `aliases` are joined instead."""
_WIDTHS: Final[dict[str, tuple[str, ...]]] = {
    "mode": ("plan", "ask", "accept_edits", "never_ask"),
    "sandbox": ("read-only", "workspace-write", "full-access"),
}
"""From the strictest value to the widest."""


class SettingsLayer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one source says. None says nothing."""

    agent: str | None = None
    """As `-a` takes it."""
    model: str | None = None
    mode: PermissionMode | None = None
    effort: ReasoningEffort | None = None
    theme: Theme | None = None
    sandbox: SandboxLevel | None = None
    aliases: dict[str, str] = {}
    """Other names of models: name -> model."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a new session gets. A model or an effort of None is the default of the catalog or of the model, an agent of
    None is makai's own."""

    agent: str | None = None
    model: str | None = None
    mode: PermissionMode = "ask"
    effort: ReasoningEffort | None = None
    theme: Theme = "auto"
    sandbox: SandboxLevel = "workspace-write"
    aliases: dict[str, str] = {}
    sources: dict[str, Source] = {}
    """Setting -> where its value is from; an alias is `aliases.NAME`."""
    ignored: tuple[str, ...] = ()
    """What the project's file says and does not count, as sentences."""

    def expanded(self, name: str) -> str:
        """What an alias stands for, also through other aliases; any other name stays as it is."""
        seen = set()
        while (target := self.aliases.get(name)) is not None and name not in seen:
            seen.add(name)
            name = target
        return name

    def agent_for(self, named: str | None, model: str | None) -> str | None:
        """The agent of a new session: the named one, else the default. Naming `PROVIDER/MODEL`, a model of makai's
        own agent, without an agent means that agent."""
        return named if named is not None or "/" in (model or "") else self.agent

    def within(self, mode: PermissionMode, sandbox: SandboxLevel) -> Settings:
        """For a caller who may give an agent no more than this."""
        widest: dict[str, Any] = {"mode": mode, "sandbox": sandbox}
        wide = {name: value for name, value in widest.items() if _is_wider(name, getattr(self, name), value)}
        return msgspec.structs.replace(self, agent=None, **wide)


_NOTHING: Final = SettingsLayer()


def environment_layer(environ: Mapping[str, str]) -> SettingsLayer:
    return SettingsLayer(model=environ.get(MODEL_VARIABLE, "").strip() or None)


def resolve_settings(
    *,
    flags: SettingsLayer = _NOTHING,
    environ: Mapping[str, str] | None = None,
    project: SettingsLayer = _NOTHING,
    user: SettingsLayer = _NOTHING,
) -> Settings:
    project, ignored = _narrowed(project, user)
    layers: tuple[tuple[Source, SettingsLayer], ...] = (
        ("user", user),
        ("project", project),
        ("environment", environment_layer(environ or {})),
        ("flag", flags),
    )
    values: dict[str, Any] = {}
    sources: dict[str, Source] = dict.fromkeys(NAMES, "default")
    aliases: dict[str, str] = {}
    for source, layer in layers:
        given = {name: value for name in NAMES if (value := getattr(layer, name)) is not None}
        values |= given
        aliases |= layer.aliases
        sources |= dict.fromkeys((*given, *(f"aliases.{alias}" for alias in layer.aliases)), source)
    return Settings(**values, aliases=aliases, sources=sources, ignored=ignored)


def _narrowed(project: SettingsLayer, user: SettingsLayer) -> tuple[SettingsLayer, tuple[str, ...]]:
    """The project's layer without what would be wider than the user allows, and what was taken away."""
    defaults = Settings()
    ignored = []
    for name in _WIDTHS:
        wanted, allowed = getattr(project, name), getattr(user, name) or getattr(defaults, name)
        if wanted is not None and _is_wider(name, wanted, allowed):
            ignored.append(f"The project's {name} {wanted!r} is ignored: it is wider than your own {allowed!r}.")
            project = msgspec.structs.replace(project, **{name: None})
    return project, tuple(ignored)


def _is_wider(name: str, value: str, than: str) -> bool:
    return _WIDTHS[name].index(value) > _WIDTHS[name].index(than)


def check_layer(layer: SettingsLayer, where: str) -> None:
    """Raises `InvalidRequest` for a value of the right type that cannot be meant."""
    if layer.agent is not None and not layer.agent.strip():
        raise InvalidRequest(f"{where}: the agent is empty.", hint="Name one, such as claude, or remove the line.")
    if layer.model is not None and not layer.model.strip():
        raise InvalidRequest(f"{where}: the model is empty.", hint="Name one, or remove the line.")
    for alias, model in layer.aliases.items():
        if not alias or "/" in alias or "@" in alias or any(map(str.isspace, alias)):
            hint = "An alias is one word without '/' and '@', such as fast."
            raise InvalidRequest(f"{where}: {alias!r} cannot be an alias.", hint=hint)
        if not model.strip():
            raise InvalidRequest(f"{where}: the alias {alias!r} names no model.", hint='Write fast = "haiku".')
