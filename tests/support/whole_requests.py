"""Requests in which every field is set, and a vendor that records what arrives of them, in every dialect.

`tests/fixtures/vendor_requests/<api>.json` holds what the vendor must receive: whole requests, reviewed by hand. They
are JSON so that the tests of both SDKs read the same ones. After a deliberate change, write them again with
`cd tests && python -m support.whole_requests` and read the difference: nothing a caller gave may be lost in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from support.fixtures import FIXTURES
from support.peers import Peer, open_peer
from support.upstream import Request, Upstream, head, upstream
from support.wire import JSON, ask, envelope, new_id

FOLDER = FIXTURES / "vendor_requests"
ASKED = FIXTURES / "whole_requests.json"
KEY = "a-key-for-tests-0123456789"
SESSION = "11111111-2222-4333-8444-555555555555"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
REASONING = '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"b3BhcXVl"}'
NOT_COMPARED = frozenset({"host", "content-length", "user-agent", "accept-encoding", "connection"})


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One API of one vendor: how to name a model of it, how it is pointed at a test's server, how it answers."""

    provider: str
    api: str
    model: str
    base_url_variable: str
    key_variable: str
    answer: tuple[str, ...]
    base_path: str = ""
    signature: str = "c2lnbmVk"
    takes_audio: bool = False

    @property
    def model_ref(self) -> str:
        return f"{self.provider}/{self.api}@{self.model.replace(':', '%3A')}"

    def frames(self) -> bytes:
        before, after = ("", "\n") if self.api == "ollama" else ("data: ", "\n\n")
        return "".join(before + frame + after for frame in self.answer).encode()


_GEMINI = '{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}'
_RESPONSES = (
    '{"type":"response.output_text.delta","output_index":0,"delta":"Hi"}',
    '{"type":"response.completed","response":{"status":"completed"}}',
)
DIALECTS = (
    Dialect(
        provider="anthropic",
        api="anthropic-messages",
        model="claude-sonnet-4-5",
        base_url_variable="ANTHROPIC_BASE_URL",
        key_variable="ANTHROPIC_API_KEY",
        answer=(
            '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}',
            '{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
            '{"type":"message_stop"}',
        ),
    ),
    Dialect(
        provider="openai",
        api="openai-responses",
        model="gpt-5.2",
        base_url_variable="OPENAI_BASE_URL",
        base_path="/v1",
        key_variable="OPENAI_API_KEY",
        answer=_RESPONSES,
        signature=REASONING,
    ),
    Dialect(
        provider="mistral",
        api="openai-completions",
        model="magistral-medium-latest",
        base_url_variable="MISTRAL_BASE_URL",
        base_path="/v1",
        key_variable="MISTRAL_API_KEY",
        answer=('{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}', "[DONE]"),
        takes_audio=True,
    ),
    Dialect(
        provider="azure",
        api="azure-openai-responses",
        model="gpt-5.1",
        base_url_variable="AZURE_OPENAI_ENDPOINT",
        key_variable="AZURE_OPENAI_API_KEY",
        answer=_RESPONSES,
        signature=REASONING,
    ),
    Dialect(
        provider="google",
        api="google-generative-ai",
        model="gemini-3-flash-preview",
        base_url_variable="GEMINI_BASE_URL",
        key_variable="GEMINI_API_KEY",
        answer=(_GEMINI,),
        takes_audio=True,
    ),
    Dialect(
        provider="google-gemini-cli",
        api="google-gemini-cli",
        model="gemini-2.5-flash",
        base_url_variable="CODE_ASSIST_ENDPOINT",
        key_variable="GOOGLE_CLOUD_ACCESS_TOKEN",
        answer=(f'{{"response":{_GEMINI}}}',),
        takes_audio=True,
    ),
    Dialect(
        provider="ollama",
        api="ollama",
        model="qwen3:8b",
        base_url_variable="OLLAMA_HOST",
        key_variable="OLLAMA_API_KEY",
        answer=('{"message":{"content":"Hi"}}', '{"done":true,"done_reason":"stop"}'),
    ),
)
_OPENAI_CHAT = msgspec.structs.replace(
    next(dialect for dialect in DIALECTS if dialect.api == "openai-completions"),
    provider="openai",
    model="gpt-5.2",
    base_url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    takes_audio=False,
)
ALL_DIALECTS = (*DIALECTS, _OPENAI_CHAT)
"""Chat completions as Mistral and as OpenAI speak them: their quirks differ most."""

TOOLS = [
    {
        "name": "look",
        "description": "Look at something.",
        "parameters_schema_json": '{"type":"object","properties":{"at":{"type":"string"}},"required":["at"]}',
    },
    {
        "name": "count",
        "description": "Count: 1 ≤ n.",
        "parameters_schema_json": '{"type":"object","properties":{"n":{"type":"integer","minimum":1}}}',
    },
]
_ASKED = {
    "temperature": 0.25,
    "top_p": 0.5,
    "max_tokens": 4321,
    "stop": ["END", "STOP"],
    "json_schema": '{"type":"object","properties":{"ok":{"type":"boolean"}}}',
    "cache_retention": "long",
    "session_id": SESSION,
    "metadata": {"user_id": "u-1", "team": "red"},
}
OPTIONS: dict[str, JSON] = {
    "thinking": {**_ASKED, "reasoning_effort": "high", "tool_choice": {"mode": "auto"}},
    "forced tool": {**_ASKED, "reasoning_effort": "off", "tool_choice": {"mode": "tool", "name": "look"}},
}
"""Thinking excludes sampling and forced tools at some vendors, so there are two requests with everything set."""


def user_parts(dialect: Dialect) -> list[JSON]:
    audio = [{"type": "audio", "data": WAV, "mime_type": "audio/wav"}] if dialect.takes_audio else []
    return [
        {"type": "text", "text": "What is this?", "text_signature": "s-1"},
        {"type": "image", "data": PIXEL, "mime_type": "image/png"},
        *audio,
    ]


def messages(dialect: Dialect) -> list[JSON]:
    """A conversation with every kind of message and part; the assistant's are the model's own, so signatures count."""
    own = {"provider": dialect.provider, "api": dialect.api, "model": dialect.model, "timestamp": 1_760_000_000_000}
    usage = {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4, "reasoning": 1, "cost_usd": 0.5}
    call = {"type": "tool_call", "name": "look", "thought_signature": "dGhvdWdodA=="}
    result = {"type": "tool_result", "tool_name": "look", "details_json": '{"ms":3}'}
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": user_parts(dialect), "name": "ada"},
        {
            "role": "assistant",
            **own,
            "usage": usage,
            "stop_reason": "tool_use",
            "content": [
                {"type": "thinking", "thinking": "Look first.", "thinking_signature": dialect.signature},
                {"type": "thinking", "thinking": "", "thinking_signature": dialect.signature, "redacted": True},
                {"type": "text", "text": "Let me look.", "text_signature": "commentary"},
                {**call, "tool_call_id": "call_one", "arguments_json": '{"at":"é"}'},
                {**call, "tool_call_id": "call_two", "arguments_json": '{"at":', "arguments_error": "it ends early"},
            ],
        },
        {
            "role": "tool",
            "tool_call_id": "call_one",
            "name": "look",
            "content": [{"type": "text", "text": "A cat."}, {"type": "image", "data": PIXEL, "mime_type": "image/png"}],
        },
        {"role": "user", "content": [{**result, "tool_call_id": "call_two", "content": "bad JSON", "is_error": True}]},
        {"role": "developer", "content": "Answer in English."},
        {"role": "user", "content": "And now?"},
    ]


def provider_request(dialect: Dialect, variant: str) -> JSON:
    """What `provider.stream` and `provider.complete` take, in both SDKs."""
    return {
        "model_ref": dialect.model_ref,
        "messages": messages(dialect),
        "tools": TOOLS,
        "options": OPTIONS[variant],
    }


def wire_request(dialect: Dialect, variant: str, **context: Any) -> JSON:
    """The payload of `stream_request` and `complete_request`."""
    asked = provider_request(dialect, variant)
    inner = {"messages": asked["messages"], "tools": asked["tools"], **context}
    return {"model_ref": asked["model_ref"], "context": inner, "options": asked["options"]}


def agent_request(dialect: Dialect, variant: str) -> JSON:
    """What `agent.run` and `agent.stream` take, in both SDKs: a first message, with all options."""
    options = {name: value for name, value in OPTIONS[variant].items() if name != "session_id"}
    return {
        "model_ref": dialect.model_ref,
        "messages": [{"role": "user", "content": user_parts(dialect)}],
        "tools": TOOLS,
        "options": options,
        "system_prompt": "Be an agent.",
    }


class Vendor:
    """Every vendor at one address. `environ` points makai at it."""

    def __init__(self, server: Upstream) -> None:
        self._server = server
        self.environ = {dialect.key_variable: KEY for dialect in ALL_DIALECTS} | {
            dialect.base_url_variable: server.url + dialect.base_path for dialect in ALL_DIALECTS
        }

    def received(self, session_id: str = SESSION) -> JSON:
        """The one request since the last time, as if its session had the id of the fixtures. What depends on the HTTP
        client and on the address is left out."""
        (request,) = self._server.requests
        self._server.requests.clear()
        headers = {name: value for name, value in request.headers.items() if name not in NOT_COMPARED}
        body = msgspec.json.decode(request.body.replace(session_id.encode(), SESSION.encode()))
        return {"method": request.method, "path": request.path, "headers": headers, "body": body}


@asynccontextmanager
async def vendor() -> AsyncIterator[Vendor]:
    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head() + answering(request).frames())

    async with upstream(answer) as server:
        yield Vendor(server)


def answering(request: Request) -> Dialect:
    paths = {
        "/v1/messages": "anthropic-messages",
        "/v1/responses": "openai-responses",
        "/v1/chat/completions": "openai-completions",
        "/openai/v1/responses": "azure-openai-responses",
        "/v1internal:streamGenerateContent": "google-gemini-cli",
        "/api/chat": "ollama",
    }
    api = paths.get(request.path.partition("?")[0], "google-generative-ai")
    return next(dialect for dialect in DIALECTS if dialect.api == api)


def expected(dialect: Dialect, case: str) -> JSON:
    """What the vendor must have received."""
    recorded: dict[str, JSON] = msgspec.json.decode(_path(dialect).read_bytes())
    return recorded[case]


def _path(dialect: Dialect) -> Path:
    return FOLDER / f"{dialect.provider}-{dialect.api}.json"


async def send_provider_request(peer: Peer, payload: JSON, kind: str = "stream_request") -> None:
    frames = await peer.ask(ask(kind, payload=payload))
    assert frames[-1]["type"] == "result", frames[-1]


async def send_agent_request(peer: Peer, request: JSON) -> str:
    """Run it in a new session over the wire; the id of the session."""
    session_id = new_id()
    scope = {"session_id": session_id, "stream_id": None}
    start = {name: request[name] for name in ("model_ref", "tools", "system_prompt")}
    message = {name: request[name] for name in ("messages", "options")}
    await peer.ask(envelope("agent_start", start, **scope), "agent_started", "nack")
    frames = await peer.ask(envelope("agent_message", message, **scope, sequence=2), "agent_result", "agent_error")
    assert frames[-1]["type"] == "agent_result", frames[-1]
    return session_id


async def _record() -> None:
    """Write the fixtures from what makai sends now."""
    with TemporaryDirectory() as home:
        async with vendor() as seen, open_peer("memory", {**seen.environ, "MAKAI_HOME": home, "HOME": home}) as peer:
            for dialect in ALL_DIALECTS:
                recorded = {}
                for variant in OPTIONS:
                    await send_provider_request(peer, wire_request(dialect, variant))
                    recorded[variant] = seen.received()
                    session_id = await send_agent_request(peer, agent_request(dialect, variant))
                    recorded[f"agent: {variant}"] = seen.received(session_id)
                await send_provider_request(peer, wire_request(dialect, "thinking", system_prompt="Be kind."))
                recorded["system prompt"] = seen.received()
                _path(dialect).write_bytes(_readable(recorded))
    ASKED.write_bytes(_readable(asked()))


def asked() -> JSON:
    """All requests and how to serve them, for tests in other languages. Kept in `ASKED`."""
    return {
        f"{dialect.provider}-{dialect.api}": {
            "environ": {dialect.key_variable: KEY, dialect.base_url_variable: dialect.base_path},
            "answer": dialect.frames().decode(),
            "requests": {variant: provider_request(dialect, variant) for variant in OPTIONS}
            | {f"agent: {variant}": agent_request(dialect, variant) for variant in OPTIONS},
        }
        for dialect in ALL_DIALECTS
    }


def _readable(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"


def structs_of(value: object) -> Iterator[msgspec.Struct]:
    """Every Struct in a value, itself included."""
    match value:
        case msgspec.Struct():
            yield value
            for name in value.__struct_fields__:
                yield from structs_of(getattr(value, name))
        case Mapping():
            for each in value.values():
                yield from structs_of(each)
        case tuple() | list():
            for each in value:
                yield from structs_of(each)


def unset_fields(value: object) -> set[str]:
    """`Struct.field` for every field of a Struct in `value` that has its default in all Structs of that type."""
    seen: dict[type[msgspec.Struct], set[str]] = {}
    for struct in structs_of(value):
        changed = {name for name, default in defaults_of(struct).items() if getattr(struct, name) != default}
        seen.setdefault(type(struct), set()).update(changed)
    return {f"{kind.__name__}.{name}" for kind, names in seen.items() for name in {*kind.__struct_fields__} - names}


def defaults_of(struct: msgspec.Struct) -> dict[str, object]:
    return {
        field.name: field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(struct)
    }


if __name__ == "__main__":
    asyncio.run(_record())
