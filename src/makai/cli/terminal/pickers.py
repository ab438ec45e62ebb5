"""What the pickers of a chat offer: models, sessions, agents, and earlier messages to branch at."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

from makai.catalog.models import ModelDescriptor
from makai.cli.model_list import ListRequest, ModelListing, list_now
from makai.cli.session_selection import short_model, shown_agent
from makai.cli.terminal.chat_session import ChatSession
from makai.cli.terminal.menu import Choice, Picker
from makai.cli.terminal.usage_text import duration, tokens
from makai.core.errors import InvalidRequest
from makai.core.home import home_directory
from makai.core.visible_text import one_line
from makai.harness.acp.known_agents import offered_agents
from makai.harness.registry import NATIVE
from makai.providers.logins import CONFIG_FILE, read_config
from makai.sessions.log.base import SessionFilter
from makai.sessions.requests import ListSessions

PICKED: Final = frozenset({"model", "resume", "agent"})
"""Commands that open a picker when they are given no argument."""
MAX_SESSIONS: Final = 200


async def picker_for(command: str, chat: ChatSession) -> Picker:
    """Raises `InvalidRequest` when there is nothing to choose."""
    match command:
        case "model":
            return await _models(chat)
        case "resume":
            return await _sessions(chat)
        case _:
            return await asyncio.to_thread(_agents, chat.view.state.harness)


async def _models(chat: ChatSession) -> Picker:
    state = chat.view.state
    if not state.capabilities.needs_model or state.harness != NATIVE:
        offered = state.agent.models if state.agent is not None else ()
        if not offered:
            raise InvalidRequest("the agent offers no choice of models.", hint="/model MODEL asks for one by its name.")
        choices = [Choice(value=each.id, label=each.id, detail=each.name or each.description) for each in offered]
        return Picker("Model", choices, state.model_ref)
    listing = await asyncio.to_thread(list_now, ListRequest(), os.environ)
    current = short_model(state.model_ref)
    return Picker("Model", _model_choices(listing, current), current)


def _model_choices(listing: ModelListing, current: str) -> list[Choice]:
    """Models that can be used now are first."""
    ready = {one.provider for one in listing.access if one.ready}
    models = sorted(listing.response.models, key=lambda model: model.provider_id not in ready)
    choices = {}
    for model in models:
        name = f"{model.provider_id}/{model.model_id}"
        choices[name] = Choice(value=name, label=name, detail=_about(model, is_ready=model.provider_id in ready))
    known = choices.get(current, Choice(value=current, label=current))
    others = [choice for name, choice in choices.items() if name != current]
    return [Choice(value=current, label=current, detail=f"now  {known.detail}".strip()), *others]


def _about(model: ModelDescriptor, *, is_ready: bool) -> str:
    window = f"{tokens(model.context_window)} context" if model.context_window else ""
    return ", ".join(filter(None, (one_line(model.display_name), window, "" if is_ready else "needs a login")))


async def _sessions(chat: ChatSession) -> Picker:
    """Those of this folder first."""
    found = await chat.sessions.dispatch(ListSessions(SessionFilter(limit=MAX_SESSIONS, archived="without")))
    if not found:
        raise InvalidRequest("there is no session yet.")
    now = time.time()
    choices = [
        Choice(
            value=each.session_id,
            label=one_line(each.title, 60) or f"({each.session_id[:8]}, no title)",
            detail=", ".join(
                [
                    "this one" if each.session_id == chat.session_id else each.status,
                    f"{duration(max(0.0, now - each.updated_ms / 1000))} ago",
                    shown_agent(each),
                    *([] if each.cwd == chat.cwd else [one_line(each.cwd or "no folder")]),
                    each.session_id[:8],
                ]
            ),
        )
        for each in sorted(found, key=lambda each: each.cwd != chat.cwd)
    ]
    return Picker("Continue a session", choices)


def _agents(current: str) -> Picker:
    home = home_directory(os.environ)
    offered = offered_agents(read_config(home / CONFIG_FILE).agents, os.environ)
    choices = [Choice(value=NATIVE, label=NATIVE, detail="makai's own agent")]
    names = {NATIVE: NATIVE}
    for agent in offered:
        names[agent.harness] = agent.name
        missing = "" if agent.program else f", not installed: {agent.install}"
        choices.append(Choice(value=agent.name, label=agent.name, detail=f"{agent.title}{missing}"))
    return Picker("Agent", choices, names.get(current, ""))


async def earlier_messages(chat: ChatSession) -> tuple[Picker, dict[str, tuple[int, str]]]:
    """The user's messages, the newest first, and for each choice the event to branch at and the text."""
    messages = await chat.own_messages()
    if not messages:
        raise InvalidRequest("there is no earlier message to go back to.")
    places = {str(index): place for index, place in enumerate(messages)}
    choices = [Choice(value=index, label=one_line(text, 100)) for index, (_, text) in reversed(places.items())]
    return Picker("Go back to before a message, in a copy", choices), places
