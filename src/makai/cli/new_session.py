"""The session that `makai run` and `makai chat` begin or continue: options of the command line over the settings."""

from __future__ import annotations

from typing import Literal

import msgspec

from makai.catalog.model_ref import ref_of
from makai.catalog.model_settings import model_for
from makai.cli.console import note
from makai.cli.run_request import RunRequest
from makai.cli.session_selection import chosen_session
from makai.core.model import Model, ModelCapability
from makai.core.session_events import SessionTerms
from makai.core.settings import Settings, SettingsLayer, resolve_settings
from makai.harness.registry import NATIVE, harness_id_of
from makai.providers.runtime import ModelRuntime
from makai.sessions.requests import CreateSession, ForkSession, GetProjectSettings
from makai.sessions.service import Sessions


def with_agent(request: RunRequest, settings: Settings) -> RunRequest:
    """The request with the agent of the new session; None is makai's own, also when it was named."""
    if request.demo or not request.is_new:
        return request
    agent = settings.agent_for(request.agent, request.model)
    return msgspec.structs.replace(request, agent=None if harness_id_of(agent) == NATIVE else agent)


async def settings_for(request: RunRequest, sessions: Sessions, models: ModelRuntime) -> Settings:
    """The settings of a session in the folder of the request. From here on the models know the project's aliases."""
    project = await sessions.dispatch(GetProjectSettings(request.cwd))
    flags = SettingsLayer(model=request.model, mode=request.mode, sandbox=request.sandbox)
    user = models.logins.config.settings
    settings = resolve_settings(flags=flags, environ=models.environ, project=project, user=user)
    models.resolver.settings = settings
    for sentence in settings.ignored:
        note(f"makai: {sentence}", dim=True)
    return settings


def new_session(
    request: RunRequest, settings: Settings, model: Model | None, made_by: Literal["", "run"] = ""
) -> CreateSession:
    """`model` is None for another agent than makai's own: `--model` then names one of the agent's models."""
    return CreateSession(
        model_ref=request.model or "" if model is None else ref_of(model),
        harness=harness_id_of(request.agent),
        mode=settings.mode,
        cwd=request.cwd,
        roots=request.roots,
        title=request.title,
        made_by=made_by,
        terms=SessionTerms(
            system=request.system_prompt,
            system_append=request.append_system_prompt or "",
            builtin_tools=request.tools and (model is None or model.can(ModelCapability.TOOLS)),
            tool_servers=request.tool_servers,
            sandbox=settings.sandbox,
            max_usd=request.session_usd,
            reasoning_effort=settings.effort,
        ),
    )


async def continued_session(request: RunRequest, sessions: Sessions) -> str:
    """The id of the session to continue, or of its copy."""
    session_id = (await chosen_session(sessions, request.resume, request.cwd)).session_id
    if not request.fork:
        return session_id
    return await sessions.dispatch(ForkSession(origin=session_id, title=request.title or None))


def chosen_model(request: RunRequest, settings: Settings, models: ModelRuntime) -> Model | None:
    """The model of makai's own agent; None for another agent."""
    return None if request.agent is not None else model_for(models, settings, request.model)
