"""`makai.complete`: one answer of any model or agent, as text, as JSON of a schema, or as a Python value.

person = (await makai.complete("claude-code", "Ada Lovelace, born 1815", Person)).value
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Generic, TypeAlias, TypedDict, TypeVar, Unpack, overload

import msgspec

from makai.client.harness.opening import open_harness
from makai.client.harness.structured import WantedAnswer
from makai.client.rendering import RenderedAnswer
from makai.core.errors import AgentFailed, InvalidRequest, NoProvider
from makai.harness.contract.endpoint import EndpointBinding, TransportKind
from makai.harness.contract.events import CostData
from makai.harness.contract.interfaces import Harness
from makai.harness.contract.one_shot import OneShotMessage, OneShotRequest
from makai.harness.contract.spec import EffortLevel, JsonSchema
from makai.harness.manifests import harness_declaration
from makai.harness.one_shot import complete as complete_once
from makai.harness.registry import EXTERNAL

T = TypeVar("T")
TIMEOUT_S: Final = 600.0
MAX_REPAIRS: Final = 5
Said: TypeAlias = "str | Sequence[str | Mapping[str, str] | OneShotMessage]"
"""One question, or a conversation: texts of the user, or messages with a role and content."""


class OneShotAnswer(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What was answered. `schema_ok` is true only for a value that was validated here."""

    text: str
    structured: Any = None
    """The JSON value; None without a schema, and for an answer that does not follow it."""
    value: T | None = None
    """The same as a value of the type that was given as schema."""
    schema_ok: bool = False
    problem: str = ""
    """Why the answer does not follow the schema."""
    cost: CostData | None = None
    """Of all attempts. None where the user's own login pays."""
    transport_used: TransportKind | None = None
    attempts: int = 1

    def _repr_html_(self) -> str:
        return self._rendered().html()

    def _repr_markdown_(self) -> str:
        return self._rendered().markdown()

    def _rendered(self) -> RenderedAnswer:
        return RenderedAnswer(self.text, self.structured if self.value is None else self.value)


class CompleteOptions(TypedDict, total=False):
    system: str
    """Instructions for the model."""
    model: str
    """One of the harness' models, when the target is a harness."""
    effort: EffortLevel | None
    endpoint: EndpointBinding | None
    max_tokens: int
    """For model APIs; agents ignore it (DM-ONE-010)."""
    repairs: int
    """How often an answer that does not follow the schema is asked for again; 1 by default."""
    timeout_s: float
    environ: Mapping[str, str] | None
    """Replaces the environment of this process."""


@overload
async def complete(
    target: str | Harness | None, messages: Said, schema: type[T], **options: Unpack[CompleteOptions]
) -> OneShotAnswer[T]: ...
@overload
async def complete(
    target: str | Harness | None,
    messages: Said,
    schema: JsonSchema | str | None = None,
    **options: Unpack[CompleteOptions],
) -> OneShotAnswer[Any]: ...
async def complete(
    target: str | Harness | None, messages: Said, schema: Any = None, **options: Unpack[CompleteOptions]
) -> OneShotAnswer[Any]:
    """One answer.

    `target` is a harness, the name of one ("claude-code", "codex", "acp:COMMAND"), a model ("openai/gpt-6.1-sol"), or
    None for the default model. `schema` is a JSON Schema (a mapping or its JSON text), or a type: a msgspec Struct, a
    dataclass, a TypedDict or a pydantic model. An answer that does not follow it is asked for again, `repairs` times;
    then `schema_ok` is false. Raises `MakaiError` when there is no answer. Cancelling it stops the agent.
    """
    repairs, timeout_s = options.get("repairs", 1), options.get("timeout_s", TIMEOUT_S)
    if not 0 <= repairs <= MAX_REPAIRS:
        raise InvalidRequest(f"repairs is from 0 to {MAX_REPAIRS}.")
    wanted = WantedAnswer(schema)
    request = OneShotRequest(
        system=options.get("system", ""),
        messages=_messages(messages),
        model=options.get("model", ""),
        endpoint=options.get("endpoint"),
        effort=options.get("effort"),
        response_schema=wanted.schema,
        max_tokens=options.get("max_tokens", 0),
    )
    async with AsyncExitStack() as stack:
        harness, request = _opened(target, request, options.get("environ"))
        if not isinstance(target, Harness):
            stack.push_async_callback(harness.shutdown)
        try:
            async with asyncio.timeout(timeout_s):
                return await _repaired(harness, request, wanted, repairs)
        except TimeoutError:
            raise AgentFailed(f"There was no answer within {timeout_s:g} s.") from None


def _opened(
    target: str | Harness | None, request: OneShotRequest, environ: Mapping[str, str] | None
) -> tuple[Harness, OneShotRequest]:
    """The harness, and the request with the model that the target names."""
    if target is not None and not isinstance(target, str):
        return target, request
    if target is not None and (target.startswith(EXTERNAL) or _is_harness(target)):
        return open_harness(target, environ=environ), request
    named = msgspec.structs.replace(request, model=request.model or target or "")
    return open_harness("native", environ=environ), named


def _is_harness(name: str) -> bool:
    try:
        harness_declaration(name)
    except NoProvider:
        return False
    return True


async def _repaired(
    harness: Harness, request: OneShotRequest, wanted: WantedAnswer, repairs: int
) -> OneShotAnswer[Any]:
    cost: CostData | None = None
    attempt = 0
    while True:
        attempt += 1
        result = await complete_once(harness, request)
        cost = _sum(cost, result.cost)
        value, problem = wanted.read(result)
        if not problem or attempt > repairs:
            return OneShotAnswer(
                text=result.text,
                structured=None if problem else result.structured,
                value=value,
                schema_ok=wanted.schema is not None and not problem,
                problem=problem,
                cost=cost,
                transport_used=result.transport_used,
                attempts=attempt,
            )
        correction = f"{problem} Answer again with the corrected JSON value only."
        again = (
            OneShotMessage(role="assistant", content=result.text or "(nothing)"),
            OneShotMessage(role="user", content=correction),
        )
        request = msgspec.structs.replace(request, messages=(*request.messages, *again))


def _messages(said: Said) -> tuple[OneShotMessage, ...]:
    messages = (said,) if isinstance(said, str) else tuple(said)
    if not messages:
        raise InvalidRequest("There is no message.")
    return tuple(map(_message, messages))


def _message(said: str | Mapping[str, str] | OneShotMessage) -> OneShotMessage:
    match said:
        case OneShotMessage():
            return said
        case str():
            return OneShotMessage(content=said)
        case _:
            try:
                return msgspec.convert(dict(said), OneShotMessage)
            except (msgspec.ValidationError, TypeError, ValueError) as error:
                raise InvalidRequest(f"A message has a role and a content: {error}.") from None


def _sum(before: CostData | None, cost: CostData | None) -> CostData | None:
    if before is None or cost is None:
        return cost or before
    fields = CostData.__struct_fields__
    return CostData(**{name: getattr(before, name) + getattr(cost, name) for name in fields})
