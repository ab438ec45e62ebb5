"""Asking once and printing the answer: what `makai run` does once it knows the question.

In: a model's name, a question, options, an output format. Out: the answer on stdout and an exit code. Thin: the
runtime does the work.
"""

from __future__ import annotations

import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

from makai.cli.console import exit_code, explain, harmless, hint_of, note, say, say_json
from makai.cli.json_schema import OutputSchema
from makai.core.errors import InvalidRequest, MakaiError
from makai.core.messages import AssistantMessage, UserMessage
from makai.core.request import Context, StreamOptions
from makai.core.stream_events import Done, Failed, StreamEvent, TextDelta, ThinkingDelta, ThinkingEnd
from makai.providers.runtime import ModelRuntime, failure_of

_OPTION_NAMES = {"effort": "reasoning_effort", "stall_timeout": "stall_timeout_s"}


def options_from(json_schema: str | None, **settings: object) -> StreamOptions:
    """The options of the request. What was not given on the command line keeps its default."""
    given: dict[str, Any] = {
        _OPTION_NAMES.get(name, name): value for name, value in settings.items() if value is not None
    }
    return StreamOptions(json_schema=None if json_schema is None else _read_schema(json_schema), **given)


def _read_schema(given: str) -> str:
    """Inline JSON, or the name of a file that holds it."""
    if given.lstrip().startswith("{"):
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidRequest(f"cannot read the schema {given}: {why}") from error


async def answer(
    model: str | None, question: str, system_prompt: str | None, options: StreamOptions, output_format: str
) -> int:
    """Ask, print, and say how it went."""
    printer = _PRINTERS[output_format](hold=options.json_schema is not None)
    context = Context(messages=(UserMessage(content=question),), system_prompt=system_prompt)
    try:
        schema = None if options.json_schema is None else OutputSchema(options.json_schema)
        async with (
            ModelRuntime(on_status=printer.status) as runtime,
            aclosing(runtime.stream(model, context, options)) as events,
        ):
            async for event in events:
                if isinstance(event, Done) and schema is not None:
                    schema.check(event.message)
                printer.event(event)
                if isinstance(event, Failed):
                    raise failure_of(event)
    except MakaiError as error:
        printer.failed(error)
        return exit_code(error)
    return 0


class _Printer:
    """Text for people: words as they come, thinking dimmed on stderr, errors in words.

    `hold` keeps the words back until the whole answer was checked.
    """

    def __init__(self, *, hold: bool) -> None:
        self._hold = hold
        self._at_line_start = True

    def status(self, text: str) -> None:
        if sys.stderr.isatty():
            note(text, dim=True)

    def event(self, event: StreamEvent) -> None:
        if isinstance(event, TextDelta) and not self._hold:
            self._print(event.delta)
        elif isinstance(event, ThinkingDelta) and sys.stderr.isatty():
            note(harmless(event.delta, sys.stderr), end="", dim=True)
        elif isinstance(event, ThinkingEnd) and sys.stderr.isatty():
            note("\n")
        elif isinstance(event, Done):
            self._done(event.message)

    def failed(self, error: MakaiError) -> None:
        self._finish_line()
        explain(error)

    def _done(self, message: AssistantMessage) -> None:
        if self._hold:
            self._print(message.text())
        self._finish_line()
        if message.stop_reason == "max_tokens":
            note("makai: the answer was cut at the length limit; see --max-tokens", dim=True)
        elif message.stop_reason == "refusal":
            note(f"makai: {message.provider} stopped the answer: the model refused to go on", dim=True)

    def _print(self, text: str) -> None:
        if text:
            say(harmless(text, sys.stdout), end="")
            self._at_line_start = text.endswith("\n")

    def _finish_line(self) -> None:
        if not self._at_line_start:
            say()
        self._at_line_start = True


class _JsonPrinter(_Printer):
    """One JSON object at the end, for scripts; failures too."""

    def event(self, event: StreamEvent) -> None:
        if isinstance(event, Done):
            say_json({"type": "result", "text": event.message.text(), "message": event.message})

    def failed(self, error: MakaiError) -> None:
        say_json(_error_object(error))


class _StreamJsonPrinter(_JsonPrinter):
    """One line of JSON per event. The last one is `done` or `error`, also when there was no stream at all."""

    def __init__(self, *, hold: bool) -> None:
        super().__init__(hold=hold)
        self._ended = False

    def event(self, event: StreamEvent) -> None:
        self._ended = isinstance(event, Done | Failed)
        say_json(event)

    def failed(self, error: MakaiError) -> None:
        if not self._ended:
            super().failed(error)


def _error_object(error: MakaiError) -> dict[str, Any]:
    """The members an `error` event has, as far as they are known."""
    fields = {
        "type": "error",
        "reason": "error",
        "error_code": error.code,
        "error_message": error.message,
        "provider_id": getattr(error, "provider_id", None),
        "retry_after_ms": getattr(error, "retry_after_ms", None),
        "hint": hint_of(error) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


_PRINTERS: dict[str, type[_Printer]] = {"text": _Printer, "json": _JsonPrinter, "stream-json": _StreamJsonPrinter}
