"""Logins as they run: events, answers, cancelling, statuses."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.login_servers import auth_runtime
from support.people import query_of

from makai.auth import login as login_module
from makai.auth.credentials import Account, ApiKey, OAuthToken
from makai.auth.flows import LoginProvider
from makai.auth.http import AuthHttp
from makai.auth.login import LoginEvent, LoginFailed, LoginProgress, LoginPrompt, LoginSuccess, LoginUrl, RunningLogin
from makai.auth.runtime import AccountStatus, AuthRuntime, ProviderStatus
from makai.auth.store import CredentialStore
from makai.catalog.logins import TEST_FIXTURE
from makai.core.secret import Secret

ACME = LoginProvider(
    id="acme", name="Acme", origins=("https://api.acme.example:443",), key_variables=("ACME_KEY", "ACME_API_KEY")
)
ABOUT: dict[str, Any] = {"flow_id": "f1", "provider_id": "test-fixture"}


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[AuthRuntime]:
    async with auth_runtime(tmp_path, TEST_FIXTURE, ACME) as runtime:
        yield runtime


async def follow(flow: RunningLogin, *typed: str) -> list[LoginEvent]:
    """All events; each prompt gets the next of `typed`."""
    answers_left = list(typed)
    events = []
    async for event in flow:
        events.append(event)
        if isinstance(event, LoginPrompt) and answers_left:
            assert flow.answer(event.prompt_id, answers_left.pop(0))
    return events


async def first(flow: RunningLogin, kind: type[LoginEvent]) -> LoginEvent:
    async for event in flow:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind}")


def statuses(made: AuthRuntime) -> dict[str, str]:
    return {provider.id: provider.auth_status for provider in made.list_providers()}


async def test_a_login_asks_stores_and_succeeds(tmp_path: Path) -> None:
    async with auth_runtime(tmp_path, TEST_FIXTURE, ACME) as made:
        flow = made.start_login("test-fixture", "f1")
        assert (flow.result, statuses(made)["test-fixture"]) == (None, "login_in_progress")

        assert await follow(flow, "ok") == [
            LoginPrompt(**ABOUT, prompt_id="prompt-1", message='Type "ok" to log in:'),
            LoginSuccess(**ABOUT),
        ]
        assert (flow.result, await flow.ended(), statuses(made)) == (
            "success",
            "success",
            {"test-fixture": "authenticated", "acme": "login_required"},
        )
    async with auth_runtime(tmp_path, TEST_FIXTURE, ACME) as another:
        assert statuses(another)["test-fixture"] == "authenticated"


async def test_an_empty_answer_asks_again(made: AuthRuntime) -> None:
    events = await follow(made.start_login("test-fixture", "f1"), "", "  ", "ok")

    prompts = [event.prompt_id for event in events if isinstance(event, LoginPrompt)]
    assert prompts == ["prompt-1", "prompt-2", "prompt-3"]
    assert events[-1] == LoginSuccess(**ABOUT)


async def test_a_program_that_never_has_an_answer_is_not_asked_without_end(made: AuthRuntime) -> None:
    events = await follow(made.start_login("test-fixture", "f1"), *[""] * 10)

    assert events[-1] == LoginFailed(**ABOUT, code="auth_required", message="The question was not answered.")


@pytest.mark.req("MK-AUTH-021")
async def test_a_failed_login_is_an_error_and_the_providers_last_error(made: AuthRuntime) -> None:
    flow = made.start_login("test-fixture", "f1")
    message = 'The answer was not "ok". Try again: `makai auth login test-fixture`'

    assert (await follow(flow, "no"))[-1] == LoginFailed(**ABOUT, code="auth_required", message=message)
    assert flow.result == "failed"
    assert made.list_providers()[0] == ProviderStatus(
        id="test-fixture", name="Test fixture", auth_status="failed", last_error=message
    )
    await follow(made.start_login("test-fixture", "f2"), "ok")
    assert (made.list_providers()[0].auth_status, made.list_providers()[0].last_error) == ("authenticated", "")


async def test_an_unknown_provider_is_a_failed_login(made: AuthRuntime) -> None:
    flow = made.start_login("unknown", "f1")
    assert await follow(flow) == [
        LoginFailed(
            flow_id="f1",
            provider_id="unknown",
            code="invalid_request",
            message="There is no provider of that name to log in to. There are: acme, test-fixture.",
        )
    ]
    assert (flow.result, statuses(made)) == ("failed", {"test-fixture": "login_required", "acme": "login_required"})


async def test_cancelling_ends_a_flow_that_waits_for_an_answer(made: AuthRuntime, tmp_path: Path) -> None:
    flow = made.start_login("test-fixture", "f1")
    prompt = await first(flow, LoginPrompt)

    assert flow.cancel()
    assert await follow(flow) == [LoginFailed(**ABOUT, code="cancelled", message="The login was cancelled.")]
    assert flow.result == "cancelled"
    assert isinstance(prompt, LoginPrompt)
    assert (flow.cancel(), flow.answer(prompt.prompt_id, "ok")) == (False, False)
    assert statuses(made)["test-fixture"] == "login_required", "cancelled is not failed"
    assert not (tmp_path / "auth.json").exists()


async def test_cancelling_before_the_first_step_ends_the_flow_too(made: AuthRuntime) -> None:
    flow = made.start_login("test-fixture", "f1")
    assert flow.cancel()
    assert [type(event) for event in await follow(flow)] == [LoginFailed]
    assert flow.result == "cancelled"


@pytest.mark.req("MK-AUTH-010")
async def test_an_answer_counts_once_and_only_for_its_question(made: AuthRuntime) -> None:
    flow = made.start_login("test-fixture", "f1")
    await first(flow, LoginPrompt)

    assert not flow.answer("prompt-2", "ok")
    assert flow.answer("prompt-1", "ok")
    assert not flow.answer("prompt-1", "no"), "answered twice"
    assert await flow.ended() == "success"
    assert not flow.answer("prompt-1", "ok"), "late"


async def test_a_cancel_after_success_changes_nothing(made: AuthRuntime, tmp_path: Path) -> None:
    flow = made.start_login("test-fixture", "f1")
    events = await follow(flow, "ok")
    assert not flow.cancel()
    assert (flow.result, events[-1]) == ("success", LoginSuccess(**ABOUT))
    assert CredentialStore(tmp_path).snapshot().account("test-fixture") is not None


async def test_a_cancel_that_comes_while_the_login_is_being_stored_is_too_late(
    made: AuthRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    storing, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    save = CredentialStore.save

    def slow_save(store: CredentialStore, provider_id: str, account: Account) -> None:
        loop.call_soon_threadsafe(storing.set)
        assert go_on.wait(10)
        save(store, provider_id, account)

    monkeypatch.setattr(CredentialStore, "save", slow_save)
    flow = made.start_login("test-fixture", "f1")
    await first(flow, LoginPrompt)
    flow.answer("prompt-1", "ok")
    await storing.wait()
    assert not flow.cancel()
    go_on.set()
    assert await flow.ended() == "success"


async def test_several_logins_run_at_once_each_with_its_own_answers(made: AuthRuntime) -> None:
    flows = [made.start_login("test-fixture", f"f{n}", account=f"a{n}") for n in range(5)]
    results = await asyncio.gather(*(follow(flow, "ok" if n % 2 else "no") for n, flow in enumerate(flows)))

    endings = [type(events[-1]) for events in results]
    assert endings == [LoginFailed, LoginSuccess, LoginFailed, LoginSuccess, LoginFailed]
    assert {event.flow_id for event in results[3]} == {"f3"}
    [status] = [provider for provider in made.list_providers() if provider.id == "test-fixture"]
    assert sorted(account.name for account in status.accounts) == ["a1", "a3"]


async def test_the_runtime_ends_what_runs_when_it_closes(made: AuthRuntime) -> None:
    flows = [made.start_login("test-fixture", f"f{n}") for n in range(3)]
    await first(flows[0], LoginPrompt)
    await made.close()
    assert [flow.result for flow in flows] == ["cancelled"] * 3


async def test_a_login_that_nobody_finishes_ends_by_itself(made: AuthRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module, "FLOW_S", 0.05)
    events = await follow(made.start_login("test-fixture", "f1"))
    assert isinstance(events[-1], LoginFailed)
    assert "was not finished within" in events[-1].message


async def test_more_flows_than_the_bound_are_refused(made: AuthRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makai.auth.runtime.MAX_FLOWS", 2)
    kept = [made.start_login("test-fixture", f"f{n}") for n in range(2)]
    for flow in kept:
        await first(flow, LoginPrompt)
    refused = made.start_login("test-fixture", "f9")
    assert "2 logins are already running" in str(await follow(refused))
    assert [flow.result for flow in kept] == [None, None]


async def test_a_home_that_cannot_be_used_is_found_before_anybody_is_asked(made: AuthRuntime, tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("not json")
    (tmp_path / "auth.json").chmod(0o600)
    events = await follow(made.start_login("test-fixture", "f1"), "ok")
    assert [type(event) for event in events] == [LoginFailed]
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


async def test_logging_out_forgets_one_account(made: AuthRuntime) -> None:
    for name in ("work", "home"):
        await follow(made.start_login("test-fixture", f"f-{name}", account=name), "ok")

    assert await made.logout("test-fixture", "work")
    assert not await made.logout("test-fixture", "work")
    assert [account.name for account in made.list_providers()[0].accounts] == ["home"]
    assert await made.logout("test-fixture")
    assert statuses(made)["test-fixture"] == "login_required"
    assert not await made.logout("unknown")


async def test_options_come_from_the_environment_and_win(tmp_path: Path) -> None:
    provider = LoginProvider(
        id="corp",
        name="Corp",
        flow="oidc",
        origins=("https://x:443",),
        options={"authorization_endpoint": "https://sso.example/a", "token_endpoint": "https://sso.example/t"},
        option_variables={"client_id": "CORP_CLIENT", "client_secret": "CORP_SECRET"},
    )
    async with auth_runtime(tmp_path, provider, environ={"CORP_CLIENT": "mine", "CORP_SECRET": "hidden"}) as made:
        flow = made.start_login("corp", "f1")
        event = await first(flow, LoginUrl)
        assert isinstance(event, LoginUrl)
        assert query_of(event.url)["client_id"] == "mine"
        assert "hidden" not in event.url


def test_events_have_the_wires_names() -> None:
    events: list[LoginEvent] = [
        LoginUrl(**ABOUT, url="https://x"),
        LoginPrompt(**ABOUT, prompt_id="prompt-1", message="?"),
        LoginProgress(**ABOUT, message="."),
        LoginSuccess(**ABOUT),
        LoginFailed(**ABOUT, message="!"),
    ]
    encoded: list[dict[str, Any]] = [msgspec.json.decode(msgspec.json.encode(event)) for event in events]
    assert [event["type"] for event in encoded] == ["auth_url", "prompt", "progress", "success", "error"]
