"""Sets up a chat: the models, the session and the user interface, and what is said at its beginning and end."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from makai.catalog.model_ref import ref_of
from makai.cli.console import NO_SANDBOX, has_colour, run_async, say, styled
from makai.cli.console import note as warn
from makai.cli.run_request import folder_from
from makai.cli.session_access import open_sessions
from makai.cli.session_selection import chosen_session, short_model
from makai.cli.terminal.chat_session import ChatSession, terms_for
from makai.cli.terminal.folder_trust import ask_about_trust
from makai.cli.terminal.markdown_blocks import finished_length
from makai.cli.terminal.plain_chat import PlainChat
from makai.cli.terminal.styled_text import note
from makai.core.model import Model
from makai.core.request import StreamOptions
from makai.core.session_events import PermissionMode, RunTerms, SandboxLevel
from makai.core.visible_text import one_line
from makai.providers.runtime import ModelRuntime
from makai.sessions.requests import CreateSession

if TYPE_CHECKING:
    from makai.cli.terminal.chat_ui import ChatUI

HISTORY_FILE: Final = "chat-history"


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `makai chat`. None keeps what the session has, or the default."""

    model: str | None = None
    account: str | None = None
    system_prompt: str | None = None
    mode: PermissionMode | None = None
    sandbox: SandboxLevel | None = None
    cwd: str | None = None
    resume: str | None = None
    """A session's id, or the beginning of it."""
    continue_newest: bool = False


def converse(request: ChatRequest) -> int:
    return run_async(_converse(request))


def _can_redraw() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


async def _converse(request: ChatRequest) -> int:
    folder = folder_from(request.cwd)
    async with ModelRuntime(on_status=lambda text: frontend.show([note(text)])) as models:
        frontend = _frontend(models)
        takeover = note("The process that ran the sessions has ended; this one runs them now.")
        async with open_sessions(models=models, on_takeover=lambda: frontend.show([takeover])) as sessions:
            model = models.resolve(request.model)
            terms = terms_for(model, request.system_prompt, request.sandbox or models.logins.config.sandbox.level)
            chat = ChatSession(
                sessions,
                models,
                CreateSession(model_ref=ref_of(model), mode=request.mode or "ask", cwd=folder, terms=terms),
                frontend.show,
                me=f"terminal-{os.getpid()}",
                finished_length=finished_length if _can_redraw() else len,
                run_terms=RunTerms(options=StreamOptions(account=request.account)),
            )
            await _begin(request, chat, model, folder)
            code = await frontend.run(chat)
            _say_goodbye(chat)
            return code


def _frontend(models: ModelRuntime) -> ChatUI | PlainChat:
    if not _can_redraw():
        return PlainChat()
    from makai.cli.terminal.chat_ui import ChatUI
    from makai.cli.terminal.renderer import Renderer

    colour = has_colour(sys.stdout)
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "utf16")
    return ChatUI(Renderer(colour=colour, unicode=unicode), history=models.home / HISTORY_FILE, colour=colour)


async def _begin(request: ChatRequest, chat: ChatSession, model: Model, folder: str) -> None:
    if request.resume is None and not request.continue_newest:
        _welcome(model, folder)
        if chat.view.state.terms.sandbox == "full-access" and chat.view.state.terms.builtin_tools:
            warn(NO_SANDBOX, fg="yellow")
        if chat.view.state.terms.builtin_tools:
            await ask_about_trust(chat.sessions, folder)
        return
    await chat.open((await chosen_session(chat.sessions, request.resume, folder)).session_id)
    if request.model is not None:
        await chat.set_model(request.model)
    if request.mode is not None:
        await chat.set_mode(request.mode)
    if request.sandbox is not None:
        await chat.set_sandbox(request.sandbox)


def _welcome(model: Model, folder: str) -> None:
    if not sys.stdout.isatty():
        return
    name = f"{one_line(model.name)}, " if model.name else ""
    say(f"{styled('makai', sys.stdout, bold=True)}: {name}{short_model(ref_of(model))}, in {one_line(folder)}")
    if model.provider == "local":
        say("This small local model can chat, but it cannot use tools. For a capable one, log in (`makai auth login`)")
        say("or set a provider's API key; `makai doctor` shows what you have.")
    hints = "Ask anything, or describe a task. /help lists commands and keys, Esc stops the agent, Ctrl+D leaves."
    say(styled(hints, sys.stdout, dim=True))


def _say_goodbye(chat: ChatSession) -> None:
    if chat.session_id is None or not sys.stdout.isatty():
        return
    if chat.is_busy:
        say("The run was not finished. It continues when you or another client opens the session.")
    say(styled(f"To continue: makai -r {chat.session_id}", sys.stdout, dim=True))
