"""Turns what a user types into requests: messages with their attachments, slash commands, `!commands`, and what is
chosen in a picker. What the line looks like meanwhile is the business of `Composer`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from makai.cli.terminal import slash_commands as slash
from makai.cli.terminal.chat_session import ChatSession
from makai.cli.terminal.clipboard import clipboard_picture
from makai.cli.terminal.composer import Composer, TypedMessage
from makai.cli.terminal.export_commands import clipboard_sequence
from makai.cli.terminal.menu import Choice
from makai.cli.terminal.pickers import PICKED, earlier_messages, picker_for
from makai.cli.terminal.screen import Screen
from makai.cli.terminal.shell_escape import ShellOutcome, ShellRun
from makai.cli.terminal.status_area import STOPS
from makai.cli.terminal.styled_text import Line, Lines, Piece, Span, line, lines_of, note
from makai.core.content import SessionPart, Text
from makai.core.errors import MakaiError
from makai.core.programs import failed_editor
from makai.core.session_events import Delivery
from makai.core.session_files import FoundPaths
from makai.core.visible_text import one_line, shown
from makai.tools.attachments import detach

MAX_SHELL_LINES: Final = 30
"""Lines of a command's output that are shown; Ctrl+O shows the rest."""
MAX_SHELL_RUNS: Final = 8


class ChatInput:
    def __init__(
        self,
        screen: Screen,
        show: Callable[[Sequence[Piece]], None],
        do: Callable[[Callable[[], Awaitable[object]]], None],
        chat: Callable[[], ChatSession],
    ) -> None:
        """`do` carries out requests one after the other and explains their errors."""
        self._screen = screen
        self._show = show
        self._do = do
        self._chat = chat
        self.composer = Composer(screen.buffer, self._commands, screen.refresh)
        self._shell_runs: asyncio.Queue[ShellRun] = asyncio.Queue(MAX_SHELL_RUNS)
        self._shell: ShellRun | None = None
        self._outputs: list[SessionPart] = []
        """Of the user's commands, which the next message takes along; also those of a message that was taken back."""
        self._told: set[str] = set()
        """What was said about command files that cannot be used."""

    async def serve(self) -> None:
        """Read the user's commands, look up files and run shell commands until cancelled."""
        self._do(self._load_commands)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.composer.follow_files(lambda: self._chat().cwd, self._find_elsewhere))
            group.create_task(self._run_shells())

    def lines(self, rows: int) -> list[Line]:
        shell = self._shell
        if shell is None:
            return self.composer.lines(rows)
        running = line(Span("  running", "key"), Span(f", {STOPS}: ", "dim"), Span(one_line(shell.command), "key"))
        return [running, *self.composer.lines(rows - 1)]

    def _commands(self, text: str) -> list[Choice]:
        return slash.completions(text, self._chat().commands)

    def submit(self, draft: TypedMessage, delivery: Delivery = "queue", *, is_typed: bool = True) -> None:
        """Not `is_typed`: a message of the command line, which a script may have made, and which runs no program."""
        text = draft.text
        if draft.was_queued:
            self._do(lambda: self._send(draft, delivery))
            return
        if is_typed and text.startswith("!"):
            self._start_shell(text[1:].strip())
            return
        command = slash.parse(text)
        if command is None:
            self._do(lambda: self._send(draft, delivery))
            return
        name, argument = command
        if not name:
            self._do(lambda: self._own_command(draft))
        elif name == "quit":
            self._screen.leave(0)
        elif name == "rewind":
            self.go_back()
        elif name in PICKED and not argument:
            self.pick(name)
        else:
            self._echo(text)
            self._do(lambda: self._command(name, argument))

    def _echo(self, text: str) -> None:
        self._show([note(shown(f"> {text}"), gap=True)])

    async def _command(self, name: str, argument: str) -> None:
        chat = self._chat()
        self._show(await slash.carry_out(chat, name, argument))
        if chat.copied:
            self._screen.notify(clipboard_sequence(chat.copied))
            self._show([note(f"Copied the last answer to the clipboard ({len(chat.copied):,} characters).")])
            chat.copied = ""
        await self._load_commands()

    async def _load_commands(self) -> None:
        chat = self._chat()
        told = [*await chat.load_commands(), *slash.hidden_commands(chat.commands)]
        self._show([note(sentence, "warn") for sentence in told if sentence not in self._told])
        self._told.update(told)
        self._screen.refresh()  # the menu may be open

    async def _own_command(self, draft: TypedMessage) -> None:
        chat = self._chat()
        await self._load_commands()
        message = slash.custom_message(draft.text, chat.commands)
        if message is None:
            self._echo(draft.text)
            self._show([note(shown(slash.unknown(draft.text, chat.commands)), "warn")])
        else:
            await self._send(TypedMessage(text=message, pictures=draft.pictures), "queue")

    async def _send(self, draft: TypedMessage, delivery: Delivery) -> None:
        chat = self._chat()
        outputs, self._outputs = self._outputs, []
        try:
            attached = await chat.attached(draft.text, draft.pictures)
            self._show([note(notice, "warn") for notice in attached.notices])
            content = attached.content
            if outputs:
                content = (*((Text(text=content),) if isinstance(content, str) else content), *outputs)
            await chat.send(content, delivery)
        except MakaiError:
            self._outputs = [*outputs, *self._outputs]
            self.composer.restore(draft)
            raise

    def take_back(self) -> None:
        """Take this terminal's newest queued message out of the queue and into the line, with its attachments."""

        async def taken_back() -> None:
            chat = self._chat()
            if not self.composer.is_empty:
                return  # the key was pressed twice, or the user types already
            if (message := await chat.take_back()) is None:
                self._show([note("The agent has started on your message already.")])
                return
            found = await asyncio.to_thread(detach, message.content, chat.folders)
            self._outputs = [*found.others, *self._outputs]
            self.composer.take_back(TypedMessage(text=found.text, pictures=found.pictures, was_queued=True))
            self._screen.refresh()

        self._do(taken_back)

    def pick(self, command: str) -> None:
        """Open the picker of a command."""

        async def opened() -> None:
            picker = await picker_for(command, self._chat())
            self.composer.pick(picker, lambda value: self._do(lambda: self._command(command, value)))

        self._do(opened)

    def go_back(self) -> None:
        """Let the user choose an earlier message, and continue from before it in a copy of the session."""

        async def opened() -> None:
            picker, places = await earlier_messages(self._chat())
            self.composer.pick(picker, lambda value: self._do(lambda: branched(*places[value])))

        async def branched(at: int, text: str) -> None:
            await self._chat().branch(at)
            self._show([note("You are in a copy of the session from before that message. Files are as they are now.")])
            self.composer.restore(TypedMessage(text=text))

        self._do(opened)

    def _start_shell(self, command: str) -> None:
        if not command:
            self._show([note("Write a command after the !, such as !ls", "warn")])
        elif not self._chat().has_folder:
            self._show(
                [note("The folder of this session is on another machine: a command here would not run in it.", "warn")]
            )
        elif self._shell_runs.full():
            self._screen.bell()
        else:
            self._shell_runs.put_nowait(ShellRun(command, self._chat().cwd))

    async def _find_elsewhere(self, query: str) -> FoundPaths | None:
        """Files of a session whose folder is on another machine; None when it is on this one."""
        chat = self._chat()
        return None if chat.has_folder else await chat.find_files(query)

    def stop_shell(self) -> bool:
        """Stop the user's command; False when none runs."""
        if self._shell is not None:
            self._shell.stop()
        return self._shell is not None

    async def _run_shells(self) -> None:
        while True:
            self._shell = await self._shell_runs.get()
            self._screen.refresh()
            try:
                outcome = await self._shell.run()
            except OSError as error:
                self._show([note(shown(f"✗ the command cannot be started: {error.strerror}"), "bad")])
                continue
            finally:
                self._shell = None
            self._report(outcome)

    def _report(self, outcome: ShellOutcome) -> None:
        """Show the output; an agent that works gets it now, else the next message takes it along."""
        chat = self._chat()
        rows = lines_of(shown(outcome.output), "dim", "  ") if outcome.output else []
        head = line(Span(f"! {shown(outcome.command)}", "user"))
        ending = [line(Span(f"  {outcome.ending}", "warn"))] if outcome.ending else []
        whole = Lines(lines=(head, *rows, *ending), gap=True)
        if len(rows) > MAX_SHELL_LINES + 1:  # the mark takes a line too
            chat.view.folded = whole
            more = line(Span(f"  … {len(rows) - MAX_SHELL_LINES} more lines (Ctrl+O)", "dim"))
            self._show([Lines(lines=(head, *rows[:MAX_SHELL_LINES], more, *ending), gap=True)])
        else:
            self._show([whole])
        self._outputs.append(outcome.for_model())
        if chat.is_running:
            told = TypedMessage(text="I ran a command; its output is attached.")
            self._do(lambda: self._send(told, "steer"))

    def paste(self, text: str) -> None:
        self.composer.paste(text, self._chat().cwd)

    def paste_picture(self) -> None:
        async def pasted() -> None:
            self.composer.add_picture(await clipboard_picture(os.environ, self._folder()))

        self._do(pasted)

    def _folder(self) -> str:
        return self._chat().cwd or os.getcwd()

    def edit(self) -> None:
        """Let the user write the message in an editor."""

        async def edited() -> None:
            before = self.composer.expanded(self._screen.buffer.text)
            try:
                self.composer.edited(await self._screen.edit(before, self._folder()))
            except (OSError, UnicodeDecodeError, ValueError) as error:
                raise failed_editor(os.environ, error) from error

        self._do(edited)
