"""Every way to use makai, as one small interface: see who is logged in, log in, ask a model."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec
import pytest

from makai.client.connect import MakaiClient, connect
from makai.client.types import AuthFlowHandlers, AuthUrlEvent, MakaiAuthEvent
from makai.core.errors import MakaiAuthError
from support.cli import Cli
from support.peers import Peer, open_peer
from support.wire import JSON, envelope

WAYS = (
    "cli",
    "cli with --provider",
    "python in process",
    "python over websocket",
    "raw envelopes",
    "typescript",
)
SDK = Path(__file__).resolve().parents[2] / "sdk" / "typescript" / "dist" / "esm" / "index.js"
DRIVER = Path(__file__).with_name("typescript_login.mjs")
DEADLINE_S = 60.0

OpenPage: TypeAlias = Callable[[str], Awaitable[object]]


class Refused(Exception):
    """The request was not carried out: its code, and whose login is missing."""


class Way(Protocol):
    told: list[str]

    async def status(self) -> str:
        """What the provider's `auth_status` is."""

    async def log_in(self, open_page: OpenPage) -> list[str]:
        """Log in; the types of the events."""

    async def ask(self) -> str:
        """What the model says; `Refused` when it is not asked."""


@asynccontextmanager
async def open_way(kind: str, cli: Cli, provider_id: str, model_ref: str) -> AsyncIterator[Way]:
    """One way to a makai that has the home of `cli`."""
    async with asyncio.timeout(2 * DEADLINE_S):
        if kind == "cli":
            yield CommandLine(cli, provider_id, model_ref)
        elif kind == "cli with --provider":
            yield CommandLine(cli, provider_id, model_ref, login=("--provider", provider_id))
        elif kind == "python in process":
            async with connect(environ=cli.environment({})) as client:
                yield PythonSdk(client, provider_id, model_ref)
        elif kind == "python over websocket":
            async with (
                cli.serving() as (_, url),
                connect(url.replace("http", "ws", 1), token=server_token(cli)) as client,
            ):
                yield PythonSdk(client, provider_id, model_ref)
        elif kind == "raw envelopes":
            async with open_peer("stdio", cli.environment({})) as peer:
                yield RawEnvelopes(peer, provider_id, model_ref)
        else:
            async with typescript(cli, provider_id, model_ref) as way:
                yield way


class _OfOneProvider:
    def __init__(self, provider_id: str, model_ref: str) -> None:
        self._provider_id = provider_id
        self._model_ref = model_ref
        self.told: list[str] = []


def server_token(cli: Cli) -> str:
    return (cli.home / "server-token").read_text(encoding="utf-8").strip()


class CommandLine(_OfOneProvider):
    """`makai auth …` and `makai run`, a process each."""

    def __init__(self, cli: Cli, provider_id: str, model_ref: str, login: Sequence[str] = ()) -> None:
        self._cli = cli
        self._login = login or (provider_id,)
        super().__init__(provider_id, model_ref)

    async def status(self) -> str:
        finished = await self._cli("auth", "providers", "--json")
        self.told.append(finished.out + finished.err)
        return _status(msgspec.json.decode(finished.out)["providers"], self._provider_id)

    async def log_in(self, open_page: OpenPage) -> list[str]:
        types = []
        async with self._cli.started("auth", "login", *self._login, "--json") as process, _People() as people:
            assert process.stdout is not None
            async for line in process.stdout:
                self.told.append(line.decode())
                event = msgspec.json.decode(line)
                types.append(event["type"])
                assert event["provider"] == event["provider_id"] == self._provider_id
                if event["type"] == "auth_url":
                    people.start(open_page(event["url"]))
            assert await process.wait() == 0
        return types

    async def ask(self) -> str:
        finished = await self._cli("run", "-m", self._model_ref, "--output-format", "json", "Hi")
        self.told.append(finished.out + finished.err)
        answer = msgspec.json.decode(finished.out)
        if finished.code == 3:
            raise Refused(answer["error_code"], answer["provider_id"])
        assert finished.code == 0, finished
        return str(answer["text"])


class PythonSdk(_OfOneProvider):
    def __init__(self, client: MakaiClient, *asked_for: str) -> None:
        self._client = client
        super().__init__(*asked_for)

    async def status(self) -> str:
        providers = await self._client.auth.list_providers()
        self.told.append(repr(providers))
        return _status([msgspec.to_builtins(one) for one in providers], self._provider_id)

    async def log_in(self, open_page: OpenPage) -> list[str]:
        types: list[str] = []
        async with _People() as people:

            def on_event(event: MakaiAuthEvent) -> None:
                self.told.append(repr(event))
                types.append(event.type)
                if isinstance(event, AuthUrlEvent):
                    people.start(open_page(event.url))

            result = await self._client.auth.login(self._provider_id, AuthFlowHandlers(on_event=on_event))
            assert result.status == "success"
        return types

    async def ask(self) -> str:
        try:
            answer = await self._client.provider.complete(model_ref=self._model_ref, messages="Hi")
        except MakaiAuthError as error:
            self.told.append(repr(error) + str(error))
            raise Refused(error.code, error.provider_id) from None
        self.told.append(repr(answer))
        return answer.text


class RawEnvelopes(_OfOneProvider):
    """Frames written and read one by one, as a stranger's client would."""

    def __init__(self, peer: Peer, *asked_for: str) -> None:
        self._peer = peer
        super().__init__(*asked_for)

    async def status(self) -> str:
        frames = await self._talk(envelope("auth_providers_request"), "auth_providers_response")
        assert [frame["type"] for frame in frames] == ["ack", "auth_providers_response"]
        return _status(frames[-1]["payload"]["providers"], self._provider_id)

    async def log_in(self, open_page: OpenPage) -> list[str]:
        start = envelope("auth_login_start", {"provider_id": self._provider_id})
        frames: list[JSON] = []
        async with _People() as people:
            await self._peer.say(start)
            while not frames or frames[-1]["type"] != "auth_login_result":
                frames.append(await self._hear())
                if "auth_url" in frames[-1]["payload"]:
                    people.start(open_page(frames[-1]["payload"]["auth_url"]["url"]))
        assert {frame["stream_id"] for frame in frames} == {start["stream_id"]}
        assert [frame["sequence"] for frame in frames] == list(range(1, len(frames) + 1))
        assert frames[0]["type"] == "ack"
        assert frames[-1]["payload"]["status"] == "success"
        return [next(iter(frame["payload"])) for frame in frames[1:-1]]

    async def ask(self) -> str:
        payload = {"model_ref": self._model_ref, "context": {"messages": [{"role": "user", "content": "Hi"}]}}
        frames = await self._talk(envelope("complete_request", payload), "result", "nack", "stream_error")
        last = frames[-1]["payload"]
        if frames[-1]["type"] != "result":
            raise Refused(last["error_code"], last["provider_id"])
        return "".join(part["text"] for part in last["content"])

    async def _talk(self, request: JSON, *terminals: str) -> list[JSON]:
        await self._peer.say(request)
        frames = [await self._hear()]
        while frames[-1]["type"] not in terminals:
            frames.append(await self._hear())
        return frames

    async def _hear(self) -> JSON:
        frame = await self._peer.hear()
        self.told.append(msgspec.json.encode(frame).decode())
        return frame


class TypeScriptSdk:
    """The npm package in a node process that obeys one line at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.told: list[str] = []

    async def status(self) -> str:
        return str((await self._tell("status"))["status"])

    async def log_in(self, open_page: OpenPage) -> list[str]:
        types = []
        async with _People() as people:
            event = await self._tell("login")
            while event["type"] != "logged_in":
                assert event["type"] != "failed", event
                types.append(event["type"])
                if event["type"] == "auth_url":
                    people.start(open_page(event["url"]))
                event = await self._hear()
        return types

    async def ask(self) -> str:
        heard = await self._tell("ask")
        if heard["type"] == "failed":
            raise Refused(heard["code"], heard.get("provider_id"))
        return str(heard["text"])

    async def _tell(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        return await self._hear()

    async def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        assert line, "the node process has ended"
        self.told.append(line)
        return msgspec.json.decode(line, type=dict[str, Any])


@asynccontextmanager
async def typescript(cli: Cli, provider_id: str, model_ref: str) -> AsyncIterator[TypeScriptSdk]:
    node = shutil.which("node")
    if node is None or not SDK.exists():
        pytest.skip("NO TYPESCRIPT SDK: node is missing, or `npm run build` was not run in sdk/typescript")
    process = await asyncio.create_subprocess_exec(
        node,
        *(str(DRIVER), str(SDK), sys.executable, provider_id, model_ref),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=cli.environment({}),
    )
    try:
        yield TypeScriptSdk(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(60):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


class _People(asyncio.TaskGroup):
    def start(self, work: Awaitable[object]) -> None:
        async def do() -> None:
            await work

        self.create_task(do())


def _status(providers: list[JSON], provider_id: str) -> str:
    [status] = [one["auth_status"] for one in providers if one["id"] == provider_id]
    return str(status)
