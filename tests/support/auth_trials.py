"""Trials of a shared login. Each returns what happened."""

from __future__ import annotations

import asyncio
import random
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from makai.auth.credentials import Account, ApiKey
from makai.auth.store import FILE_NAME, AccountStore, CredentialStore
from makai.core.errors import AuthExpired
from support.auth_child import DEADLINE_S, SECOND_ACCOUNT, Round, auth_child, refresher, run_to_the_end, store_at
from support.token_server import FAR_FUTURE_MS, PROVIDER, TokenServer, token_server

LONG_AGO_MS = 1


class CrowdReport(msgspec.Struct, frozen=True):
    refreshes_per_expiry: list[int]
    wrong_tokens: list[str]
    errors: list[str]
    revoked: bool


async def crowd(place: Path | str, *, processes: int, tasks: int, expiries: int, latency_s: float) -> CrowdReport:
    """Processes full of tasks find one token expired, or refused, again and again; each time all at once."""
    chance = random.Random(4)
    refreshes, wrong, errors = list[int](), list[str](), list[str]()
    async with token_server(lambda: chance.uniform(0, latency_s)) as server, AsyncExitStack() as stack:
        store = store_at(place)
        store.save(PROVIDER, server.login(expires_at_ms=FAR_FUTURE_MS))
        children = [await stack.enter_async_context(auth_child("crowd", place, tasks)) for _ in range(processes)]
        await asyncio.gather(*(_line(child) for child in children))
        for expiry in range(expiries):
            before = server.issued
            refused = _expire(store) if expiry % 2 else f"access-{server.issued}"
            for child in children:
                assert child.stdin is not None
                child.stdin.write(f"{refused}\n".encode())
            rounds = [
                msgspec.json.decode(line, type=Round)
                for line in await asyncio.gather(*(_line(child) for child in children))
            ]
            refreshes.append(server.issued - before)
            errors += [error for answer in rounds for error in answer.errors]
            wrong += [token for answer in rounds for token in answer.tokens if token != f"access-{server.issued}"]
        return CrowdReport(refreshes, wrong, errors, server.revoked)


def _expire(store: AccountStore) -> str:
    """By the clock; no token was refused then."""
    account = store.latest().account(PROVIDER)
    assert account is not None
    assert not isinstance(account.credential, ApiKey)
    over = msgspec.structs.replace(account.credential, expires_at_ms=LONG_AGO_MS)
    store.save(PROVIDER, msgspec.structs.replace(account, credential=over))
    return ""


async def _line(child: asyncio.subprocess.Process) -> bytes:
    assert child.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        return await child.stdout.readline()


class KillReport(msgspec.Struct, frozen=True):
    points: int
    killed: int
    stores_lost: list[int]
    """Points after which the file did not hold the login any more."""
    logins_lost: list[int]
    """Points after which the user had to log in again."""


def spread(count: int, last: int) -> list[int]:
    """`count` different steps from the first to the last."""
    return sorted({1 + round(index * (last - 1) / (count - 1)) for index in range(count)})


async def killed_refreshes(home: Path, *, points: int, forgiving: bool) -> KillReport:
    """Kill a process at points of a refresh; then another one refreshes."""
    async with token_server(forgiving=forgiving) as server:
        steps = await _steps("refresh", home, server)
        killed, stores_lost, logins_lost = 0, list[int](), list[int]()
        for step in spread(points, steps):
            _log_in(home, server)
            code, _ = await run_to_the_end("refresh", home, step)
            killed += code == -signal.SIGKILL
            if CredentialStore(home).snapshot().providers() != (PROVIDER,):
                stores_lost.append(step)
            try:
                account = await refresher(home).fresh(PROVIDER)
                assert CredentialStore(home).snapshot().account(PROVIDER) == account
            except AuthExpired:
                logins_lost.append(step)
            if CredentialStore(home).snapshot().providers() != (PROVIDER,):
                stores_lost.append(step)
        return KillReport(len(spread(points, steps)), killed, stores_lost, logins_lost)


async def killed_saves(home: Path, *, points: int) -> KillReport:
    """Kill a process at points of a save; then another one saves."""
    async with token_server() as server:
        steps = await _steps("save", home, server)
        killed, stores_lost = 0, list[int]()
        for step in spread(points, steps):
            first = _log_in(home, server)
            code, _ = await run_to_the_end("save", home, step)
            killed += code == -signal.SIGKILL
            left = CredentialStore(home).snapshot().accounts(PROVIDER)
            if [account.credential for account in left] not in (
                [first.credential],
                [first.credential, SECOND_ACCOUNT.credential],
            ):
                stores_lost.append(step)
            CredentialStore(home).save(PROVIDER, SECOND_ACCOUNT)  # nothing that was left is in the way
            assert _files(home) == [FILE_NAME]
        return KillReport(len(spread(points, steps)), killed, stores_lost, [])


def _files(home: Path) -> list[str]:
    return sorted(path.name for path in home.glob(f"{FILE_NAME}*"))


async def _steps(mode: str, home: Path, server: TokenServer) -> int:
    _log_in(home, server)
    code, output = await run_to_the_end(mode, home, 0)
    assert code == 0
    return int(output)


def _log_in(home: Path, server: TokenServer) -> Account:
    store = CredentialStore(home)
    store.remove(PROVIDER, SECOND_ACCOUNT.name)
    account = server.login(expires_at_ms=LONG_AGO_MS)
    store.save(PROVIDER, account)
    return account
