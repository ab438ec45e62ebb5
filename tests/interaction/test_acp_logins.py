"""Logging in and out from an editor over ACP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.acp_client import JSON, AcpClient, RpcFailed, connected

from makai.auth.flows import LoginProvider
from makai.auth.login import RunningLogin
from makai.providers.runtime import ModelRuntime
from makai.server.acp_connection import AcpServer
from makai.server.acp_handshake import BUILTIN_LOGINS, configured_logins, offered_logins
from makai.sessions.service import Sessions

TEST_LOGIN = {"MAKAI_TEST_LOGIN": "1"}
FORM: JSON = {"elicitation": {"form": {}}}
URL: JSON = {"elicitation": {"url": {}}}


async def no_sessions() -> Sessions:
    raise AssertionError("a login needs no sessions")


@asynccontextmanager
async def agent(home: Path, capabilities: JSON | None = None, **options: Any) -> AsyncIterator[AcpClient]:
    async with ModelRuntime(TEST_LOGIN, home=home) as models:
        server = AcpServer(
            no_sessions, models, logins=lambda: offered_logins({**TEST_LOGIN, "MAKAI_HOME": str(home)}), **options
        )
        async with connected(server) as client:
            await client.initialize(capabilities)
            yield client


def opened_page(pages: list[str], *, works: bool = True) -> Any:
    def open_page(url: str) -> bool:
        pages.append(url)
        return works

    return open_page


@pytest.fixture
def browser_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixture's login shows a page and ends when a person has typed "ok" there, which they do at once."""

    async def login(io: RunningLogin, provider: LoginProvider, http: Any) -> Any:
        from makai.auth.credentials import ApiKey
        from makai.auth.flows import account_of
        from makai.core.secret import Secret

        await io.auth_url("https://login.example/device?code=ABCD-EFGH", "Type the code ABCD-EFGH there.")
        return account_of(provider, ApiKey(key=Secret("s3cret")))

    monkeypatch.setattr("makai.auth.flows.api_key.login_test_fixture", login)


@pytest.mark.req("ACP-AUTH-001")
async def test_methods_are_logins_that_an_editor_can_go_through(tmp_path: Path) -> None:
    async with agent(tmp_path) as client:
        (answer,) = [frame["result"] for frame in client.frames]
        names = {**dict(BUILTIN_LOGINS), "test-fixture": "Test fixture"}  # none that asks for a key, such as openai
        assert sorted(answer["authMethods"], key=lambda method: list(names).index(method["id"])) == [
            {"id": login, "name": f"Log in to {name}", "description": "In your browser"}
            for login, name in names.items()
        ]
    async with ModelRuntime(TEST_LOGIN, home=tmp_path) as models:
        known = {provider.id: provider.name for provider in models.auth().list_providers()}
    assert {login: known.get(login) for login in names} == names


def test_the_logins_of_a_user_without_settings_are_those_of_the_tables(tmp_path: Path) -> None:
    assert list(offered_logins({"MAKAI_HOME": str(tmp_path)})) == list(BUILTIN_LOGINS)
    assert list(configured_logins({}, str(tmp_path))) == list(BUILTIN_LOGINS)


async def test_logins_of_config_toml_are_offered(tmp_path: Path) -> None:
    login = '[providers.acme]\nname = "Acme"\napi = "openai-completions"\nbase_url = "https://acme.example/v1"\n'
    (tmp_path / "config.toml").write_text(
        login + '[providers.acme.login]\nissuer = "https://sso.example"\nclient_id = "x"\n'
    )
    assert ("acme", "Acme") in offered_logins({"MAKAI_HOME": str(tmp_path)})
    (tmp_path / "config.toml").write_text("[broken")
    assert offered_logins({"MAKAI_HOME": str(tmp_path)}) == BUILTIN_LOGINS


@pytest.mark.req("ACP-AUTH-001")
async def test_a_terminal_is_a_method_only_for_editors_that_have_one(tmp_path: Path) -> None:
    async with agent(tmp_path, {"auth": {"terminal": True}}) as client:
        assert client.frames[0]["result"]["authMethods"][-1] == {
            "type": "terminal",
            "id": "makai-terminal",
            "name": "Log in in a terminal",
            "description": "For API keys and all other logins",
            "args": ["--login"],
        }


@pytest.mark.req("ACP-AUTH-002")
async def test_a_login_by_a_form_is_stored_and_can_be_ended(tmp_path: Path) -> None:
    async with agent(tmp_path, FORM) as client:
        login = client.begin("authenticate", {"methodId": "test-fixture"})
        question = await client.until_asked("elicitation/create")
        assert question["params"]["requestId"] == 2
        assert question["params"]["requestedSchema"]["required"] == ["answer"]
        await client.answer(question, {"action": "accept", "content": {"answer": "ok"}})
        assert await login == {}
        assert "test-fixture" in (tmp_path / "auth.json").read_text()
        assert await client.ask("logout", {}) == {}
        assert "test-fixture" not in (tmp_path / "auth.json").read_text()


@pytest.mark.req("ACP-AUTH-002")
@pytest.mark.usefixtures("browser_login")
async def test_a_page_is_shown_by_the_editor(tmp_path: Path) -> None:
    async with agent(tmp_path, URL) as client:
        login = client.begin("authenticate", {"methodId": "test-fixture"})
        assert await login == {}
        (shown,) = [frame["params"] for frame in client.frames if frame.get("method") == "elicitation/create"]
        assert shown["url"] == "https://login.example/device?code=ABCD-EFGH"
        assert "ABCD-EFGH" in shown["message"]
        assert client.notifications("elicitation/complete") == [{"elicitationId": shown["elicitationId"]}]
        assert "s3cret" not in repr(client.frames)


@pytest.mark.req("ACP-AUTH-002")
@pytest.mark.usefixtures("browser_login")
async def test_a_page_is_opened_for_an_editor_that_shows_none(tmp_path: Path) -> None:
    pages: list[str] = []
    async with agent(tmp_path, open_page=opened_page(pages)) as client:
        assert await client.ask("authenticate", {"methodId": "test-fixture"}) == {}
        assert pages == ["https://login.example/device?code=ABCD-EFGH"]


@pytest.mark.req("ACP-AUTH-002")
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"result": {"action": "accept", "content": {"answer": "no"}}}, "was not"),
        ({"result": {"action": "decline"}}, "cancelled"),
        ({"result": {"action": "cancel"}}, "cancelled"),
        ({"error": {"code": -32603, "message": "no window"}}, "no window"),
        ({"result": []}, "did not show"),
    ],
)
async def test_a_login_that_fails_is_an_error(tmp_path: Path, answer: JSON, message: str) -> None:
    async with agent(tmp_path, FORM) as client:
        login = client.begin("authenticate", {"methodId": "test-fixture"})
        question = await client.until_asked("elicitation/create")
        await client.say({"id": question["id"], **answer})
        with pytest.raises(RpcFailed, match=message) as caught:
            await login
        assert caught.value.code == -32000
        assert not (tmp_path / "auth.json").exists()


@pytest.mark.req("ACP-AUTH-002")
async def test_what_cannot_be_shown_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    async with agent(tmp_path) as client:
        with pytest.raises(RpcFailed, match="makai auth login test-fixture"):
            await client.ask("authenticate", {"methodId": "test-fixture"})
        for unknown in ("openai", "makai-terminal", "nowhere"):
            with pytest.raises(RpcFailed) as caught:
                await client.ask("authenticate", {"methodId": unknown})
            assert caught.value.code == -32602


@pytest.mark.req("ACP-AUTH-002")
async def test_a_cancelled_login_stores_nothing(tmp_path: Path) -> None:
    async with agent(tmp_path, FORM) as client:
        login = client.begin("authenticate", {"methodId": "test-fixture"})
        question = await client.until_asked("elicitation/create")
        await client.notify("$/cancel_request", {"requestId": 2})
        with pytest.raises(RpcFailed) as caught:
            await login
        assert caught.value.code == -32800
        await client.until(lambda: client.notifications("$/cancel_request") == [{"requestId": question["id"]}])
        assert not (tmp_path / "auth.json").exists()
