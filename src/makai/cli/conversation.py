"""A conversation in the terminal: which session it is about, and how it is shown.

In: what the command line asks for. Out: an exit code. Thin: `makai.cli.terminal` talks, the sessions do the work.
"""

from __future__ import annotations

import os
import sys
from typing import Final, Protocol

import msgspec

from makai.cli.console import has_colour, run_async, say, styled
from makai.cli.run_request import folder_from
from makai.cli.session_access import open_sessions
from makai.cli.sessions_find import find_session, newest_session
from makai.cli.terminal.blocks import finished_length
from makai.cli.terminal.live import short_model
from makai.cli.terminal.plain import PlainChat
from makai.cli.terminal.talk import Show, Talk, ref_of, terms_for
from makai.cli.terminal.text import note
from makai.cli.terminal.trust import QUESTION, project_files
from makai.cli.terminal.visible import one_line
from makai.cli.typed_lines import TypedLines
from makai.core.model import Model
from makai.core.request import StreamOptions
from makai.core.session_events import PermissionMode, RunTerms
from makai.providers.runtime import ModelRuntime
from makai.sessions.service import NewSession, Sessions

HISTORY_FILE: Final = "chat-history"


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What `makai chat` was asked for. None where the session, or the default, decides."""

    model: str | None = None
    account: str | None = None
    system_prompt: str | None = None
    mode: PermissionMode | None = None
    cwd: str | None = None
    resume: str | None = None
    """A session's id, or the beginning of it."""
    continue_newest: bool = False


class _Front(Protocol):
    """Where the person is: a terminal that is drawn on, or plain lines."""

    @property
    def show(self) -> Show: ...

    async def run(self, talk: Talk) -> int: ...


def converse(request: ChatRequest) -> int:
    """Talk until the person leaves."""
    return run_async(_converse(request))


def is_drawn_on() -> bool:
    """Whether both ends are a terminal that knows more than lines."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


async def _converse(request: ChatRequest) -> int:
    folder = folder_from(request.cwd)
    async with ModelRuntime(on_status=lambda text: front.show([note(text)])) as models:
        front = _front(models)
        took_over = "The process that ran the sessions has ended; this one runs them now."
        async with open_sessions(models=models, on_takeover=lambda: front.show([note(took_over)])) as sessions:
            model = models.resolve(request.model)
            talk = _talk(request, sessions, models, model, folder, front)
            await _begin(request, talk, model, folder)
            code = await front.run(talk)
            _say_goodbye(talk)
            return code


def _front(models: ModelRuntime) -> _Front:
    if not is_drawn_on():
        return PlainChat()
    from makai.cli.terminal.desk import Desk
    from makai.cli.terminal.paint import Painter

    colour = has_colour(sys.stdout)
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "utf16")
    return Desk(Painter(colour=colour, unicode=unicode), history=models.home / HISTORY_FILE, colour=colour)


def _talk(
    request: ChatRequest, sessions: Sessions, models: ModelRuntime, model: Model, folder: str, front: _Front
) -> Talk:
    wanted = NewSession(
        model_ref=ref_of(model),
        mode=request.mode or "ask",
        cwd=folder,
        terms=terms_for(model, request.system_prompt),
    )
    return Talk(
        sessions,
        models,
        wanted,
        front.show,
        me=f"terminal-{os.getpid()}",
        finished_length=finished_length if is_drawn_on() else len,
        run_terms=RunTerms(options=StreamOptions(account=request.account)),
    )


async def _begin(request: ChatRequest, talk: Talk, model: Model, folder: str) -> None:
    if request.resume is None and not request.continue_newest:
        _welcome(model, folder)
        await _ask_about_trust(talk, folder)
        return
    if request.resume is not None:
        found = await find_session(talk.sessions, request.resume)
    else:
        found = await newest_session(talk.sessions, folder)
    await talk.open(found.session_id)
    if request.model is not None:
        await talk.set_model(request.model)
    if request.mode is not None:
        await talk.set_mode(request.mode)


def _welcome(model: Model, folder: str) -> None:
    if not sys.stdout.isatty():
        return
    name = f"{one_line(model.name)}, " if model.name else ""
    say(f"{styled('makai', sys.stdout, bold=True)}: {name}{short_model(ref_of(model))}, in {one_line(folder)}")
    if model.provider == "local":
        say("This model is small: it talks, it is not an agent. For a capable one log in (`makai auth login`), or")
        say("set a provider's API key; `makai doctor` shows what there is.")
    say(styled("/help lists commands and keys, Esc stops the agent, Ctrl+D leaves.", sys.stdout, dim=True))


async def _ask_about_trust(talk: Talk, folder: str) -> None:
    """Once, before the agent works where files would instruct it. Where nobody can be asked, nothing is trusted."""
    if not (talk.view.state.terms.builtin_tools and sys.stdin.isatty() and sys.stdout.isatty()):
        return
    files = project_files(folder)
    if not files or await talk.sessions.is_trusted(folder):
        return
    say(f"\nThis folder has project files: {', '.join(map(one_line, files))}.")
    say(f"{QUESTION} [y/N] ", end="")
    answer = (await TypedLines().next() or "").strip().lower()
    if answer in ("y", "yes"):
        await talk.sessions.trust(folder, True)
    else:
        say("Their instructions do not count, and nothing they configure is started. /trust changes that.")


def _say_goodbye(talk: Talk) -> None:
    if talk.session_id is None or not sys.stdout.isatty():
        return
    if talk.is_busy:
        say("The agent was not done: it goes on where these sessions are open.")
    say(styled(f"To go on: makai -r {talk.session_id}", sys.stdout, dim=True))
