"""Sets up a chat: the models, the session and the user interface, and what is said at its beginning and end."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from makai.cli.console import EXIT_LOGIN_NEEDED, NO_SANDBOX, has_colour, run_async, styled, tell
from makai.cli.console import note as warn
from makai.cli.early_prompt import EARLY_PROMPT, can_redraw
from makai.cli.new_session import chosen_model, continued_session, new_session, settings_for, with_agent
from makai.cli.provider_access import lacks_model
from makai.cli.run_request import RunRequest
from makai.cli.session_access import open_sessions
from makai.cli.session_selection import shown_agent
from makai.cli.terminal.chat_session import ChatSession
from makai.cli.terminal.folder_trust import ask_about_trust
from makai.cli.terminal.markdown_blocks import finished_length
from makai.cli.terminal.plain_chat import PlainChat
from makai.cli.terminal.styled_text import Piece, note
from makai.cli.terminal.usage_text import all_input, run_totals
from makai.core.errors import InvalidRequest
from makai.core.model import Model
from makai.core.settings import Settings
from makai.core.tool_server_ids import check_server_ids
from makai.core.visible_text import one_line
from makai.harness.registry import NATIVE
from makai.providers.runtime import ModelRuntime
from makai.server.demo import make_demo
from makai.sessions.placement import labels_here
from makai.sessions.requests import CreateSession
from makai.sessions.state import SessionState

if TYPE_CHECKING:
    from makai.cli.terminal.chat_ui import ChatUI
    from makai.cli.terminal.status_line import StatusLine

HISTORY_FILE: Final = "chat-history"


def converse(request: RunRequest) -> int:
    return run_async(chat_until_left(request))


async def chat_until_left(request: RunRequest) -> int:
    frontend: ChatUI | PlainChat | None = None

    def show(pieces: Sequence[Piece]) -> None:
        if frontend is not None:
            frontend.show(pieces)

    async with ModelRuntime(on_status=lambda text: show([note(text)])) as models:
        takeover = note("The process that ran the sessions has ended; this one runs them now.")
        async with open_sessions(models=models, on_takeover=lambda: show([takeover])) as sessions:
            settings = await settings_for(request, sessions, models)
            request = with_agent(request, settings)
            if request.takes_default_model and settings.model is None and lacks_model(models):
                from makai.cli.first_steps import first_model  # most users have a model

                with EARLY_PROMPT.set_aside():
                    done = await first_model(models)
                if done == "left":
                    return EXIT_LOGIN_NEEDED
                request = msgspec.structs.replace(request, demo=done == "demo")
            frontend = _frontend(models, settings, request.cwd)
            chat = ChatSession(
                sessions,
                models,
                _wanted(request, settings, models),
                show,
                me=f"terminal-{os.getpid()}",
                finished_length=finished_length if can_redraw() else len,
                run_terms=request.terms,
                labels=labels_here(models.home, models.logins.config),
            )
            EARLY_PROMPT.hide()
            await _begin(request, chat, models)
            try:
                return await frontend.run(chat, request.question)
            finally:  # also when a signal ends the chat
                _say_goodbye(chat)


def _frontend(models: ModelRuntime, settings: Settings, folder: str) -> ChatUI | PlainChat:
    if not can_redraw():
        return PlainChat()
    from makai.cli.terminal.chat_ui import ChatUI
    from makai.cli.terminal.renderer import Renderer

    colour = has_colour(sys.stdout) and settings.theme != "plain"
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "utf16")
    config = models.logins.config
    return ChatUI(
        Renderer(colour=colour, unicode=unicode, light=settings.theme == "light"),
        history=models.home / HISTORY_FILE,
        folder=folder,
        colour=colour,
        notify=config.notify,
        status_line=_status_line(config.status_line),
    )


def _status_line(template: str) -> StatusLine:
    """The usual one when the user's cannot be read: a mistake in it must not keep the chat from starting."""
    from makai.cli.terminal.status_line import StatusLine

    try:
        return StatusLine(template)
    except InvalidRequest as error:
        warn(f"makai: {error.message} The usual one is shown.", fg="yellow")
        return StatusLine()


def _wanted(request: RunRequest, settings: Settings, models: ModelRuntime) -> CreateSession:
    """The session that the first message begins."""
    if request.demo:
        return make_demo(os.environ)
    wanted = new_session(request, settings, chosen_model(request, settings, models))
    if wanted.harness != NATIVE:  # what is not installed is better said now than after the first message
        from makai.harness.acp.known_agents import agent_of

        agent_of(wanted.harness, models.logins.config.agents).argv(request.cwd, os.environ)
    check_server_ids(request.tool_servers)
    return wanted


async def _begin(request: RunRequest, chat: ChatSession, models: ModelRuntime) -> None:
    if request.is_new:
        state = chat.view.state
        _welcome(models.resolve(state.model_ref) if state.harness == NATIVE else None, state, state.cwd or request.cwd)
        if state.terms.sandbox == "full-access" and state.terms.builtin_tools:
            warn(NO_SANDBOX, fg="yellow")
        if state.terms.builtin_tools and not request.demo and await ask_about_trust(chat.sessions, request.cwd):
            await _take_project_settings(request, chat, models)
        return
    await chat.open(await continued_session(request, chat.sessions))
    if request.title and not request.fork:
        await chat.set_title(request.title)
    if request.model is not None:
        await chat.set_model(request.model)
    if request.mode is not None:
        await chat.set_mode(request.mode)
    if request.sandbox is not None:
        await chat.set_sandbox(request.sandbox)
    if request.session_usd is not None:
        await chat.set_budget(f"{request.session_usd}")


async def _take_project_settings(request: RunRequest, chat: ChatSession, models: ModelRuntime) -> None:
    """The folder has become trusted just now, so its settings count from the beginning."""
    before = chat.view.state.model_ref
    chat.begin_with(_wanted(request, await settings_for(request, chat.sessions, models), models))
    if chat.view.state.model_ref != before:
        tell(f"The project's settings count: {shown_agent(chat.view.state)}.")


def _welcome(model: Model | None, state: SessionState, folder: str) -> None:
    if not sys.stdout.isatty():
        return
    name = f"{one_line(model.name)}, " if model is not None and model.name else ""
    makai = styled("makai", sys.stdout, bold=True)
    tell(f"{makai}: {name}{shown_agent(state)}, in {one_line(folder)}")
    if model is not None and model.provider == "local":
        better = "For a capable one, log in (`makai auth login`) or set a provider's API key"
        tell(f"This small local model can chat, but it cannot use tools. {better}; `makai doctor` shows what you have.")
    hints = "Ask anything, or describe a task. /help lists commands and keys, Esc stops the agent, Ctrl+D leaves."
    tell(hints, dim=True)


def _say_goodbye(chat: ChatSession) -> None:
    if chat.session_id is None or not sys.stdout.isatty():
        return
    if chat.is_busy:
        tell("The run was not finished. It continues when you or another client opens the session.")
    total = chat.view.usage.total if chat.view.usage is not None else chat.view.state.usage
    if used := run_totals(total, 0) if all_input(total) or total.output else "":
        tell(f"This session: {used[1:-1]}", dim=True)
    tell(f"To continue: makai -r {chat.session_id}", dim=True)
