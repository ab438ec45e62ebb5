"""Logins as they run: events, answers, cancelling, statuses, and what must never show."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.people import query_of, redirected
from support.upstream import Request, Script, answers, upstream

from makai.auth import login as login_module
from makai.auth.credentials import Account, ApiKey, OAuthToken
from makai.auth.flows import KeyCheck, LoginProvider, authorization_code
from makai.auth.flows.events import AuthEvent, AuthUrl, Failed, Progress, Prompt, Success
from makai.auth.flows.renewal import refresh_oauth2
from makai.auth.flows.table import TEST_FIXTURE
from makai.auth.http import AuthHttp
from makai.auth.login import LoginFlow
from makai.auth.runtime import AccountStatus, AuthRuntime, ProviderStatus
from makai.auth.store import CredentialStore
from makai.core.errors import MakaiError
from makai.core.secret import Secret

ACME = LoginProvider(
    id="acme", name="Acme", origins=("https://api.acme.example:443",), key_variables=("ACME_KEY", "ACME_API_KEY")
)
ABOUT: dict[str, Any] = {"flow_id": "f1", "provider_id": "test-fixture"}


@asynccontextmanager
async def runtime(
    home: Path, *providers: LoginProvider, environ: dict[str, str] | None = None
) -> AsyncIterator[AuthRuntime]:
    async with AuthHttp() as http, asyncio.timeout(20):
        made = AuthRuntime(CredentialStore(home), providers or (TEST_FIXTURE, ACME), http, environ or {})
        yield made
        await made.close()


async def follow(flow: LoginFlow, *typed: str) -> list[AuthEvent]:
    """All events; each prompt gets the next of `typed`."""
    answers_left = list(typed)
    events = []
    async for event in flow:
        events.append(event)
        if isinstance(event, Prompt) and answers_left:
            assert flow.answer(event.prompt_id, answers_left.pop(0))
    return events


async def first(flow: LoginFlow, kind: type[AuthEvent]) -> AuthEvent:
    async for event in flow:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind}")


def statuses(made: AuthRuntime) -> dict[str, str]:
    return {provider.id: provider.auth_status for provider in made.list_providers()}


async def test_a_login_asks_stores_and_succeeds(tmp_path: Path) -> None:
    async with runtime(tmp_path) as made:
        flow = made.start_login("test-fixture", "f1")
        assert (flow.result, statuses(made)["test-fixture"]) == (None, "login_in_progress")

        assert await follow(flow, "ok") == [
            Prompt(**ABOUT, prompt_id="prompt-1", message='Type "ok" to log in:'),
            Success(**ABOUT),
        ]
        assert (flow.result, await flow.ended(), statuses(made)) == (
            "success",
            "success",
            {"test-fixture": "authenticated", "acme": "login_required"},
        )
    async with runtime(tmp_path) as another:
        assert statuses(another)["test-fixture"] == "authenticated"


async def test_an_empty_answer_asks_again(tmp_path: Path) -> None:
    async with runtime(tmp_path) as made:
        events = await follow(made.start_login("test-fixture", "f1"), "", "  ", "ok")

    assert [event.prompt_id for event in events if isinstance(event, Prompt)] == ["prompt-1", "prompt-2", "prompt-3"]
    assert events[-1] == Success(**ABOUT)


@pytest.mark.req("MK-AUTH-021")
async def test_a_failed_login_is_an_error_and_the_providers_last_error(tmp_path: Path) -> None:
    async with runtime(tmp_path) as made:
        flow = made.start_login("test-fixture", "f1")
        message = 'The answer was not "ok". Try again: `makai auth login test-fixture`'

        assert (await follow(flow, "no"))[-1] == Failed(**ABOUT, code="auth_required", message=message)
        assert flow.result == "failed"
        assert made.list_providers()[0] == ProviderStatus(
            id="test-fixture", name="Test fixture", auth_status="failed", last_error=message
        )
        await follow(made.start_login("test-fixture", "f2"), "ok")
        assert (made.list_providers()[0].auth_status, made.list_providers()[0].last_error) == ("authenticated", "")


async def test_an_unknown_provider_is_a_failed_login(tmp_path: Path) -> None:
    async with runtime(tmp_path) as made:
        flow = made.start_login("nobody", "f1")
        assert await follow(flow) == [
            Failed(
                flow_id="f1",
                provider_id="nobody",
                code="invalid_request",
                message="There is no provider of that name to log in to. There are: acme, test-fixture.",
            )
        ]
        assert (flow.result, statuses(made)) == (
            "failed",
            {"test-fixture": "login_required", "acme": "login_required"},
        )


async def test_cancelling_ends_a_flow_that_waits_for_an_answer(tmp_path: Path) -> None:
    async with runtime(tmp_path) as made:
        flow = made.start_login("test-fixture", "f1")
        prompt = await first(flow, Prompt)

        assert flow.cancel()
        assert await follow(flow) == [Failed(**ABOUT, code="cancelled", message="The login was cancelled.")]
        assert flow.result == "cancelled"
        assert isinstance(prompt, Prompt)
        assert (flow.cancel(), flow.answer(prompt.prompt_id, "ok")) == (False, False)
        assert statuses(made)["test-fixture"] == "login_required", "cancelled is not failed"
        assert not (tmp_path / "auth.json").exists()


async def test_cancelling_before_the_first_step_ends_the_flow_too(tmp_path: Path) -> None:
    async with runtime(tmp_path) as made:
        flow = made.start_login("test-fixture", "f1")
        assert flow.cancel()
        assert [type(event) for event in await follow(flow)] == [Failed]
        assert flow.result == "cancelled"


async def test_an_answer_counts_once_and_only_for_its_question(tmp_path: Path) -> None:
    async with runtime(tmp_path) as made:
        flow = made.start_login("test-fixture", "f1")
        await first(flow, Prompt)

        assert not flow.answer("prompt-2", "ok")
        assert flow.answer("prompt-1", "ok")
        assert not flow.answer("prompt-1", "no"), "answered twice"
        assert await flow.ended() == "success"
        assert not flow.answer("prompt-1", "ok"), "late"


async def test_a_cancel_after_success_changes_nothing(tmp_path: Path) -> None:
    async with runtime(tmp_path) as made:
        flow = made.start_login("test-fixture", "f1")
        events = await follow(flow, "ok")
        assert not flow.cancel()
        assert (flow.result, events[-1]) == ("success", Success(**ABOUT))
        assert CredentialStore(tmp_path).snapshot().account("test-fixture") is not None


async def test_several_logins_run_at_once_each_with_its_own_answers(tmp_path: Path) -> None:
    async with runtime(tmp_path) as made:
        flows = [made.start_login("test-fixture", f"f{n}", account=f"a{n}") for n in range(5)]
        results = await asyncio.gather(*(follow(flow, "ok" if n % 2 else "no") for n, flow in enumerate(flows)))

        assert [type(events[-1]) for events in results] == [Failed, Success, Failed, Success, Failed]
        assert {event.flow_id for event in results[3]} == {"f3"}
        [status] = [provider for provider in made.list_providers() if provider.id == "test-fixture"]
        assert sorted(account.name for account in status.accounts) == ["a1", "a3"]


async def test_the_runtime_ends_what_runs_when_it_closes(tmp_path: Path) -> None:
    async with runtime(tmp_path) as made:
        flows = [made.start_login("test-fixture", f"f{n}") for n in range(3)]
        await first(flows[0], Prompt)
        await made.close()
        assert [flow.result for flow in flows] == ["cancelled"] * 3


async def test_a_login_that_nobody_finishes_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module, "FLOW_S", 0.05)
    async with runtime(tmp_path) as made:
        events = await follow(made.start_login("test-fixture", "f1"))
    assert isinstance(events[-1], Failed)
    assert "was not finished within" in events[-1].message


async def test_more_flows_than_the_bound_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makai.auth.runtime.MAX_FLOWS", 2)
    async with runtime(tmp_path) as made:
        kept = [made.start_login("test-fixture", f"f{n}") for n in range(2)]
        for flow in kept:
            await first(flow, Prompt)
        refused = made.start_login("test-fixture", "f9")
        assert "2 logins are already running" in str(await follow(refused))
        assert [flow.result for flow in kept] == [None, None]


async def test_a_home_that_cannot_be_used_is_found_before_anybody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("not json")
    (tmp_path / "auth.json").chmod(0o600)
    async with runtime(tmp_path) as made:
        events = await follow(made.start_login("test-fixture", "f1"), "ok")
        assert [type(event) for event in events] == [Failed]
        assert f"{tmp_path}/auth.json" in str(events[0])
        assert set(statuses(made).values()) == {"unknown"}
        assert "auth.json" in made.list_providers()[0].last_error
    assert (tmp_path / "auth.json").read_text() == "not json"


def test_statuses_tell_keys_tokens_and_variables_apart(tmp_path: Path) -> None:
    store = CredentialStore(tmp_path)
    now_ms = time.time_ns() // 1_000_000
    kinds: dict[str, ApiKey | OAuthToken] = {
        "key": ApiKey(key=Secret("k")),
        "open": OAuthToken(access=Secret("a")),
        "good": OAuthToken(access=Secret("a"), expires_at_ms=now_ms + 60_000),
        "over": OAuthToken(access=Secret("a"), expires_at_ms=now_ms - 1),
        "refreshable": OAuthToken(access=Secret("a"), refresh=Secret("r"), expires_at_ms=now_ms - 1),
    }
    for name, credential in kinds.items():
        store.save(name, Account(name="default", credential=credential, origins=("https://x:443",), label="me"))
    providers = [
        *(LoginProvider(id=name, name=name, key_variables=("SET",)) for name in kinds),
        LoginProvider(id="variable", name="v", key_variables=("UNSET", "SET")),
        LoginProvider(id="local", name="l", required=False),
        LoginProvider(id="nothing", name="n", key_variables=("EMPTY",)),
    ]
    made = AuthRuntime(store, providers, AuthHttp(), {"SET": "x", "EMPTY": " "})

    listed = made.list_providers()
    assert [(provider.id, provider.auth_status, provider.source) for provider in listed] == [
        ("key", "authenticated", "login"),
        ("open", "authenticated", "login"),
        ("good", "authenticated", "login"),
        ("over", "expired", "login"),
        ("refreshable", "authenticated", "login"),
        ("variable", "authenticated", "SET"),
        ("local", "authenticated", ""),
        ("nothing", "login_required", ""),
    ]
    assert listed[0].accounts == (
        AccountStatus(name="default", auth_status="authenticated", is_default=True, label="me"),
    )


async def test_logging_out_forgets_one_account(tmp_path: Path) -> None:
    async with runtime(tmp_path) as made:
        for name in ("work", "home"):
            await follow(made.start_login("test-fixture", f"f-{name}", account=name), "ok")

        assert await made.logout("test-fixture", "work")
        assert not await made.logout("test-fixture", "work")
        assert [account.name for account in made.list_providers()[0].accounts] == ["home"]
        assert await made.logout("test-fixture")
        assert statuses(made)["test-fixture"] == "login_required"
        assert not await made.logout("nobody")


async def test_options_come_from_the_environment_and_win(tmp_path: Path) -> None:
    provider = LoginProvider(
        id="corp",
        name="Corp",
        flow="oidc",
        origins=("https://x:443",),
        options={"authorization_endpoint": "https://sso.example/a", "token_endpoint": "https://sso.example/t"},
        option_variables={"client_id": "CORP_CLIENT", "client_secret": "CORP_SECRET"},
    )
    async with runtime(tmp_path, provider, environ={"CORP_CLIENT": "mine", "CORP_SECRET": "hidden"}) as made:
        flow = made.start_login("corp", "f1")
        event = await first(flow, AuthUrl)
        assert isinstance(event, AuthUrl)
        assert query_of(event.url)["client_id"] == "mine"
        assert "hidden" not in event.url


async def test_an_unforeseen_failure_is_reported_without_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quoted = CANARIES[0]  # not spelt out below: a traceback shows source lines

    async def broken(*_: object) -> Account:
        raise KeyError(quoted)

    monkeypatch.setattr("makai.auth.flows.test_fixture.login", broken)
    async with runtime(tmp_path) as made:
        events = await follow(made.start_login("test-fixture", "f1"))

    assert events == [
        Failed(
            **ABOUT,
            code="internal_error",
            message="The login failed because of an internal error. Please report this.",
        )
    ]
    assert "KeyError" in caplog.text
    assert quoted not in caplog.text


# O7: secrets that must not show, whatever way they take

CANARIES = [
    "sk-ant-api03-CANARY-aaaa1111bbbb2222",
    "sk-ant-oat01-CANARY-cccc3333dddd4444",
    "sk-ant-ort01-CANARY-cccc3333dddd4444",
    "sk-proj-CANARYeeee5555ffff6666",
    "sk-or-v1-CANARY7777gggg8888hhhh",
    "AIzaSyCANARY9999iiii0000jjjj1111kkkk",
    "ghp_CANARY2222llll3333mmmm4444nnnn",
    "gho_CANARY5555oooo6666pppp7777qqqq",
    "github_pat_CANARY8888_rrrr9999ssss",
    "eyJhbGciOiJub25lIn0.eyJDQU5BUlkiOjF9.CANARYsig",
    "Bearer-CANARY-0000tttt1111uuuu",
    "https://user:CANARY2222vvvv@host.example/",
    "https://host.example/?key=CANARY3333wwww",
    "-----BEGIN+PRIVATE+KEY-----CANARY4444",
    "session=CANARY5555xxxx;Path=/",
    base64.b64encode(b"CANARY in base64, 6666").decode(),
    "ya29.CANARY7777yyyy8888zzzz",
    "1//CANARY-google-refresh-9999",
    "4/0CANARY-google-code-aaaa",
    "tid=CANARY0000;exp=1;sku=x",
    "xoxb-CANARY-1111-2222",
    "AKIACANARY3333BBBB44",
    "hf_CANARY5555cccc6666dddd",
    "glpat-CANARY7777eeee8888",
    "CANARY" + "f" * 200,
]
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
        body = {
            "error": "invalid_grant" if "token" in request.path else canary,
            "error_description": sent,
            canary: sent,
        }
        await answers(json.dumps(body).encode(), status, "application/json", X_Echo=canary)(request, writer)

    return script


def page(canary: str) -> Script:
    return answers(f"<html><title>{canary}</title>{canary}</html>".encode(), 200, "text/html")


async def watched_login(watch: Watch, home: Path, provider: LoginProvider, *typed: str, code: str = "") -> LoginFlow:
    async with runtime(home, provider, environ={"CORP_SECRET": typed[0] if typed else code}) as made:
        flow = made.start_login(provider.id, "f1")
        left = list(typed)
        async for event in flow:
            watch.look(event)
            if isinstance(event, Prompt) and left:
                flow.answer(event.prompt_id, left.pop(0))
            elif isinstance(event, Prompt) and typed:
                flow.cancel()  # nothing that was pasted is of use
            elif isinstance(event, AuthUrl) and code:
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


@pytest.mark.req("MK-AUTH-017")
@pytest.mark.parametrize("canary", CANARIES)
async def test_no_canary_shows_on_any_path_of_a_login(
    canary: str,
    tmp_path: Path,
    watch: Watch,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(authorization_code, "PASTE_AFTER_S", 0.0)
    tokens = {"access_token": canary, "refresh_token": canary, "id_token": canary, "expires_in": 60}
    good = answers(json.dumps(tokens).encode(), 200, "application/json")
    scripts = [good, page(canary), echoes(canary, 400), echoes(canary, 500), echoes(canary, 200)]
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


def test_events_have_the_wires_names() -> None:
    events: list[AuthEvent] = [
        AuthUrl(**ABOUT, url="https://x"),
        Prompt(**ABOUT, prompt_id="prompt-1", message="?"),
        Progress(**ABOUT, message="."),
        Success(**ABOUT),
        Failed(**ABOUT, message="!"),
    ]
    encoded: list[dict[str, Any]] = [msgspec.json.decode(msgspec.json.encode(event)) for event in events]
    assert [event["type"] for event in encoded] == ["auth_url", "prompt", "progress", "success", "error"]
