"""What goes into a tool and what comes out of it, within bounds.

Arguments are checked against the tool's JSON Schema and never invented or mended; nothing is fetched, so a `$ref` to
another document makes a schema unusable. Output becomes `tool_progress` at most ten times a second, bounded in size
and number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, NoReturn, Self

import jsonschema_rs
import msgspec

from makai.core.errors import InvalidRequest
from makai.core.request import ToolDefinition
from makai.core.sanitize import sanitize_text
from makai.core.session_events import ToolProgress
from makai.providers.preparation import schema_object
from makai.wire import strict_json

MAX_MISFITS = 5
MAX_MISFIT_LENGTH = 300
PROGRESS_INTERVAL_S = 0.1
MAX_PROGRESS_LENGTH = 16_384
MAX_SHOWN = 262_144
"""Characters per call; a build that prints for hours does not fill the log."""
NO_MORE = "\n[further output is not shown while the tool runs]\n"

_arguments = msgspec.json.Decoder(dict[str, Any])


class ArgumentsSchema:
    """The schema of one tool, compiled at its first call."""

    def __init__(self, definition: ToolDefinition) -> None:
        self._definition = definition
        self._validator: jsonschema_rs.Validator | None = None

    def arguments(self, arguments_json: str) -> dict[str, Any]:
        """The arguments, or `InvalidRequest` with every misfit, so that the model can mend all of them."""
        try:
            arguments = _arguments.decode(arguments_json)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            reason = strict_json.reason_of(error, arguments_json)
            raise InvalidRequest(f"The arguments are not a JSON object: {reason}") from None
        try:
            misfits = list(islice(self._compiled().iter_errors(arguments), MAX_MISFITS))
        except ValueError as error:  # deeper nesting than the validator follows
            raise InvalidRequest(f"The arguments cannot be checked: {error}") from None
        if misfits:
            said = "".join(f"\n- {_misfit(misfit)}" for misfit in misfits)
            raise InvalidRequest(f"The arguments do not fit the schema of {self._definition.name}:{said}")
        return arguments

    def _compiled(self) -> jsonschema_rs.Validator:
        if self._validator is None:
            name = self._definition.name
            refusal = f"The tool {name} has a schema that cannot be used"
            schema = self._definition.parameters_schema_json
            self._validator = compiled_schema(schema, f"the schema of {name}", refusal)
        return self._validator


def compiled_schema(schema_json: str, what: str, refusal: str) -> jsonschema_rs.Validator:
    """The validator; `InvalidRequest` with the refusal and the reason when the schema cannot be used."""
    raw = schema_object(schema_json, what)
    try:
        return jsonschema_rs.validator_for(msgspec.json.decode(raw), retriever=_refuse)
    except ValueError as error:
        reason = str(error).partition("\n")[0]
        raise InvalidRequest(f"{refusal}: {reason}") from None


def _misfit(error: jsonschema_rs.ValidationError) -> str:
    where = "/".join(str(step) for step in error.instance_path)
    said = f"at {where}: {error.message}" if where else error.message
    return said if len(said) <= MAX_MISFIT_LENGTH else f"{said[:MAX_MISFIT_LENGTH]}..."


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is another document, and none is fetched")


class ProgressReporter:
    """The `ToolContext` of a call, while its tool runs."""

    def __init__(self, call_id: str, emit: Callable[[ToolProgress], Awaitable[None]]) -> None:
        self.call_id = call_id
        self._emit = emit
        self._waiting: list[str] = []
        self._size = 0
        self._left_out = 0
        self._shown = 0
        self._pump: asyncio.Future[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Show what is left; later output of the tool is dropped."""
        self._closed = True
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait({self._pump})
            if not self._pump.cancelled():
                self._pump.result()
        if self._waiting and error is None:
            await self._emit(self._taken())

    def progress(self, text: str) -> None:
        """Take a piece of output; of what comes too fast, the beginning is left out."""
        if self._closed or not text or self._shown > MAX_SHOWN:
            return
        self._waiting.append(text)
        self._size += len(text)
        if self._size > 2 * MAX_PROGRESS_LENGTH:
            self._shorten()
        if self._pump is None:
            self._pump = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        while self._waiting:
            await self._emit(self._taken())
            await asyncio.sleep(PROGRESS_INTERVAL_S)
        self._pump = None

    def _taken(self) -> ToolProgress:
        self._shorten()
        text = sanitize_text("".join(self._waiting))
        if self._left_out:
            text = f"[{self._left_out:,} characters left out]\n{text}"
        self._waiting.clear()
        self._size = self._left_out = 0
        self._shown += len(text)
        return ToolProgress(call_id=self.call_id, text=text + NO_MORE if self._shown > MAX_SHOWN else text)

    def _shorten(self) -> None:
        if self._size > MAX_PROGRESS_LENGTH:
            kept = "".join(self._waiting)[-MAX_PROGRESS_LENGTH:]
            self._left_out += self._size - len(kept)
            self._waiting = [kept]
            self._size = len(kept)
