"""How the runtime uses logins: precedence, refresh before dispatch, once more after a refusal, origins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from support.upstream import Request, Script, Upstream, answers, chat_stream, refuses, upstream

from makai.auth.credentials import Account, ApiKey, OAuthToken, origin_of
from makai.auth.store import CredentialStore
from makai.catalog.models import ModelsRequest
from makai.core.errors import AuthExpired, AuthRefreshFailed, AuthRequired, InvalidRequest, MakaiError
from makai.core.messages import UserMessage
from makai.core.model import Model
from makai.core.request import Context, StreamOptions
from makai.core.secret import Secret
from makai.core.stream_events import Done, Failed, Start, StreamEvent
from makai.providers.runtime import ModelRuntime

HI = Context(messages=(UserMessage(content="Hi"),))
QUICK = StreamOptions(max_retries=0)
HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def gateway(home: Path, url: str) -> None:
    """A provider of the user's own at this address."""
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(f'[providers.corp]\nbase_url = "{url}"\nkey_variable = "CORP_KEY"\n')


def token(access: str, *, expires_in_ms: int = HOUR_MS, token_url: str = "", refresh: str | None = "r1") -> OAuthToken:
    return OAuthToken(
        access=Secret(access),
        refresh=Secret(refresh) if refresh else None,
        expires_at_ms=now_ms() + expires_in_ms,
        token_url=token_url,
        client_id="makai",
    )


def keep(home: Path, credential: ApiKey | OAuthToken, url: str, name: str = "default") -> None:
    account = Account(name=name, credential=credential, origins=(origin_of(url),))
    CredentialStore(home).save("corp", account, make_default=name == "default")


async def ask(home: Path, environ: dict[str, str] | None = None, options: StreamOptions = QUICK) -> list[StreamEvent]:
    async with asyncio.timeout(60), ModelRuntime(environ or {}, home=home) as runtime:
        return [event async for event in runtime.stream("corp/m", HI, options)]


@asynccontextmanager
async def served(home: Path, script: Script | None = None) -> AsyncIterator[Upstream]:
    """A model that answers so, configured as the provider corp."""
    async with upstream(script or answers(chat_stream("Hello"))) as model:
        gateway(home, model.url)
        yield model


def sent(server: Upstream) -> list[str]:
    """The tokens the server was shown, in order."""
    return [request.headers.get("authorization", "none").removeprefix("Bearer ") for request in server.requests]


def issues(access: str) -> Script:
    body = {"access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": "r2"}
    return answers(msgspec.json.encode(body), content_type="application/json")


def wants(good: str) -> Script:
    """A model that answers only those who show this token."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        known = request.headers.get("authorization") == f"Bearer {good}"
        await (answers(chat_stream("Hello")) if known else refuses(401))(request, writer)

    return script


@pytest.mark.req("MK-AUTH-016")
async def test_a_stored_key_is_used_and_wins_over_the_environment(tmp_path: Path) -> None:
    async with served(tmp_path) as model:
        await ask(tmp_path, {"CORP_KEY": "from-environment"})
        keep(tmp_path, ApiKey(key=Secret("from-login")), model.url)
        keep(tmp_path, ApiKey(key=Secret("from-work")), model.url, "work")
        await ask(tmp_path, {"CORP_KEY": "from-environment"})
        await ask(tmp_path, options=StreamOptions(max_retries=0, account="work"))
        assert sent(model) == ["from-environment", "from-login", "from-work"]
        with pytest.raises(AuthRequired, match="no account 'home'"):
            await ask(tmp_path, options=StreamOptions(account="home"))


@pytest.mark.req("MK-AUTH-018")
async def test_without_any_credential_the_request_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async with served(tmp_path) as model:
        with pytest.raises(AuthRequired) as refused:
            await ask(tmp_path)
        assert refused.value.provider_id == "corp"
        assert "makai auth login corp" in str(refused.value)
        assert model.requests == []


@pytest.mark.req("MK-AUTH-019")
async def test_an_expired_token_is_refreshed_before_anything_is_sent(tmp_path: Path) -> None:
    async with served(tmp_path, wants("a2")) as model, upstream(issues("a2")) as server:
        keep(tmp_path, token("a1", expires_in_ms=-1, token_url=server.url + "/token"), model.url)
        events = await ask(tmp_path)
        assert isinstance(events[-1], Done)
        assert sent(model) == ["a2"]
        assert len(server.requests) == 1
        await ask(tmp_path)
        assert len(server.requests) == 1


@pytest.mark.req("MK-AUTH-021")
async def test_a_provider_is_listed_as_refreshing_while_its_token_is(tmp_path: Path) -> None:
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def holds(request: Request, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await may_answer.wait()
        await issues("a2")(request, writer)

    async with (
        asyncio.timeout(60),
        served(tmp_path) as model,
        upstream(holds) as server,
        ModelRuntime({}, home=tmp_path) as runtime,
    ):
        keep(tmp_path, token("a1", expires_in_ms=-1, token_url=server.url + "/token"), model.url)

        def status() -> str:
            return {provider.id: provider.auth_status for provider in runtime.auth().list_providers()}["corp"]

        answer = asyncio.ensure_future(runtime.complete("corp/m", HI, QUICK))
        await asked.wait()
        during = status()
        may_answer.set()
        await answer
        assert (during, status()) == ("refreshing", "authenticated")


async def test_a_token_that_is_refused_is_refreshed_and_the_request_sent_once_more(tmp_path: Path) -> None:
    async with served(tmp_path, wants("a2")) as model, upstream(issues("a2")) as server:
        keep(tmp_path, token("a1", token_url=server.url + "/token"), model.url)
        events = await ask(tmp_path)
        assert isinstance(events[-1], Done)
        assert sum(isinstance(event, Start) for event in events) == 1
        assert sent(model) == ["a1", "a2"]


async def test_a_second_refusal_is_told_and_not_tried_again(tmp_path: Path) -> None:
    async with served(tmp_path, refuses(401)) as model, upstream(issues("a2")) as server:
        keep(tmp_path, token("a1", token_url=server.url + "/token"), model.url)
        last = (await ask(tmp_path))[-1]
        assert isinstance(last, Failed)
        assert (last.error_code, last.provider_id) == ("auth_required", "corp")
        assert sent(model) == ["a1", "a2"]


REFRESH_ANSWERS: list[tuple[Script, type[MakaiError]]] = [
    (refuses(400, b'{"error":"invalid_grant"}'), AuthExpired),
    (refuses(500), AuthRefreshFailed),
    (answers(b"<html>", 200, "text/html"), AuthRefreshFailed),
]


@pytest.mark.req("MK-AUTH-020")
@pytest.mark.parametrize(("answer", "error"), REFRESH_ANSWERS)
async def test_a_refresh_that_fails_has_its_typed_code_and_keeps_the_login(
    tmp_path: Path, answer: Script, error: type[MakaiError]
) -> None:
    async with served(tmp_path) as model, upstream(answer) as server:
        keep(tmp_path, token("a1", expires_in_ms=-1, token_url=server.url + "/token"), model.url)
        with pytest.raises(error):
            await ask(tmp_path)
        assert model.requests == []
        assert CredentialStore(tmp_path).snapshot().account("corp") is not None


@pytest.mark.req("MK-AUTH-020")
async def test_a_refusal_whose_refresh_fails_says_so_in_the_stream(tmp_path: Path) -> None:
    async with served(tmp_path, refuses(401)) as model, upstream(refuses(400, b'{"error":"invalid_grant"}')) as server:
        keep(tmp_path, token("a1", token_url=server.url + "/token"), model.url)
        last = (await ask(tmp_path))[-1]
        assert isinstance(last, Failed)
        assert last.error_code == "auth_expired"
        assert last.hint is not None


async def test_an_expired_token_without_a_way_to_refresh_is_auth_expired(tmp_path: Path) -> None:
    async with served(tmp_path) as model:
        keep(tmp_path, token("a1", expires_in_ms=-1, refresh=None), model.url)
        with pytest.raises(AuthExpired):
            await ask(tmp_path)


async def test_a_login_is_never_sent_to_an_address_a_caller_names(tmp_path: Path) -> None:
    async with served(tmp_path) as model, upstream(answers(chat_stream("Hello"))) as thief:
        keep(tmp_path, ApiKey(key=Secret("precious")), model.url)
        stolen = Model(id="m", api="openai-completions", provider="corp", base_url=thief.url)
        async with ModelRuntime({}, home=tmp_path) as runtime:
            with pytest.raises(AuthRequired, match="is not sent to"):
                await anext(runtime.stream(stolen, HI))
        assert thief.requests == []


async def test_a_token_may_travel_in_a_header_of_the_gateways_choice(tmp_path: Path) -> None:
    async with served(tmp_path) as model:
        own_header = msgspec.structs.replace(token("a1"), provider_data={"send_as": "X-Corp-Token"})
        keep(tmp_path, own_header, model.url)
        await ask(tmp_path)
        (request,) = model.requests
        assert "authorization" not in request.headers
        assert request.headers["x-corp-token"] == "a1"


async def test_a_broken_config_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[providers.corp]\ncolour = 1\n")
    with pytest.raises(MakaiError, match="colour"):
        ModelRuntime({}, home=tmp_path)


@pytest.mark.parametrize("url", ["localhost:8080/v1", "ftp://corp.example", "http://me:secret@corp.example", "http://"])
async def test_an_address_that_cannot_be_used_is_named_with_its_file_and_line(tmp_path: Path, url: str) -> None:
    gateway(tmp_path, url)
    with pytest.raises(InvalidRequest) as refused:
        ModelRuntime({}, home=tmp_path)

    assert refused.value.message.startswith(f"{tmp_path / 'config.toml'}, line 2: the base URL is not usable: ")
    assert "secret" not in refused.value.message


@pytest.mark.req("MK-MODEL-015")
async def test_a_store_that_cannot_be_read_does_not_fail_the_listing_and_is_told_when_asked(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("{broken")
    async with ModelRuntime({"OPENAI_API_KEY": "x"}, home=tmp_path) as runtime:
        listed = await runtime.models(ModelsRequest(provider_id="anthropic"))
        assert {model.auth_status for model in listed.models} == {"failed"}
        with pytest.raises(MakaiError, match=r"auth\.json"):
            runtime.resolve(None)
    assert (tmp_path / "auth.json").read_text() == "{broken"


async def test_the_test_fixture_exists_only_for_tests_that_ask_for_it(tmp_path: Path) -> None:
    async def offered(environ: dict[str, str]) -> list[bool]:
        async with ModelRuntime(environ, home=tmp_path) as runtime:
            providers = [provider.id for provider in runtime.auth().list_providers()]
            models = (await runtime.models(ModelsRequest(provider_id="test-fixture"))).models
            return ["test-fixture" in providers, bool(models), "test-fixture" in runtime.resolver.vendors]

    assert await offered({}) == [False, False, False]
    assert await offered({"MAKAI_TEST_LOGIN": "1"}) == [True, True, True]


async def test_a_server_on_this_machine_that_does_not_run_is_not_usable(tmp_path: Path) -> None:
    async def status(address: str) -> str:
        async with ModelRuntime({"OLLAMA_HOST": address}, home=tmp_path) as runtime:
            return next(one.auth_status for one in runtime.auth().list_providers() if one.id == "ollama")

    listener = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    async with listener:
        running = await status(f"{host}:{port}")
    listener.close()
    await listener.wait_closed()

    assert (running, await status(f"{host}:{port}")) == ("authenticated", "unknown")
    assert await status("https://ollama.example:1") == "authenticated"  # not tried: it may be slow to answer
