"""`makai auth`: logging in and out, and what each provider is used with.

Providers and logins go through the SDK's client, and so through the auth protocol; logging out and account details are
not part of that protocol and are asked of the runtime. Tests pass another runtime as click's `obj`.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from makai.cli import console

if TYPE_CHECKING:
    from makai.auth.runtime import AccountStatus, ProviderStatus
    from makai.auth.store import AccountStore
    from makai.client.types import ProviderAuthInfo
    from makai.server.backend import Backend


_ACCOUNT = click.option("--account", metavar="NAME", help="Which login, if you have several.")


def _with_backend(command: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., int]:
    """Runs the command with the runtime that click's `obj` is, or with one that is closed afterwards."""

    @click.pass_obj
    @functools.wraps(command)
    def with_backend(given: Backend | None, /, **options: Any) -> int:
        async def run() -> int:
            if given is not None:
                return await command(given, **options)
            from makai.providers.runtime import ModelRuntime

            async with ModelRuntime() as runtime:
                return await command(runtime, **options)

        return console.run_async(run())

    return with_backend


@console.epilog("""
Examples:
  makai auth login anthropic
  makai auth login openai --account work
  makai auth status
  makai auth logout openai

Logins are kept in MAKAI_HOME/auth.json (~/.makai), readable only by you, or in your keyring (`makai auth store`).
Machines that share a store in PostgreSQL share their logins there, encrypted. Every makai process uses them at once.
""")
@click.group("auth")
def command() -> None:
    """Log in to providers, log out, and show logins."""


@console.epilog("""
Examples:
  makai auth providers
  makai auth providers --json | jq -r '.providers[] | select(.auth_status == "login_required").id'
""")
@command.command("providers")
@console.output_format
@_with_backend
async def providers_command(backend: Backend, as_json: bool) -> int:
    """List providers and whether you need to log in."""
    from makai.client.connect import connect

    async with connect(backend=backend) as client:
        providers = await client.auth.list_providers()
    lines = providers_text(providers, paint=console.painter(sys.stdout))
    console.say_result({"type": "providers", "providers": providers}, lines, as_json=as_json)
    return _complain(errors_of(providers))


@console.epilog("""
Examples:
  makai auth login anthropic                    asks for an API key and does not show it
  makai auth login openai-codex                 opens the browser
  makai auth login openrouter --no-browser      prints the address to open on any machine
  makai auth login openai --account work        a second login, which becomes the default
  echo "$KEY" | makai auth login groq           answers from standard input, one per line
  makai auth login openai-codex --json          one line of JSON per event, for programs
  makai auth login --provider groq --json       the same, as Makai's SDK calls it

Exit codes: 0 logged in, 1 failed, 2 usage, 130 interrupted (the login is cancelled).
""")
@command.command("login")
@click.argument("provider", required=False)
@click.option("--provider", "named", metavar="PROVIDER", help="The same as the argument PROVIDER.")
@_ACCOUNT
@click.option("--no-browser", is_flag=True, help="Only print the address to open.")
@console.output_format
@_with_backend
async def login_command(
    backend: Backend, provider: str | None, named: str | None, account: str | None, no_browser: bool, as_json: bool
) -> int:
    """Log in to PROVIDER (`makai auth providers` lists them).

    Opens your browser, or prints the address to open over SSH. Nothing is stored unless PROVIDER accepts the login.
    """
    if (provider is None) == (named is None):
        raise click.UsageError("name one provider: `makai auth providers` lists them")
    from makai.cli.browser import has_browser
    from makai.cli.line_reader import LineReader
    from makai.cli.login import JsonLoginOutput, LoginOutput, log_in

    browser = not no_browser and sys.stdout.isatty() and has_browser(os.environ)
    wanted = provider or named or ""
    screen = JsonLoginOutput(LineReader(), wanted) if as_json else LoginOutput(LineReader(), browser=browser)
    code = await log_in(backend, wanted, account, screen)
    is_known = any(one.id == wanted for one in backend.auth().list_providers())
    return code if is_known else console.EXIT_USAGE


@console.epilog("""
Examples:
  makai auth logout openai
  makai auth logout openai --account work
""")
@command.command("logout")
@click.argument("provider")
@_ACCOUNT
@_with_backend
async def logout_command(backend: Backend, provider: str, account: str | None) -> int:
    """Delete a login, and revoke it at PROVIDER where that is possible."""
    auth = backend.auth()
    if not await auth.logout(provider, account):
        console.note(f"makai: you have no login{f' {account!r}' if account else ''} at {provider}", fg="red")
        return console.EXIT_FAILED
    console.tell(f"Logged out of {provider}{f' ({account})' if account else ''}.")
    left = next((one for one in auth.list_providers() if one.id == provider), None)
    if left is not None and left.source:
        default = next((one.name for one in left.accounts if one.is_default), "")
        where = f"the login {default!r}" if left.accounts else left.source
        console.note(f"You can still use {provider} with {where}.")
    return 0


@console.epilog("""
Examples:
  makai auth status
  makai auth status openai && makai run -m openai/gpt-6.1-sol "Hi"

* marks the default account. Tokens and keys are never shown, not even in part.
With PROVIDER the exit code is 3 when a login is needed.
""")
@command.command("status")
@click.argument("provider", required=False)
@console.output_format
@_with_backend
async def status_command(backend: Backend, provider: str | None, as_json: bool) -> int:
    """Show which login or variable each provider uses, and when it expires."""
    found = [one for one in backend.auth().list_providers() if provider in (None, one.id)]
    if not found:
        raise click.UsageError(f"there is no provider {provider!r}: `makai auth providers` lists them")
    lines = status_text(found, time.time_ns() // 1_000_000, paint=console.painter(sys.stdout))
    console.say_result({"providers": found}, lines, as_json=as_json)
    if code := _complain(errors_of(found)):
        return code
    return console.EXIT_LOGIN_NEEDED if provider and found[0].auth_status not in USABLE else 0


@console.epilog("""
Example:
  makai auth default openai work
""")
@command.command("default")
@click.argument("provider")
@click.argument("account")
def default_command(provider: str, account: str) -> None:
    """Make ACCOUNT the default login of PROVIDER."""
    _account_store().set_default(provider, account)
    console.tell(f"{provider} now uses {account} by default.")


@console.epilog("""
Examples:
  makai auth store            show where your logins are kept
  makai auth store keyring    move them to the keyring of your system (pip install 'makai[keyring]')
  makai auth store file       move them back to MAKAI_HOME/auth.json
""")
@command.command("store")
@click.argument("place", required=False, type=click.Choice(["file", "keyring"]))
def store_command(place: Literal["file", "keyring"] | None) -> None:
    """Show or change where your logins are kept."""
    from makai.auth.store import CredentialStore
    from makai.core.errors import InvalidRequest

    store = _account_store()
    if not isinstance(store, CredentialStore):
        if place is not None:
            hint = "Logins are kept there while url in [store] of config.toml names a database."
            raise InvalidRequest("Your logins are shared through the database.", hint=hint)
        console.tell("Your logins are kept in the database of [store] in config.toml, encrypted with the cluster key.")
        return
    if place is not None:
        store.move(place)
    where = {"file": "the file auth.json, readable only by you", "keyring": "the keyring of your system"}
    console.tell(f"Your logins are kept in {where[store.place]}.")


@console.epilog("""
Examples:
  makai auth share                copy the logins of this machine to the database
  makai auth share --replace      also where the database has a login of the same name

Afterwards log in on any machine: it counts on all of them. The file auth.json stays as it is. Remove it when you do not
go back to it: a login that is refreshed in one place may end in the other.
""")
@command.command("share")
@click.option("--replace", is_flag=True, help="Replace logins of the same name.")
@console.output_format
def share_command(replace: bool, as_json: bool) -> None:
    """Copy the logins of this machine to the database that machines share."""
    from makai.auth.store import CredentialStore
    from makai.core.errors import InvalidRequest
    from makai.core.home import home_directory

    shared = _account_store()
    if isinstance(shared, CredentialStore):
        hint = "Set url in [store] of config.toml to the database, and the cluster key: docs/configuration.md."
        raise InvalidRequest("This machine does not share its logins.", hint=hint)
    copied, kept = shared.add_missing(CredentialStore(home_directory(os.environ)).snapshot(), replace=replace)
    lines = [f"Copied {_named(copied)}." if copied else "Copied nothing."]
    if kept:
        lines.append(f"There already: {_named(kept)}. Use --replace to copy them over.")
    result = {"copied": [list(one) for one in copied], "kept": [list(one) for one in kept]}
    console.say_result(result, lines, as_json=as_json)


def _account_store() -> AccountStore:
    from makai.auth.opening import open_account_store
    from makai.core.home import home_directory
    from makai.providers.logins import CONFIG_FILE, read_config

    home = home_directory(os.environ)
    return open_account_store(home, read_config(home / CONFIG_FILE), os.environ)


def _named(logins: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{provider} ({account})" for provider, account in logins)


def _complain(errors: list[str]) -> int:
    from makai.core.errors import MakaiError

    for error in errors:
        console.explain(MakaiError(error))
    return console.EXIT_FAILED if errors else 0


USABLE: Final = frozenset({"authenticated", "refreshing"})
"""Statuses under which a request would be sent."""

_UNITS: Final = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


def providers_text(providers: Sequence[ProviderAuthInfo], *, paint: console.Paint = console.plain) -> list[str]:
    """One line per provider; its first word is what `makai auth login` takes."""
    rows = [(one.id, str(one.auth_status), one.name) for one in providers]
    return _table([("PROVIDER", "STATUS", "NAME"), *rows], paint)


def status_text(providers: Sequence[ProviderStatus], now_ms: int, *, paint: console.Paint = console.plain) -> list[str]:
    """Providers with a credential or a problem, with their accounts; then those without a login."""
    free = [one for one in providers if one.auth_status == "authenticated" and not one.source]
    left = [one for one in providers if one.auth_status == "login_required"]
    stopped = [one for one in providers if one.auth_status == "unknown" and not (one.source or one.last_error)]
    shown = [one for one in providers if one not in (*free, *left, *stopped)]
    rows: list[tuple[str, ...]] = [("PROVIDER", "STATUS", "FROM")]
    for one in shown:
        rows.append((one.id, one.auth_status, one.source))
        for account in one.accounts:
            details = ", ".join(filter(None, (account.label, _lifetime(account, now_ms))))
            rows.append((f"  {'*' if account.is_default else ' '} {account.name}", "", details))
    lines = _table(rows, paint) if shown else ["You have no login, and no API key is set."]
    if free:
        lines += ["", f"No login needed: {', '.join(one.id for one in free)}"]
    if stopped:
        lines += ["", f"Not running: {', '.join(one.id for one in stopped)}"]
    if left:
        names = ", ".join(one.id for one in left)
        lines += ["", f"Not logged in: {names}", "Log in with: makai auth login PROVIDER"]
    return lines


def errors_of(providers: Sequence[ProviderStatus] | Sequence[ProviderAuthInfo]) -> list[str]:
    """Each problem once: a store that cannot be read is a problem of every provider."""
    return list(dict.fromkeys(one.last_error for one in providers if one.last_error))


def _lifetime(account: AccountStatus, now_ms: int) -> str:
    if account.auth_status == "refreshing":
        return "being renewed"
    if account.expires_at_ms is None:
        return ""
    left = account.expires_at_ms - now_ms
    if left > 0:
        return f"expires in {_duration(left)}"
    return "expired" if account.auth_status == "expired" else "renewed with the next request"


def _duration(milliseconds: int) -> str:
    for unit, length in _UNITS:
        if count := milliseconds // length:
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return "a moment"


def _table(rows: Sequence[tuple[str, ...]], paint: console.Paint) -> list[str]:
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    header, *body = ((row[0].ljust(first), row[1].ljust(second), row[2]) for row in rows)
    return [
        paint("  ".join(header), dim=True),
        *(f"{name}  {_coloured(status, paint)}  {rest}".rstrip() for name, status, rest in body),
    ]


def _coloured(status: str, paint: console.Paint) -> str:
    return paint(status, fg="green" if status.strip() in USABLE else "yellow") if status.strip() else status
