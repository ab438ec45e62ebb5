"""A conversation in the terminal.

In: lines a person types. Out: streamed answers. Ctrl-C stops the answer and keeps the chat; at the prompt it clears
the line, and twice in a row it leaves, as Ctrl-D does. Thin: the runtime does the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from contextlib import aclosing

from makai.cli.console import EXIT_INTERRUPTED, explain, harmless, has_colour, new_runner, note, say, styled
from makai.core.errors import MakaiError
from makai.core.messages import AssistantMessage, Message, UserMessage
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.stream_events import Done, Failed, StreamEvent, TextDelta, ThinkingDelta, ThinkingEnd
from makai.providers.runtime import ModelRuntime, failure_of

HELP = """\
  /model NAME   use another model (provider/model_id)
  /clear        forget the conversation
  /help         this list
  /exit         leave (also Ctrl-D)
  Ctrl-C        stop the answer"""


def converse(model: str | None, system_prompt: str | None, account: str | None = None) -> int:
    """Talk until the person leaves."""
    runtime = ModelRuntime(on_status=lambda text: note(text, dim=True))
    with new_runner() as runner:
        try:
            chat = Chat(runtime, runtime.resolve(model), system_prompt, account)
            chat.welcome()
            return _answer_lines(chat, runner)
        finally:
            runner.run(runtime.close())


def _answer_lines(chat: Chat, runner: asyncio.Runner) -> int:
    prompt = _prepare_prompt()
    interrupted = False
    while True:
        try:
            line = input(prompt).strip()
        except EOFError:
            say()
            return 0
        except UnicodeDecodeError:
            note("That was not valid UTF-8 text.")
            continue
        except KeyboardInterrupt:
            say()
            if interrupted:
                return EXIT_INTERRUPTED
            interrupted = True
            note("(Ctrl-C again, or Ctrl-D, to leave)", dim=True)
            continue
        interrupted = False
        try:
            if not _obey_or_answer(chat, runner, line):
                return 0
        except KeyboardInterrupt:
            note("\n(stopped)\n", dim=True)
        except MakaiError as error:
            explain(error)
            say()


def _obey_or_answer(chat: Chat, runner: asyncio.Runner, line: str) -> bool:
    """False means leave."""
    if line.startswith("/"):
        return chat.obey(line)
    if line:
        runner.run(chat.answer(line))
    return True


def _prepare_prompt() -> str:
    """The prompt of `input`, with line editing and history. A script that pipes its lines in gets none."""
    if not sys.stdin.isatty():
        return ""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (editing and history begin with the import)
    if not has_colour(sys.stdout):
        return "> "
    # \001 and \002 tell readline that what is between them takes no room on the line.
    return "\001\033[1;36m\002> \001\033[0m\002"


class Chat:
    """One conversation: the messages so far and the model that continues it."""

    def __init__(
        self, runtime: ModelRuntime, model: Model, system_prompt: str | None, account: str | None = None
    ) -> None:
        self._runtime = runtime
        self._model = model
        self._system_prompt = system_prompt
        self._options = StreamOptions(account=account)
        self._messages: list[Message] = []

    def welcome(self) -> None:
        """Who answers, and what a person may type."""
        name = self._model.name or self._model.id
        say(f"{styled('makai', sys.stdout, bold=True)}: talking to {name}, {self._model.provider}/{self._model.id}")
        if self._model.provider == "local":
            say("This model is small: it talks, it is not an agent. For a capable one log in (`makai auth login`), or")
            say("set a provider's API key; `makai doctor` shows what there is.")
        say("Type /help for commands, Ctrl-D to leave.\n")

    def obey(self, line: str) -> bool:
        """A slash command; False means leave."""
        word, _, rest = line.partition(" ")
        match word:
            case "/exit" | "/quit":
                return False
            case "/help":
                say(HELP)
            case "/clear":
                self._messages.clear()
                say("(forgotten)")
            case "/model" if rest.strip():
                self._model = self._runtime.resolve(rest.strip())
                say(f"(now talking to {self._model.provider}/{self._model.id})")
            case "/model":
                say(f"{self._model.provider}/{self._model.id}")
            case _:
                say(f"Unknown command {word}.\n{HELP}")
        return True

    async def answer(self, text: str) -> None:
        """Ask and print. A stopped or failed answer leaves the conversation as it was before the question."""
        context = Context(messages=(*self._messages, UserMessage(content=text)), system_prompt=self._system_prompt)
        async with aclosing(self._runtime.stream(self._model, context, self._options)) as events:
            async for event in events:
                self._show(event)
                if isinstance(event, Failed):
                    say()
                    raise failure_of(event)
                if isinstance(event, Done):
                    self._remember(text, event.message)

    def _show(self, event: StreamEvent) -> None:
        if isinstance(event, TextDelta):
            say(harmless(event.delta, sys.stdout), end="")
        elif isinstance(event, ThinkingDelta):
            say(styled(harmless(event.delta, sys.stdout), sys.stdout, dim=True), end="")
        elif isinstance(event, ThinkingEnd):
            say("\n")

    def _remember(self, text: str, answer: AssistantMessage) -> None:
        self._messages += [UserMessage(content=text), answer]
        usage = answer.usage
        cost = f", ${usage.cost_usd:.4f}" if usage.cost_usd else ""
        ends = {"max_tokens": " (cut at the length limit)", "refusal": " (the model refused to go on)"}
        ending = ends.get(answer.stop_reason or "", "")
        counts = f"[{usage.input + usage.cache_read + usage.cache_write} in, {usage.output} out{cost}]{ending}"
        say(f"\n{styled(counts, sys.stdout, dim=True)}\n")
