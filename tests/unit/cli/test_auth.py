"""`makai auth` over another runtime: what the commands show comes from there, and from nowhere else."""

from __future__ import annotations

import ast
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest
from click.testing import CliRunner, Result

import makai.cli.login
from makai.auth.credentials import Account, ApiKey
from makai.auth.flows import LoginIO
from makai.auth.login import RunningLogin
from makai.auth.runtime import AccountStatus, ProviderStatus
from makai.cli import auth, browser
from makai.cli.auth import status_text
from makai.cli.line_reader import LineReader
from makai.cli.login import JsonLoginOutput, LoginOutput, log_in
from makai.core.errors import AuthRequired
from makai.core.secret import Secret
from makai.server.backend import Backend

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000
ACME = ProviderStatus(id="acme", name="Acme Models", auth_status="authenticated", source="ACME_KEY")
UMBRA = ProviderStatus(id="umbra", name="Umbra", auth_status="login_required")


async def no_login(io: LoginIO) -> Account:
    raise AssertionError("no login was requested")


class FakeRuntime:
    """A backend whose providers and login are the test's; it keeps what logins bring."""

    def __init__(
        self,
        *providers: ProviderStatus,
        login: Callable[[LoginIO], Awaitable[Account]] = no_login,
        has_login: bool = False,
    ) -> None:
        self.providers = list(providers)
        self.kept: list[Account] = []
        self.asked_for: list[tuple[str, str | None]] = []
        self.flows: list[RunningLogin] = []
        self._login = login
        self._has_login = has_login

    def auth(self) -> FakeRuntime:
        return self

    def list_providers(self) -> list[ProviderStatus]:
        return self.providers

    def start_login(self, provider_id: str, flow_id: str, account: str | None = None) -> RunningLogin:
        self.asked_for.append((provider_id, account))

        async def obtain(io: LoginIO) -> Account:
            return await self._login(io)

        async def keep(obtained: Account) -> None:
            self.kept.append(obtained)

        flow = RunningLogin(provider_id, flow_id, obtain, keep, lambda flow, error: None)
        self.flows.append(flow)
        return flow

    async def logout(self, provider_id: str, account: str | None = None) -> bool:
        self.asked_for.append((provider_id, account))
        return self._has_login


class Answers(LineReader):
    """A user who has all answers ready, and notes which were hidden."""

    def __init__(self, *lines: str) -> None:
        super().__init__()
        self._lines: Iterator[str] = iter(lines)
        self.hidden: list[bool] = []

    async def next(
        self, *, hidden: bool = False, escape: bool = False, prompt: Callable[[], None] | None = None
    ) -> str | None:
        self.hidden.append(hidden)
        if prompt is not None:
            prompt()
        return next(self._lines, None)


def account() -> Account:
    return Account(name="default", credential=ApiKey(key=Secret("k3y")), origins=("https://acme.example:443",))


async def attempt(runtime: FakeRuntime, screen: LoginOutput, account: str | None = None) -> int:
    return await log_in(cast(Backend, runtime), "acme", account, screen)


def run(runtime: FakeRuntime, *arguments: str) -> Result:
    return CliRunner().invoke(auth.command, arguments, obj=runtime, standalone_mode=False)


@pytest.mark.req("MK-AUTH-022")
def test_providers_are_what_the_runtime_says() -> None:
    assert run(FakeRuntime(ACME, UMBRA), "providers").output.splitlines() == [
        "PROVIDER  STATUS          NAME",
        "acme      authenticated   Acme Models",
        "umbra     login_required  Umbra",
    ]
    only = {"id": "umbra", "name": "Umbra", "auth_status": "login_required"}
    listed = msgspec.json.decode(run(FakeRuntime(UMBRA), "providers", "--json").output)
    assert listed == {"type": "providers", "providers": [only]}


def test_a_store_that_cannot_be_read_is_said_once_and_fails_the_command() -> None:
    broken = [ProviderStatus(id=id, name=id, auth_status="unknown", last_error="auth.json is a link.") for id in "ab"]

    for command in ("providers", "status"):
        result = run(FakeRuntime(*broken), command)
        assert (result.return_value, result.stderr) == (1, "makai: auth.json is a link.\n")


@pytest.mark.req("MK-AUTH-023")
async def test_a_login_shows_and_asks_what_the_runtime_wants(capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[str] = []

    async def login(io: LoginIO) -> Account:
        await io.auth_url("https://acme.example/log-in?x=1", "Wave at the camera.")
        await io.progress("Looking at you.")
        answers.append(await io.prompt("What is your quest?"))
        answers.append(await io.prompt("Paste your API key:"))
        return account()

    runtime, lines = FakeRuntime(login=login), Answers("the grail", "sk-1")
    code = await attempt(runtime, LoginOutput(lines, browser=False), account="work")

    shown = capsys.readouterr()
    assert (code, runtime.asked_for, runtime.kept) == (0, [("acme", "work")], [account()])
    assert (answers, lines.hidden) == (["the grail", "sk-1"], [False, True])
    assert shown.out.splitlines() == [
        "Open this page in a browser:",
        "",
        "  https://acme.example/log-in?x=1",
        "",
        "Wave at the camera.",
        "Logged in to acme as work.",
    ]
    assert shown.err.splitlines() == [
        "Waiting for you to finish there. Ctrl-C cancels.",
        "Looking at you.",
        "What is your quest? ",
        "Paste your API key: ",
    ]


@pytest.mark.req("MK-AUTH-023")
async def test_a_login_that_fails_says_why_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    async def login(io: LoginIO) -> Account:
        raise AuthRequired("Acme does not know you.", provider_id="acme", hint="Introduce yourself.")

    runtime = FakeRuntime(login=login)
    assert await attempt(runtime, LoginOutput(Answers(), browser=False)) == 1
    assert capsys.readouterr().err == "makai: Acme does not know you. Introduce yourself.\n"
    assert await attempt(runtime, JsonLoginOutput(Answers(), "acme")) == 1
    [line] = capsys.readouterr().out.splitlines()
    event = msgspec.json.decode(line)
    assert event == {
        "type": "error",
        "flow_id": runtime.flows[-1].flow_id,
        "provider": "acme",
        "provider_id": "acme",
        "message": "Acme does not know you. Introduce yourself.",
        "code": "auth_required",
    }


@pytest.mark.req("MK-AUTH-023")
async def test_input_that_ends_before_the_answer_cancels_the_login(capsys: pytest.CaptureFixture[str]) -> None:
    async def login(io: LoginIO) -> Account:
        await io.prompt("Well?")
        return account()

    runtime = FakeRuntime(login=login)
    code = await attempt(runtime, LoginOutput(Answers(), browser=False))

    assert (code, await runtime.flows[0].ended(), runtime.kept) == (1, "cancelled", [])
    assert "standard input ended without an answer" in capsys.readouterr().err


@pytest.mark.req("MK-AUTH-023")
async def test_an_interrupt_cancels_the_login(capsys: pytest.CaptureFixture[str]) -> None:
    began = asyncio.Event()

    async def login(io: LoginIO) -> Account:
        began.set()
        await asyncio.Event().wait()
        return account()

    runtime = FakeRuntime(login=login)
    running = asyncio.create_task(attempt(runtime, JsonLoginOutput(Answers(), "acme")))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert (await runtime.flows[0].ended(), runtime.kept) == ("cancelled", [])
    last = msgspec.json.decode(capsys.readouterr().out.splitlines()[-1])
    assert (last["type"], last["code"]) == ("error", "cancelled")


@pytest.mark.req("MK-AUTH-023")
def test_the_command_line_has_no_oauth_of_its_own() -> None:
    folder = Path(auth.__file__).parent
    flows = ("flows", "oauth", "exchange", "http", "loopback", "refresh")
    imported = {
        node.module
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module
    }

    assert [name for name in imported for flow in flows if name.startswith(f"makai.auth.{flow}")] == []


def test_a_page_opens_in_the_browser_of_a_desktop_only(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    monkeypatch.setattr(makai.cli.login, "open_page", opened.append)

    async def login(io: LoginIO) -> Account:
        await io.auth_url("https://acme.example/")
        return account()

    async def log_in_with(*, browser: bool) -> None:
        await attempt(FakeRuntime(login=login), LoginOutput(Answers(), browser=browser))

    asyncio.run(log_in_with(browser=False))
    assert opened == []
    asyncio.run(log_in_with(browser=True))
    assert opened == ["https://acme.example/"]


@pytest.mark.parametrize(
    ("environ", "platform", "there"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"DISPLAY": "localhost:10.0", "SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, "linux", False),
        ({}, "darwin", True),
        ({"SSH_TTY": "/dev/ttys001"}, "darwin", False),
    ],
)
def test_where_there_is_a_browser(environ: dict[str, str], platform: str, there: bool) -> None:
    assert browser.has_browser(environ, platform) is there


@pytest.mark.parametrize("url", ["file:///etc/passwd", "javascript:alert(1)", "-version", ""])
def test_only_web_pages_are_opened(url: str) -> None:
    assert browser.open_page(url) is False


def test_no_browser_of_the_current_folder_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, bin_folder = tmp_path / "project", tmp_path / "bin"
    os.mkfifo(tmp_path / "opened")
    for folder in (project, bin_folder):
        folder.mkdir()
        # The others may be tried too, when the first has ended already: they must not wait for a reader.
        for name, does in (
            ("xdg-open", f'echo "$0 $1" > {tmp_path}/opened'),
            ("xdg-settings", ""),
            ("x-www-browser", ""),
        ):
            (folder / name).write_text(f"#!/bin/sh\n{does}\n")
            (folder / name).chmod(0o755)
    monkeypatch.chdir(project)
    monkeypatch.delenv("BROWSER", raising=False)
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setenv("PATH", f"{project}:.:{bin_folder}")

    assert browser.open_page("https://acme.example/")

    assert (tmp_path / "opened").read_text() == f"{bin_folder}/xdg-open https://acme.example/\n"


def test_the_status_in_words() -> None:
    expiring = AccountStatus(
        name="work", auth_status="authenticated", is_default=True, label="a@b.c", expires_at_ms=NOW_MS + 59 * MINUTE_MS
    )
    key = AccountStatus(name="home", auth_status="authenticated", is_default=False)
    renewed = AccountStatus(name="old", auth_status="authenticated", is_default=False, expires_at_ms=NOW_MS - 1)
    over = AccountStatus(name="default", auth_status="expired", is_default=True, expires_at_ms=NOW_MS)
    several = ProviderStatus(
        id="umbra", name="", auth_status="authenticated", source="login", accounts=(expiring, key, renewed)
    )
    expired = ProviderStatus(id="dusty", name="", auth_status="expired", source="login", accounts=(over,))
    own = ProviderStatus(id="ollama", name="", auth_status="authenticated")
    stopped = ProviderStatus(id="vllm", name="", auth_status="unknown")
    left = ProviderStatus(id="nimbus", name="", auth_status="login_required")

    assert status_text([ACME, several, expired, own, stopped, left], NOW_MS) == [
        "PROVIDER     STATUS         FROM",
        "acme         authenticated  ACME_KEY",
        "umbra        authenticated  login",
        "  * work                    a@b.c, expires in 59 minutes",
        "    home",
        "    old                     renewed with the next request",
        "dusty        expired        login",
        "  * default                 expired",
        "",
        "No login needed: ollama",
        "",
        "Not running: vllm",
        "",
        "Not logged in: nimbus",
        "Log in with: makai auth login PROVIDER",
    ]


def test_the_status_of_one_provider_is_an_exit_code() -> None:
    runtime = FakeRuntime(ACME, UMBRA)

    assert [run(runtime, "status", name).return_value for name in ("acme", "umbra")] == [0, 3]
    listed = {"id": "acme", "name": "Acme Models", "auth_status": "authenticated", "source": "ACME_KEY"}
    shown = run(runtime, "status", "acme", "--output-format", "json").output
    assert msgspec.json.decode(shown) == {"providers": [{**listed, "last_error": "", "accounts": []}]}
    assert "there is no provider 'unknown'" in str(run(runtime, "status", "unknown").exception)


def test_logging_out_says_what_is_left() -> None:
    runtime = FakeRuntime(ACME, has_login=True)
    result = run(runtime, "logout", "acme", "--account", "work")

    assert (result.return_value, runtime.asked_for) == (0, [("acme", "work")])
    assert result.stdout == "Logged out of acme (work).\n"
    assert result.stderr == "You can still use acme with ACME_KEY.\n"
    none = run(FakeRuntime(ACME), "logout", "acme")
    assert (none.return_value, none.stderr) == (1, "makai: you have no login at acme\n")
