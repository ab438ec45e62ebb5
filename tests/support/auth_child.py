"""A process that uses a shared login: the program, and how tests start it.

    python -m support.auth_child crowd PLACE TASKS      per line on stdin: all tasks ask for a token; answers as JSON
    python -m support.auth_child refresh HOME STEP      one refresh
    python -m support.auth_child save HOME STEP         one save of a second account

PLACE is a home, or the address of a database with logins under `CLUSTER_KEY`. The last two are killed (SIGKILL, by
themselves) just before the STEP-th line of makai's or the procedure's code that they execute. With STEP 0 they survive
and print how many such lines there are.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

import makai.auth.store
from makai.auth.credentials import Account, ApiKey
from makai.auth.http import AuthHttp
from makai.auth.refresh import Refresher
from makai.auth.store import AccountStore, CredentialStore
from makai.core.errors import MakaiError
from makai.core.secret import Secret
from support import token_server
from support.token_server import PROVIDER, refresh_procedure

DEADLINE_S = 60.0
CLUSTER_KEY = Secret("a cluster key of more than 32 characters")
SECOND_ACCOUNT = Account(name="second", credential=ApiKey(key=Secret("key-2")), origins=("https://api.test:443",))

_TRACED = (str(Path(makai.auth.store.__file__).parent), token_server.__file__)


class Round(msgspec.Struct):
    """What the tasks of one process got: distinct access tokens and errors."""

    tokens: list[str]
    errors: list[str]


def store_at(place: Path | str) -> AccountStore:
    """The logins of a home or, for the address of a database, those in it."""
    if isinstance(place, Path) or not place.startswith("postgres:"):
        return CredentialStore(Path(place))
    from makai.auth.shared_store import SharedCredentialStore  # slow to import, and few children use it

    return SharedCredentialStore(place, lambda: CLUSTER_KEY)


def refresher(place: Path | str) -> Refresher:
    """As a process of makai would make it, for the provider of `token_server`."""
    return refresher_of(store_at(place))


def refresher_of(store: AccountStore) -> Refresher:
    return Refresher(store, AuthHttp(), {"oauth2": refresh_procedure})


@asynccontextmanager
async def auth_child(mode: str, place: Path | str, number: int) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "support.auth_child", mode, str(place), str(number)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=PIPE,
        stdout=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def run_to_the_end(mode: str, home: Path, step: int) -> tuple[int, bytes]:
    async with auth_child(mode, home, step) as process, asyncio.timeout(DEADLINE_S):
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output


class Steps:
    """Counts executed lines of the code under test, in every thread, and kills the process before a given one."""

    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last

    def start(self) -> None:
        threading.settrace(self._called)
        sys.settrace(self._called)

    def stop(self) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._stepped if frame.f_code.co_filename.startswith(_TRACED) else None

    def _stepped(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.count += 1
            if self.count == self._last:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._stepped


async def _ask(source: Refresher, rejected: str | None) -> str:
    account = await source.fresh(PROVIDER, rejected=Secret(rejected) if rejected else None)
    assert not isinstance(account.credential, ApiKey)
    return account.credential.access.reveal()


async def _round(source: Refresher, tasks: int, rejected: str | None) -> Round:
    results = await asyncio.gather(*(_ask(source, rejected) for _ in range(tasks)), return_exceptions=True)
    return Round(
        tokens=sorted({result for result in results if isinstance(result, str)}),
        errors=[f"{type(result).__name__}: {result}" for result in results if isinstance(result, BaseException)],
    )


def _crowd(place: str, tasks: int) -> None:
    """One round per line; the line is the token that was refused, or empty."""
    store = store_at(place)
    source = refresher_of(store)
    with asyncio.Runner() as runner:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for line in sys.stdin:
            store.latest()  # a copy may not know yet that the trial has made the token expire
            answer = runner.run(_round(source, tasks, line.strip() or None))
            sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
            sys.stdout.flush()


def _killed_while(mode: str, home: Path, step: int) -> None:
    steps = Steps(step)
    with asyncio.Runner() as runner:
        steps.start()
        try:
            if mode == "refresh":
                runner.run(_ask(refresher(home), None))
            else:
                CredentialStore(home).save(PROVIDER, SECOND_ACCOUNT)
        except MakaiError as error:
            sys.exit(f"{error}")
        finally:
            steps.stop()
    sys.stdout.write(str(steps.count))


if __name__ == "__main__":
    chosen, place_argument, number_argument = sys.argv[1:]
    if chosen == "crowd":
        _crowd(place_argument, int(number_argument))
    else:
        _killed_while(chosen, Path(place_argument), int(number_argument))
