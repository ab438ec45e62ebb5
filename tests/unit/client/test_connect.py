"""Where a client connects to, and what `import makai` offers."""

from __future__ import annotations

import asyncio
import builtins
import socket
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

import pytest
from support.sdk import DEADLINE_S, ECHO, TOKEN, FakeServer, failure_of, fake_server, listening

import makai
from makai import InvalidRequest, MakaiClient, MakaiClientOptions, MakaiStreamError
from makai.core.errors import MakaiAuthError, MakaiError
from makai.providers.runtime import ModelRuntime


async def test_a_connection_can_be_awaited_or_entered() -> None:
    client = await makai.connect(environ={})
    await client.close()
    async with await makai.connect(environ={}) as awaited, makai.connect(environ={}) as entered:
        assert (type(awaited), type(entered)) == (MakaiClient, MakaiClient)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "ws://localhost", "stdio": True}, "choose one place"),
        ({"command": ["makai"], "channel": fake_server}, "choose one place"),
        ({"token": "t"}, "token belongs to url"),
        ({"url": "ws://localhost", "environ": {}}, "environ is for"),
    ],
)
def test_options_that_contradict_each_other_are_refused_at_once(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        makai.connect(**options)


async def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="ftp"):
        await makai.connect("ftp://localhost")


async def test_a_server_that_is_not_there_is_a_transport_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    raised = await failure_of(makai.connect(f"ws://127.0.0.1:{port}"), MakaiStreamError)
    assert (raised.kind, raised.code) == ("transport_error", "transport_error")


async def test_a_command_that_cannot_start_is_a_transport_error(tmp_path: Path) -> None:
    with pytest.raises(MakaiStreamError, match="could not be started") as raised:
        await makai.connect(command=[str(tmp_path / "nothing-here")])
    assert raised.value.kind == "transport_error"


async def _ask_with_a_wrong_token(url: str) -> None:
    async with makai.connect(url, token="wrong") as client:
        await client.provider.complete(model_ref=ECHO, messages="Hi")


@pytest.mark.parametrize("kind", ["websocket", "sse", "grpc"])
async def test_a_wrong_token_is_refused_on_every_transport(kind: str) -> None:
    async with ModelRuntime({}) as runtime, listening(kind, runtime) as url:
        raised = await failure_of(_ask_with_a_wrong_token(url), MakaiStreamError)
        assert raised.kind == "transport_error"
        async with makai.connect(url, token=TOKEN) as client:
            assert (await client.provider.complete(model_ref=ECHO, messages="Hi")).text == "Hi"


async def test_a_client_that_is_not_closed_warns() -> None:
    channel, _ = fake_server()
    client = MakaiClient(channel)
    connection = client._connection

    with pytest.warns(ResourceWarning, match="unclosed"):
        del client
    await connection.close()


@pytest.mark.req("MK-SDK-001")
async def test_the_client_offers_what_the_document_asks_for() -> None:
    async with makai.create_makai_client(MakaiClientOptions(environ={})) as client:
        methods = [
            client.auth.list_providers,
            client.auth.login,
            client.models.list,
            client.models.resolve,
            client.agent.run,
            client.agent.stream,
            client.provider.complete,
            client.provider.stream,
            client.close,
        ]
        assert all(callable(method) for method in methods)


@pytest.mark.req("MK-SDK-006")
async def test_auth_opens_no_file_and_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    channel, server = fake_server()

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError(arguments)

    async with makai.connect(channel=channel) as client:
        await _refused_login(client, server)  # everything is imported now
        monkeypatch.setattr(builtins, "open", refuse)
        monkeypatch.setattr("os.open", refuse)
        monkeypatch.setattr("subprocess.Popen", refuse)
        monkeypatch.setattr("asyncio.create_subprocess_exec", refuse)
        await _refused_login(client, server)
        monkeypatch.undo()


async def _refused_login(client: MakaiClient, server: FakeServer) -> None:
    for kind, call in (("auth_providers_request", client.auth.list_providers()), ("auth_login_start", _login(client))):
        task = asyncio.ensure_future(call)
        await server.nack(await server.expect(kind), "not_implemented")
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(outcome, MakaiAuthError)


async def _login(client: MakaiClient) -> object:
    return await client.auth.login("acme")


@pytest.mark.req("MK-SDK-034")
def test_parse_model_ref_is_there_for_diagnostics() -> None:
    ref = makai.parse_model_ref("acme/x@a%2Fb")

    assert (ref.provider_id, ref.api, ref.model_id) == ("acme", "x", "a/b")


@pytest.mark.req("MK-SDK-034")
def test_nothing_in_the_client_takes_a_model_ref_apart() -> None:
    folder = Path(makai.__file__).parent / "client"
    assert [path.name for path in folder.glob("*.py") if "model_ref import" in path.read_text(encoding="utf-8")] == []


ODD_REFS = ("no/idea:what@this%is", "☂", " ", "a" * 5000, "x/y@z", "../..", '{"json": 1}')


@pytest.mark.req("MK-SDK-034")
@pytest.mark.parametrize("ref", ODD_REFS, ids=lambda ref: ref[:20])
async def test_a_ref_of_any_shape_is_sent_as_it_is_by_every_call(ref: str) -> None:
    channel, server = fake_server()
    async with asyncio.timeout(DEADLINE_S), makai.MakaiClient(channel) as client:
        whole = asyncio.ensure_future(client.provider.complete(model_ref=ref, messages="Hi"))
        request = await server.expect("complete_request")
        assert request["payload"]["model_ref"] == ref
        await server.answer(request)
        await whole

        stream = asyncio.ensure_future(_all(client.provider.stream(model_ref=ref, messages="Hi")))
        request = await server.expect("stream_request")
        assert request["payload"]["model_ref"] == ref
        await server.answer(request)
        await stream

        for run in (client.agent.run, client.agent.stream):
            asked: Any = run(model_ref=ref, messages="Hi")
            running = asyncio.ensure_future(asked if run == client.agent.run else _all(asked))
            request = await server.expect("agent_start")
            assert request["payload"]["model_ref"] == ref
            await server.nack(request, "invalid_request")
            with pytest.raises(MakaiError):
                await running


async def _all(events: AsyncIterable[object]) -> list[object]:
    return [event async for event in events]


def test_the_errors_of_the_sdk_are_makai_errors() -> None:
    assert issubclass(makai.MakaiAuthError, MakaiError)
    assert issubclass(makai.MakaiStreamError, MakaiError)
    assert str(MakaiStreamError("It broke.", kind="unknown", hint="Try again.")) == "It broke. Try again."
    assert MakaiAuthError("no", kind="cancelled").code == "cancelled"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = makai.nonsense
    assert set(makai.__all__) <= set(dir(makai))
