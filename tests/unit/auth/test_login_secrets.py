"""O7: 25 secrets through every path of a login; none may show anywhere."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.login_servers import auth_runtime
from support.people import redirected
from support.upstream import Request, Script, answers, upstream

from makai.auth.credentials import Account, OAuthToken
from makai.auth.flows import KeyCheck, LoginProvider, oauth2
from makai.auth.http import AuthHttp
from makai.auth.login import LoginFailed, LoginPrompt, LoginUrl, RunningLogin
from makai.auth.refresh import refresh_oauth2
from makai.auth.store import CredentialStore
from makai.catalog.logins import TEST_FIXTURE
from makai.core.errors import MakaiError
from makai.core.secret import Secret

CANARIES = [
    "sk-ant-api03-CANARY-aaaa1111bbbb2222", "sk-ant-oat01-CANARY-cccc3333dddd4444",
    "sk-ant-ort01-CANARY-cccc3333dddd4444", "sk-proj-CANARYeeee5555ffff6666", "sk-or-v1-CANARY7777gggg8888hhhh",
    "AIzaSyCANARY9999iiii0000jjjj1111kkkk", "ghp_CANARY2222llll3333mmmm4444nnnn", "gho_CANARY5555oooo6666pppp7777qqqq",
    "github_pat_CANARY8888_rrrr9999ssss", "eyJhbGciOiJub25lIn0.eyJDQU5BUlkiOjF9.CANARYsig",
    "Bearer-CANARY-0000tttt1111uuuu", "https://user:CANARY2222vvvv@host.example/",
    "https://host.example/?key=CANARY3333wwww", "-----BEGIN+PRIVATE+KEY-----CANARY4444",
    "session=CANARY5555xxxx;Path=/", base64.b64encode(b"CANARY in base64, 6666").decode(),
    "ya29.CANARY7777yyyy8888zzzz", "1//CANARY-google-refresh-9999", "4/0CANARY-google-code-aaaa",
    "tid=CANARY0000;exp=1;sku=x", "xoxb-CANARY-1111-2222", "AKIACANARY3333BBBB44", "hf_CANARY5555cccc6666dddd",
    "glpat-CANARY7777eeee8888", "CANARY" + "f" * 200,
]  # fmt: skip
assert len(set(CANARIES)) == 25


class Watch(logging.Handler):
    """Everything that anybody could see of a login."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen += [record.getMessage(), repr(record.args), str(record.exc_text or "")]

    def look(self, *things: object) -> None:
        for thing in things:
            self.seen += [repr(thing), str(thing)]
            if isinstance(thing, BaseException):
                self.seen += traceback.format_exception(thing)
                self.look(*filter(None, (thing.__cause__, thing.__context__)), *thing.args)
            elif isinstance(thing, msgspec.Struct):
                self.seen.append(msgspec.json.encode(thing, enc_hook=repr).decode())


@pytest.fixture
def watch() -> Iterator[Watch]:
    root, handler = logging.getLogger(), Watch()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


def echoes(canary: str, status: int) -> Script:
    """A server that repeats everything it was sent, and the canary, wherever it can."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        sent = f"{canary} {request.path} {request.headers} {request.body.decode()}"
        error = "invalid_grant" if "token" in request.path else canary
        body = {"error": error, "error_description": sent, canary: sent}
        await answers(json.dumps(body).encode(), status, "application/json", X_Echo=canary)(request, writer)

    return script


def page(canary: str) -> Script:
    return answers(f"<html><title>{canary}</title>{canary}</html>".encode(), 200, "text/html")


async def watched_login(watch: Watch, home: Path, provider: LoginProvider, *typed: str, code: str = "") -> RunningLogin:
    async with auth_runtime(home, provider, environ={"CORP_SECRET": typed[0] if typed else code}) as made:
        flow = made.start_login(provider.id, "f1")
        left = list(typed)
        async for event in flow:
            watch.look(event)
            if isinstance(event, LoginPrompt) and left:
                flow.answer(event.prompt_id, left.pop(0))
            elif isinstance(event, LoginPrompt) and typed:
                flow.cancel()  # nothing that was pasted is of use
            elif isinstance(event, LoginUrl) and code:
                await redirected(code)(event.url)
        watch.look(flow, flow.result, *made.list_providers(), made)
        if account := CredentialStore(home).snapshot().account(provider.id):
            watch.look(account)
        await made.logout(provider.id)
        return flow


def with_endpoints(url: str, canary: str) -> LoginProvider:
    return LoginProvider(
        id="corp",
        name="Corp",
        flow="oidc",
        origins=("https://x:443",),
        check=KeyCheck(url=f"{url}/models"),
        options={
            "authorization_endpoint": "https://sso.example/a",
            "token_endpoint": f"{url}/token",
            "revocation_endpoint": f"{url}/revoke",
            "client_id": "makai",
        },
        client_secret=Secret(canary),
        option_variables={"client_secret": "CORP_SECRET"},
    )


@pytest.mark.proof("O7")
@pytest.mark.req("MK-AUTH-017")
@pytest.mark.parametrize("canary", CANARIES)
async def test_no_canary_shows_on_any_path_of_a_login(
    canary: str, tmp_path: Path, watch: Watch, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oauth2, "PASTE_AFTER_S", 0.0)
    tokens = {"access_token": canary, "refresh_token": canary, "id_token": canary, "expires_in": 60}
    good = answers(json.dumps(tokens).encode(), 200, "application/json")
    scripts = [good, page(canary), *(echoes(canary, status) for status in (400, 401, 500, 200))]
    for number, script in enumerate(scripts):
        async with upstream(script) as server:
            provider = with_endpoints(server.url, canary)
            watch.look(provider)
            key_entry = msgspec.structs.replace(provider, flow="api_key")
            home = tmp_path / str(number)
            # pasted as a key; as an address, then as a code; brought by the browser
            await watched_login(watch, home, key_entry, canary, canary, canary)
            await watched_login(watch, home, provider, f"http://127.0.0.1/x?code={canary}", canary, canary)
            flow = await watched_login(watch, home, provider, code=canary)
            assert flow.result == ("success" if number == 0 else "failed")
            await refused_refresh(watch, server.url, canary)
    out, err = capfd.readouterr()
    everything = "\n".join([*watch.seen, out, err])

    assert len(watch.seen) > 100, "the test looked at something"
    for part in (canary, "CANARY", base64.b64encode(canary.encode()).decode()):
        assert part not in everything


async def refused_refresh(watch: Watch, url: str, canary: str) -> None:
    token = OAuthToken(
        access=Secret(canary), refresh=Secret(canary), token_url=f"{url}/token", client_secret=Secret(canary)
    )
    async with AuthHttp() as http:
        try:
            watch.look(await refresh_oauth2(token, http))
        except MakaiError as error:
            watch.look(error)


async def test_no_canary_shows_when_the_server_is_gone_or_silent(tmp_path: Path, watch: Watch) -> None:
    canary = CANARIES[0]

    async def silent(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with upstream(silent) as server:
        await watched_login(watch, tmp_path, with_endpoints(server.url, canary), code=canary)
    await watched_login(watch, tmp_path, with_endpoints(server.url, canary), code=canary)
    async with AuthHttp() as http:
        for call in (http.post_form(server.url, {"t": Secret(canary)}), http.get(server.url, {"A": Secret(canary)})):
            with pytest.raises(MakaiError) as caught:
                await call
            watch.look(caught.value)
            assert caught.value.__context__ is None, "the library's exception holds the request"

    assert "CANARY" not in "\n".join(watch.seen)


async def test_an_unforeseen_failure_is_reported_without_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quoted = CANARIES[0]  # not spelt out below: a traceback shows source lines

    async def broken(*_: object) -> Account:
        raise KeyError(quoted)

    monkeypatch.setattr("makai.auth.flows.api_key.login_test_fixture", broken)
    async with auth_runtime(tmp_path, TEST_FIXTURE) as made:
        events = [event async for event in made.start_login("test-fixture", "f1")]

    why = "The login failed because of an internal error. Please report this."
    assert events == [LoginFailed(flow_id="f1", provider_id="test-fixture", code="internal_error", message=why)]
    assert "KeyError" in caplog.text
    assert quoted not in caplog.text
