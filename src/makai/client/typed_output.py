"""Runs whose answer must have a type: `output=Person` of `client.agent.run` and `stream`.

The model gets the schema with the question. Its answer counts only after it was validated here; one that does not
follow the schema is asked for again in the same session, within what is left of the run's limits.
"""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from makai.client import types as sdk
from makai.client.harness.structured import WantedAnswer
from makai.core.content import Text
from makai.core.errors import InvalidRequest, MakaiStreamError
from makai.core.usage import Usage
from makai.protocols.makai.payloads import ChatMessage

MAX_OUTPUT_REPAIRS: Final = 5


class TypedOutput:
    """The wanted type of one call, over all its attempts."""

    def __init__(self, request: sdk.AgentRunRequest) -> None:
        if not 0 <= request.output_repairs <= MAX_OUTPUT_REPAIRS:
            raise InvalidRequest(f"output_repairs is from 0 to {MAX_OUTPUT_REPAIRS}.")
        self._wanted = WantedAnswer(request.output)
        self._repairs = request.output_repairs
        self._limits = request.options
        self._used = Usage()
        self._turns = 0
        self._began = time.monotonic()
        self._problem = ""

    def asked(self, request: sdk.AgentRunRequest) -> sdk.AgentRunRequest:
        """The request with the schema in its last message, and as an option where the answer can only be text: several
        vendors refuse an answer of a schema beside tools."""
        options = request.options
        may_act = request.agent or request.tools or request.builtin_tools or request.tool_servers or options.session_id
        if not may_act and options.json_schema is None:
            options = msgspec.structs.replace(options, json_schema=self._wanted.checked.text)
        messages = _with_instruction(request.messages, self._wanted.checked.instruction)
        return msgspec.structs.replace(request, messages=messages, options=options)

    def turn_began(self) -> None:
        self._turns += 1

    def read(self, response: sdk.AgentRunResponse) -> sdk.AgentRunResponse:
        """The answer with its value, and with the usage of all attempts; `problem` then says why there is none."""
        self._used += response.usage or Usage()
        found = self._wanted.checked.find([response.text])
        value, self._problem = self._wanted.typed(found.value) if found.is_valid else (None, found.problem)
        value = value if self._wanted.has_type else found.value
        return msgspec.structs.replace(response, output=value, usage=self._used)

    @property
    def failure(self) -> MakaiStreamError | None:
        """Why the newest answer has no value."""
        if not self._problem:
            return None
        return MakaiStreamError(self._problem, kind="provider_error", code="invalid_output")

    def again(self, request: sdk.AgentRunRequest, response: sdk.AgentRunResponse) -> sdk.AgentRunRequest | None:
        """The request for a corrected answer; None when no attempt is left, or none of the run's limits."""
        left = self._left()
        if not self._problem or not self._repairs or left is None or response.stop_reason == "max_turns":
            return None
        self._repairs -= 1
        correction = f"{self._problem} Answer again with the corrected JSON value only."
        options = msgspec.structs.replace(left, json_schema=request.options.json_schema)
        message = ChatMessage(role="user", content=correction)
        return msgspec.structs.replace(request, messages=(message,), options=options)

    def _left(self) -> sdk.AgentRunOptions | None:
        """The run's options with what is left of its limits; None when one is used up."""
        used = {
            "max_turns": self._turns,
            "max_output_tokens": self._used.output,
            "max_usd": self._used.cost_usd or 0.0,
            "max_seconds": time.monotonic() - self._began,
        }
        limits = {name: getattr(self._limits, name) for name in used}
        left = {name: limit - used[name] for name, limit in limits.items() if limit is not None}
        return None if any(rest <= 0 for rest in left.values()) else msgspec.structs.replace(self._limits, **left)


def _with_instruction(messages: tuple[ChatMessage, ...], instruction: str) -> tuple[ChatMessage, ...]:
    if not messages or messages[-1].role != "user":
        return (*messages, ChatMessage(role="user", content=instruction))
    last = messages[-1]
    content: Any = (
        f"{last.content}\n\n{instruction}"
        if isinstance(last.content, str)
        else (*last.content, Text(text=f"\n\n{instruction}"))
    )
    return (*messages[:-1], msgspec.structs.replace(last, content=content))
