"""`makai.show`: a live display of a stream, in notebooks and elsewhere. IPython is used when a kernel of it runs this
program, and is never imported here."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterable, Coroutine, Iterable
from typing import Any, Final, Protocol, TypeVar, overload

from makai.client import types as sdk
from makai.client.failures import failure_of
from makai.client.rendering import (
    GREY,
    MAX_ARGUMENTS,
    call_html,
    escaped,
    footer_html,
    markdown_html,
    usage_line,
)
from makai.core.visible_text import one_line, shown

UPDATE_S: Final = 0.1
"""A display is redrawn at most this often."""
_Response = TypeVar("_Response", bound=sdk.CompletionResponse, covariant=True)


class ShownStream(Protocol[_Response]):
    @property
    def response(self) -> _Response | None: ...


class AsyncShownStream(ShownStream[_Response], AsyncIterable[sdk.AgentStreamEvent], Protocol[_Response]):
    """A stream of the async client."""


class SyncShownStream(ShownStream[_Response], Iterable[sdk.AgentStreamEvent], Protocol[_Response]):
    """A stream of the synchronous client."""


@overload
def show(stream: AsyncShownStream[_Response]) -> Coroutine[Any, Any, _Response | None]: ...
@overload
def show(stream: SyncShownStream[_Response]) -> _Response | None: ...
def show(stream: Any) -> Any:
    """Show what happens in a stream while it happens, and return its response: in a notebook as one live output, and
    elsewhere as text on the standard output. `await` it for a stream of the async client. Raises the failure of a run
    that fails, after it was shown."""
    view = _NotebookView() if _kernel_runs() else _TextView()
    return _show_async(stream, view) if hasattr(stream, "__aiter__") else _show_sync(stream, view)


async def _show_async(stream: Any, view: _NotebookView | _TextView) -> Any:
    with view:
        async for event in stream:
            view.take(event)
    return stream.response


def _show_sync(stream: Any, view: _NotebookView | _TextView) -> Any:
    with view:
        for event in stream:
            view.take(event)
    return stream.response


class LiveAnswer:
    """What is known of a stream so far, in the forms that notebooks ask for."""

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._text: list[str] = []
        self._footer = ""
        self.error: sdk.ErrorEvent | None = None

    def take(self, event: sdk.AgentStreamEvent) -> None:
        match event:
            case sdk.TextDeltaEvent():
                self._text.append(event.delta)
            case sdk.ToolCallEvent():
                self._end_text()
                self._blocks.append(call_html(event.name, event.arguments_json))
            case sdk.ToolExecutionEndEvent(is_error=True):
                self._blocks.append(f'<div style="{GREY}">The tool failed.</div>')
            case sdk.ErrorEvent():
                self.error = event
            case sdk.AgentEndEvent() | sdk.MessageEndEvent():
                self._footer = usage_line(event.usage)
            case _:
                pass

    def _end_text(self) -> None:
        if self._text:
            self._blocks.append(markdown_html("".join(self._text)))
            self._text.clear()

    def _repr_html_(self) -> str:
        newest = markdown_html("".join(self._text)) if self._text else ""
        error = "" if self.error is None else f'<pre style="color:#b00020">{escaped(self.error.message)}</pre>'
        return f"<div>{''.join(self._blocks)}{newest}{error}{footer_html(self._footer)}</div>"


class _NotebookView:
    """One output of a notebook that is replaced as events arrive."""

    def __init__(self) -> None:
        self._answer = LiveAnswer()
        self._next = 0.0
        self._display: Any = None

    def __enter__(self) -> None:
        self._display = sys.modules["IPython.display"].display(self._answer, display_id=True)

    def take(self, event: sdk.AgentStreamEvent) -> None:
        self._answer.take(event)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + UPDATE_S
            self._display.update(self._answer)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._display.update(self._answer)
        if error is None and self._answer.error is not None:
            raise failure_of(self._answer.error)


class _TextView:
    """Text on the standard output; on a terminal without anything that acts there."""

    def __init__(self) -> None:
        self._error: sdk.ErrorEvent | None = None
        self._at_start = True

    def __enter__(self) -> None:
        self._is_terminal = sys.stdout.isatty()

    def take(self, event: sdk.AgentStreamEvent) -> None:
        match event:
            case sdk.TextDeltaEvent():
                self._write(event.delta)
            case sdk.ToolCallEvent():
                self._end_line()
                self._write(f"[{one_line(event.name)} {one_line(event.arguments_json, MAX_ARGUMENTS)}]\n")
            case sdk.ToolExecutionEndEvent(is_error=True):
                self._end_line()
                self._write("[the tool failed]\n")
            case sdk.ErrorEvent():
                self._error = event
            case _:
                pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end_line()
        if error is None and self._error is not None:
            raise failure_of(self._error)

    def _end_line(self) -> None:
        if not self._at_start:
            self._write("\n")

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(shown(text) if self._is_terminal else text)
            sys.stdout.flush()
            self._at_start = text.endswith("\n")


def _kernel_runs() -> bool:
    """Whether a kernel runs this program, so that an output can be replaced; a terminal of IPython cannot."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel") and "IPython.display" in sys.modules
