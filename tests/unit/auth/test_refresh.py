from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest
from support.auth_trials import CrowdReport, KillReport, crowd, killed_refreshes, killed_saves
from support.machine import RecordMeasure
from support.profiles import FAULTS
from support.token_server import Answer, refresh_procedure, token_server

import makai.auth.refresh
from makai.auth.credentials import Account, ApiKey, OAuthToken
from makai.auth.http import AuthHttp
from makai.auth.private_files import FileLock, exclusive
from makai.auth.refresh import EXPIRY_MARGIN_MS, Refresher
from makai.auth.store import FILE_NAME, CredentialStore
from makai.core import errors
from makai.core.secret import Secret

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
DEADLINE_S = 60.0

Procedure: TypeAlias = Callable[[OAuthToken, AuthHttp], Awaitable[OAuthToken]]


class Server:
    """A procedure that follows a script, and counts."""

    def __init__(self, *script: errors.MakaiError | OAuthToken | Procedure) -> None:
        self.script = script
        self.sent: list[OAuthToken] = []

    async def __call__(self, token: OAuthToken, http: AuthHttp) -> OAuthToken:
        step = self.script[min(len(self.sent), len(self.script) - 1)]
        self.sent.append(token)
        if isinstance(step, errors.MakaiError):
            raise step
        if isinstance(step, OAuthToken):
            return step
        return await step(token, http)


def token(number: int, expires_in_ms: int | None = HOUR_MS, *, refreshable: bool = True) -> OAuthToken:
    return OAuthToken(
        access=Secret(f"access-{number}"),
        refresh=Secret(f"refresh-{number}") if refreshable else None,
        expires_at_ms=None if expires_in_ms is None else NOW_MS + expires_in_ms,
    )


EXPIRED = token(1, -1)


def account(credential: OAuthToken | ApiKey, name: str = "default") -> Account:
    return Account(name=name, credential=credential, origins=("https://api.test:443",))


@pytest.fixture
def store(home: Path, monkeypatch: pytest.MonkeyPatch) -> CredentialStore:
    """One login, whose token is expired."""
    monkeypatch.setattr(makai.auth.store, "unix_milliseconds", lambda: NOW_MS)
    kept = CredentialStore(home)
    kept.save("test", account(EXPIRED))
    return kept


def refresher(store: CredentialStore, procedure: Procedure, now_ms: int = NOW_MS) -> Refresher:
    return Refresher(store, AuthHttp(), {"oauth2": procedure}, now_ms=lambda: now_ms)


def kept(store: CredentialStore, name: str | None = None) -> OAuthToken | ApiKey | None:
    found = CredentialStore(store.home).snapshot().account("test", name)
    return None if found is None else found.credential


def holding(answer: OAuthToken) -> tuple[Procedure, asyncio.Event, asyncio.Event]:
    """A procedure that says when it was asked, and answers when it may."""
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def procedure(token: OAuthToken, http: AuthHttp) -> OAuthToken:
        asked.set()
        await may_answer.wait()
        return answer

    return procedure, asked, may_answer


# --- when a token is refreshed ---


async def test_a_token_that_is_good_is_returned_at_once_without_a_lock(home: Path, store: CredentialStore) -> None:
    server = Server(token(2))
    store.save("test", account(token(1)))

    assert (await refresher(store, server).fresh("test")).credential == token(1)
    assert server.sent == []
    assert not (home / "locks").exists()


async def test_an_expired_token_is_refreshed_and_kept(store: CredentialStore) -> None:
    server = Server(token(2))
    source = refresher(store, server)

    assert (await source.fresh("test")).credential == token(2)
    assert (await source.fresh("test", "default")).credential == token(2)
    assert (server.sent, kept(store)) == ([EXPIRED], token(2))


@pytest.mark.parametrize(
    ("credential", "now_ms", "refreshed"),
    [
        (token(1, HOUR_MS), NOW_MS + HOUR_MS - EXPIRY_MARGIN_MS - 1, False),
        (token(1, HOUR_MS), NOW_MS + HOUR_MS - EXPIRY_MARGIN_MS, True),
        (token(1, 10_000), NOW_MS + 4_999, False),
        (token(1, 10_000), NOW_MS + 5_000, True),
        (token(1, None), NOW_MS + 1000 * HOUR_MS, False),
        (token(1, HOUR_MS, refreshable=False), NOW_MS + HOUR_MS - 1, False),
    ],
    ids=["an hour", "last minute", "short", "short, second half", "never", "nothing to refresh with"],
)
async def test_a_token_is_refreshed_in_its_last_minute(
    store: CredentialStore, credential: OAuthToken, now_ms: int, refreshed: bool
) -> None:
    server = Server(token(2))
    store.save("test", account(credential))

    await refresher(store, server, now_ms).fresh("test")

    assert len(server.sent) == refreshed


async def test_a_token_that_the_provider_refused_is_refreshed_whatever_the_clock_says(store: CredentialStore) -> None:
    server = Server(token(2))
    store.save("test", account(token(1)))
    source = refresher(store, server)

    assert (await source.fresh("test", rejected=Secret("access-1"))).credential == token(2)
    # a slower request comes back with the same refusal: there is a newer token already
    assert (await source.fresh("test", rejected=Secret("access-1"))).credential == token(2)
    assert server.sent == [token(1)]


async def test_each_account_is_refreshed_for_itself(store: CredentialStore) -> None:
    server = Server(token(3))
    store.save("test", account(EXPIRED, "work"))
    store.save("test", account(token(2), "home"))
    source = refresher(store, server)

    assert (await source.fresh("test")).name == "home"
    assert (await source.fresh("test", "work")).credential == token(3)
    assert store.snapshot().default("test") == "home"


async def test_an_answer_without_a_refresh_token_leaves_the_old_one_in_use(store: CredentialStore) -> None:
    await refresher(store, Server(token(2, refreshable=False))).fresh("test")

    assert kept(store) == msgspec.structs.replace(token(2), refresh=Secret("refresh-1"))


# --- what cannot be refreshed ---


async def test_without_a_login_one_is_required(store: CredentialStore) -> None:
    store.remove("test")
    source = refresher(store, Server(token(2)))

    with pytest.raises(
        errors.AuthRequired, match=r"^There is no login for test\. Run: makai auth login test$"
    ) as caught:
        await source.fresh("test")
    assert caught.value.provider_id == "test"
    with pytest.raises(errors.AuthRequired, match=r"^There is no login for test named 'work'\."):
        await source.fresh("test", "work")


async def test_a_key_that_the_provider_refused_must_be_entered_again(store: CredentialStore) -> None:
    store.save("test", account(ApiKey(key=Secret("key-1"))))
    source = refresher(store, Server(token(2)))

    assert (await source.fresh("test", rejected=Secret("an older key"))).credential == ApiKey(key=Secret("key-1"))
    with pytest.raises(errors.AuthRequired, match=r"test refused the stored API key\. Run: makai auth login test"):
        await source.fresh("test", rejected=Secret("key-1"))


@pytest.mark.req("MK-AUTH-020")
@pytest.mark.parametrize(
    "credential",
    [token(1, -1, refreshable=False), msgspec.structs.replace(EXPIRED, refresher="a vendor we do not know")],
    ids=["no refresh token", "no procedure"],
)
async def test_an_expired_token_without_refresh_path_is_expired(store: CredentialStore, credential: OAuthToken) -> None:
    store.save("test", account(credential, "work"))

    with pytest.raises(errors.AuthExpired) as caught:
        await refresher(store, Server(token(2))).fresh("test")
    assert str(caught.value) == "The login for test has expired. Run: makai auth login test --account work"
    assert kept(store) == credential


PASSING = {
    "other 400": errors.ProviderError("invalid_client", status=400),
    "401": errors.ProviderError("unauthorized", status=401),
    "429": errors.RateLimited("slow down", status=429),
    "500": errors.ProviderError("HTTP status 500", status=500),
    "html": errors.ParseError("a web page"),
    "no network": errors.ProviderError("Cannot reach the server."),
    "a login needed elsewhere": errors.AuthRequired("no", provider_id="other"),
}


@pytest.mark.req("MK-AUTH-020")
@pytest.mark.parametrize("failure", PASSING.values(), ids=PASSING.keys())
async def test_any_other_failure_passes_and_a_login_is_kept(store: CredentialStore, failure: errors.MakaiError) -> None:
    server = Server(failure)
    source = refresher(store, server)

    with pytest.raises(errors.AuthRefreshFailed) as caught:
        await source.fresh("test")
    assert caught.value.message == f"The login for test could not be refreshed: {failure.message.rstrip('.')}."
    assert caught.value.provider_id == "test"
    assert kept(store) == EXPIRED

    server.script = (token(2),)
    assert (await source.fresh("test")).credential == token(2)


async def test_a_failure_before_the_token_is_over_goes_unnoticed(store: CredentialStore) -> None:
    soon_over = token(1, EXPIRY_MARGIN_MS // 2)
    store.save("test", account(token(1)))
    store.save("test", account(soon_over))
    source = refresher(
        store, Server(errors.ProviderError("HTTP status 500", status=500)), NOW_MS + EXPIRY_MARGIN_MS // 4
    )

    assert (await source.fresh("test")).credential == soon_over
    with pytest.raises(errors.AuthRefreshFailed):
        await source.fresh("test", rejected=Secret("access-1"))


async def test_invalid_grant_is_final_but_removes_nothing(store: CredentialStore) -> None:
    server = Server(errors.InvalidGrant("over", provider_id="test"), token(4))
    source = refresher(store, server)

    for _ in range(3):
        with pytest.raises(errors.AuthExpired, match="makai auth login test"):
            await source.fresh("test")
    assert server.sent == [EXPIRED]  # a token that was refused is not sent again
    assert kept(store) == EXPIRED

    store.save("test", account(token(3, -1)))  # the user logged in again
    assert (await source.fresh("test")).credential == token(4)


async def test_invalid_grant_means_nothing_when_somebody_else_was_faster(store: CredentialStore) -> None:
    async def overtaken(sent: OAuthToken, http: AuthHttp) -> OAuthToken:
        CredentialStore(store.home).save("test", account(token(2)))
        raise errors.InvalidGrant("over", provider_id="test")

    assert (await refresher(store, overtaken).fresh("test")).credential == token(2)


async def test_a_lost_answer_is_asked_for_once_more(store: CredentialStore) -> None:
    lost = errors.ProviderError("the connection failed")
    once = Server(lost, token(2))
    twice = Server(lost, lost, token(2))

    with pytest.raises(errors.AuthRefreshFailed):
        await refresher(store, twice).fresh("test")
    assert len(twice.sent) == 2
    assert (await refresher(store, once).fresh("test")).credential == token(2)
    assert once.sent == [EXPIRED, EXPIRED]


@pytest.mark.parametrize("forgiving", [True, False])
async def test_a_server_that_forgives_a_lost_answer_costs_no_login(store: CredentialStore, forgiving: bool) -> None:
    async with token_server(forgiving=forgiving) as server:

        async def answer_lost(sent: OAuthToken, http: AuthHttp) -> OAuthToken:
            await refresh_procedure(sent, http)
            raise errors.ProviderError("the connection failed")

        store.save("test", server.login(expires_at_ms=1))
        source = refresher(store, Server(answer_lost, refresh_procedure))
        if forgiving:
            await source.fresh("test")
        else:
            with pytest.raises(errors.AuthExpired):
                await source.fresh("test")

        assert (server.issued, server.revoked) == (2, not forgiving)
        assert CredentialStore(store.home).snapshot().providers() == ("test",)


async def test_a_server_that_is_down_for_a_moment_costs_no_login(store: CredentialStore) -> None:
    async with token_server() as server:
        server.answer_in_place = [Answer(status, b"<html>") for status in (500, 503, 429, 401)]
        store.save("test", server.login(expires_at_ms=1))
        source = refresher(store, refresh_procedure)

        for _ in range(4):
            with pytest.raises(errors.AuthRefreshFailed):
                await source.fresh("test")
        await source.fresh("test")

        assert (server.answered, server.issued, server.revoked) == (5, 2, False)


# --- one at a time ---


async def test_many_tasks_share_one_refresh_and_it_is_visible(store: CredentialStore) -> None:
    procedure, asked, may_answer = holding(token(2))
    server = Server(procedure)
    source = refresher(store, server)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(source.fresh("test")) for _ in range(20)]
        await asked.wait()
        assert (source.is_refreshing("test", "default"), source.is_refreshing("test", "other")) == (True, False)
        may_answer.set()

    assert [task.result().credential for task in tasks] == [token(2)] * 20
    assert (len(server.sent), source.is_refreshing("test", "default")) == (1, False)


async def test_a_caller_that_goes_away_does_not_stop_the_refresh(store: CredentialStore) -> None:
    procedure, asked, may_answer = holding(token(2))
    source = refresher(store, procedure)
    async with asyncio.timeout(DEADLINE_S):
        caller = asyncio.create_task(source.fresh("test"))
        await asked.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        may_answer.set()
        await source.aclose()

    assert kept(store) == token(2)


async def test_closing_stops_a_refresh_that_takes_long(store: CredentialStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(makai.auth.refresh, "CLOSE_DEADLINE_S", 0.01)
    procedure, asked, _ = holding(token(2))
    source = refresher(store, procedure)
    async with asyncio.timeout(DEADLINE_S):
        caller = asyncio.create_task(source.fresh("test"))
        await asked.wait()
        await source.aclose()
        with pytest.raises(asyncio.CancelledError):
            await caller

    assert (kept(store), source.is_refreshing("test", "default")) == (EXPIRED, False)


async def test_two_processes_ask_once(store: CredentialStore) -> None:
    """The second one is done as soon as the first has saved."""
    procedure, asked, may_answer = holding(token(2))
    other = Server(token(3))
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        first = group.create_task(refresher(store, procedure).fresh("test"))
        await asked.wait()
        second = group.create_task(refresher(CredentialStore(store.home), other).fresh("test"))
        may_answer.set()

    assert [first.result().credential, second.result().credential] == [token(2), token(2)]
    assert other.sent == []


async def test_the_store_is_read_again_inside_the_lock(store: CredentialStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process was done between our first look and our turn."""
    server = Server(token(3))

    def acquired_late(lock: FileLock) -> bool:
        monkeypatch.undo()
        CredentialStore(store.home).save("test", account(token(2)))
        return lock.try_acquire()

    monkeypatch.setattr(FileLock, "try_acquire", acquired_late)

    assert (await refresher(store, server).fresh("test")).credential == token(2)
    assert server.sent == []


async def test_a_process_that_hangs_with_the_lock_does_not_hang_the_others(
    home: Path, store: CredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(makai.auth.refresh, "LOCK_DEADLINE_S", 0.01)
    server = Server(token(2))
    await refresher(store, server).fresh("test")
    store.save("test", account(EXPIRED))
    (lock,) = (home / "locks").iterdir()

    with exclusive(lock, 0), pytest.raises(errors.AuthRefreshFailed, match="another process has been refreshing it"):
        await refresher(store, server).fresh("test")
    assert len(server.sent) == 1


async def test_a_server_that_never_answers_is_given_up(store: CredentialStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(makai.auth.refresh, "ANSWER_DEADLINE_S", 0.01)
    procedure, _, _ = holding(token(2))

    with pytest.raises(errors.AuthRefreshFailed, match=r"no answer within 0\.01 seconds"):
        await refresher(store, procedure).fresh("test")
    assert kept(store) == EXPIRED


async def test_a_logout_during_a_refresh_is_not_undone(store: CredentialStore) -> None:
    async def logged_out(sent: OAuthToken, http: AuthHttp) -> OAuthToken:
        CredentialStore(store.home).remove("test")
        return token(2)

    with pytest.raises(errors.AuthRequired):
        await refresher(store, logged_out).fresh("test")
    assert kept(store) is None


async def test_a_login_during_a_refresh_counts(store: CredentialStore) -> None:
    async def logged_in(sent: OAuthToken, http: AuthHttp) -> OAuthToken:
        CredentialStore(store.home).save("test", account(token(9)))
        return token(2)

    assert (await refresher(store, logged_in).fresh("test")).credential == token(9)
    assert kept(store) == token(9)


# --- the store ---


async def test_a_token_is_not_spent_when_its_successor_could_not_be_kept(
    store: CredentialStore, fill_disk: Callable[[str], None]
) -> None:
    server = Server(token(2))
    fill_disk("fsync")

    with pytest.raises(errors.AuthRefreshFailed, match="No space left on device"):
        await refresher(store, server).fresh("test")
    assert (server.sent, kept(store)) == ([], EXPIRED)


async def test_a_home_where_nothing_can_be_locked_is_named(home: Path, store: CredentialStore) -> None:
    server = Server(token(2))
    (home / "locks").write_text("in the way")

    with pytest.raises(errors.AuthRefreshFailed, match=r"locks cannot be made \(File exists\)"):
        await refresher(store, server).fresh("test")
    assert server.sent == []


async def test_a_corrupt_store_is_an_error_and_not_a_missing_login(home: Path, store: CredentialStore) -> None:
    (home / FILE_NAME).write_text("{")

    with pytest.raises(errors.MakaiError, match="holds no valid JSON") as caught:
        await refresher(store, Server(token(2))).fresh("test")
    assert not isinstance(caught.value, errors.AuthRequired)


# --- real processes ---

POINTS = 100 if FAULTS else 10


@pytest.mark.proof("O1")
@pytest.mark.scaled
async def test_processes_full_of_tasks_refresh_once_per_expiry(home: Path, record_measure: RecordMeasure) -> None:
    processes, tasks, expiries, latency_s = (32, 20, 100, 0.5) if FAULTS else (4, 5, 6, 0.02)
    report = await crowd(home, processes=processes, tasks=tasks, expiries=expiries, latency_s=latency_s)

    name = f"{processes} processes x {tasks} tasks, {expiries} expiries"
    record_measure(f"{name}: refreshes", f"{expiries}", str(sum(report.refreshes_per_expiry)))
    record_measure(f"{name}: forced logins", "0", str(len(report.errors) + report.revoked))
    assert report == CrowdReport(refreshes_per_expiry=[1] * expiries, wrong_tokens=[], errors=[], revoked=False)


@pytest.mark.proof("O2")
@pytest.mark.scaled
@pytest.mark.parametrize(
    "forgiving",
    [pytest.param(False, marks=pytest.mark.faults), True],
    ids=["the server revokes on reuse", "the server forgives a lost answer"],
)
async def test_kill_9_during_a_refresh_never_loses_the_store_nor_a_login_that_the_server_forgives(
    home: Path, record_measure: RecordMeasure, forgiving: bool
) -> None:
    report = await killed_refreshes(home, points=POINTS, forgiving=forgiving)

    name = f"kill -9 at {POINTS} points of a refresh, server " + ("forgives" if forgiving else "revokes")
    record_measure(f"{name}: stores lost", "0", str(len(report.stores_lost)))
    record_measure(f"{name}: logins lost", "0" if forgiving else "-", str(len(report.logins_lost)))
    assert (report.points, report.killed, report.stores_lost) == (POINTS, POINTS, [])
    if forgiving:
        assert report.logins_lost == []
    else:
        # Only where the server had rotated and the answer was not yet in place: one run of points, not all of them.
        assert 0 < len(report.logins_lost) < 50


@pytest.mark.proof("O2")
@pytest.mark.scaled
async def test_kill_9_during_a_save_never_loses_the_store(home: Path, record_measure: RecordMeasure) -> None:
    report = await killed_saves(home, points=POINTS)

    record_measure(f"kill -9 at {POINTS} points of a save: stores lost", "0", str(len(report.stores_lost)))
    assert report == KillReport(POINTS, POINTS, [], [])
