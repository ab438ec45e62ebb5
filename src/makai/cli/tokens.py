"""`makai tokens`: create, list and revoke the tokens with which programs and people use the server. The secret of a
token is made here, shown once and never sent to the process that owns the store, which gets its hash."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from makai.cli.console import epilog, note, output_format, painter, run_async, say_result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from makai.core.access import TokenScope
    from makai.core.secret import Secret
    from makai.sessions.log.base import StoredToken

SCOPES = ("observe", "prompt", "approve", "admin")
"""`core.access.SCOPES`, written out so that help needs no import of it."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LIST_HINT = "List them: `makai tokens list --all`."


class Lifetime(click.ParamType[int]):
    """A time such as `30d`, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"([1-9][0-9]{0,8})([smhdw])", str(value))
        if found is None:
            self.fail(f"{value!r} is not a time. Write a number and s, m, h, d or w, such as 30d.", param, ctx)
        return int(found[1]) * _UNITS[found[2]]


@epilog("""
Examples:
  makai tokens create --name ci                      a program that may prompt, for 30 days
  makai tokens create --name board --scope observe   a dashboard that may look at everything
  makai tokens list
  makai tokens revoke ci
  makai tokens link                                  a link to the web page for someone who may only watch

Scopes, each with what the ones before it allow:
  observe   read, follow, list and export sessions
  prompt    create sessions, send input, stop its own runs; never decide, never make the agent ask less
  approve   decide approvals, choose modes and sandboxes, revoke saved permissions
  admin     logins, tokens, trusted folders, delete sessions
The token in MAKAI_HOME/server-token is an admin. Commands in your terminal need no token.
""")
@click.group("tokens")
def command() -> None:
    """Create, list and revoke tokens for programs and people that use your server."""


@epilog("""
Examples:
  makai tokens create --name ci
  makai tokens create --name ana --scope approve --expires 8h
  export MAKAI_TOKEN=$(makai tokens create --name ci --scope prompt --expires 30d)

The token is printed once, to standard output. makai keeps only its hash.
""")
@command.command("create")
@click.option("--name", required=True, help="What the token is for; the session log names it.")
@click.option("--scope", type=click.Choice(SCOPES), default="prompt", show_default=True)
@click.option("--expires", "lasts_s", type=Lifetime(), default="30d", show_default=True, help="At most a year.")
@click.option("--session", metavar="ID", help="Only for this session; the beginning of its id is enough.")
@output_format
def create_command(name: str, scope: TokenScope, lasts_s: int, session: str | None, as_json: bool) -> None:
    """Create a token and print it."""
    stored, token = run_async(_create(name, scope, lasts_s, session))
    say_result(_shown(stored) | {"token": token.reveal()}, [token.reveal()], as_json=as_json)
    note(f"Created {_described(stored)}. It is not shown again; revoke it with `makai tokens revoke {name}`.", dim=True)


@epilog("""
Examples:
  makai tokens list
  makai tokens list --all --json
""")
@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also tokens that expired or were revoked.")
@output_format
def list_command(everything: bool, as_json: bool) -> None:
    """List tokens. Their secrets are not stored."""
    now_ms = time.time_ns() // 1_000_000
    found = [token for token in run_async(_list()) if everything or token.is_live(now_ms)]
    if not found and not as_json:
        note("There are no tokens. Create one: `makai tokens create --name ci`.")
        return
    lines = _table(found, now_ms)
    lines[0] = painter(sys.stdout)(lines[0], dim=True)
    say_result({"tokens": [_shown(token) for token in found]}, lines, as_json=as_json)


@epilog("""
Examples:
  makai tokens revoke ci
  makai tokens revoke 3f2c9a1b77ab

Requests with the token are refused from then on, and its open connections are closed within seconds.
""")
@command.command("revoke")
@click.argument("tokens", metavar="NAME|ID...", nargs=-1, required=True)
@output_format
def revoke_command(tokens: tuple[str, ...], as_json: bool) -> None:
    """Revoke tokens by name or id."""
    revoked = run_async(_revoke(tokens))
    shown = [{"name": token.name, "token_id": token.token_id} for token in revoked]
    say_result({"revoked": shown}, [f"Revoked {_described(token)}" for token in revoked], as_json=as_json)


@epilog("""
Examples:
  makai tokens link                                  watch everything, for an hour
  makai tokens link --session 3f2c9a1b               watch one session and nothing else
  makai tokens link --scope approve --expires 8h     also answer questions, on your phone for example

The token is behind the #, which browsers do not send and the page removes at once.
Anyone who has the link can use it until it ends.
""")
@command.command("link")
@click.option("--scope", type=click.Choice(SCOPES[:3]), default="observe", show_default=True)
@click.option("--expires", "lasts_s", type=Lifetime(), default="1h", show_default=True)
@click.option("--session", metavar="ID", help="Only for this session; the beginning of its id is enough.")
@click.option("--name", help="What the session log calls it.  [default: link-…]")
@output_format
def link_command(scope: TokenScope, lasts_s: int, session: str | None, name: str | None, as_json: bool) -> None:
    """Print a link that opens the web page of the running server with a token of its own."""
    import os

    from makai.core.errors import MakaiError
    from makai.core.home import home_directory
    from makai.server.announcement import listening

    server = listening(home_directory(os.environ))
    if server is None:
        raise MakaiError("no server is running.", hint="Start one: `makai serve`.")
    stored, token = run_async(_create(name, scope, lasts_s, session))
    link = f"{server.address}/#token={token.reveal()}"
    say_result(_shown(stored) | {"link": link}, [link], as_json=as_json)
    note(f"The link opens {_described(stored)}. Revoke it with `makai tokens revoke {stored.name}`.", dim=True)


async def _create(name: str | None, scope: TokenScope, lasts_s: int, session: str | None) -> tuple[StoredToken, Secret]:
    """Without a name, one is made of the id."""
    from makai.cli.session_access import open_sessions
    from makai.cli.session_selection import find_session
    from makai.core.access import new_token, token_digest
    from makai.sessions.requests import CreateToken

    token_id, token = new_token()
    async with open_sessions() as sessions:
        only = None if session is None else (await find_session(sessions, session)).session_id
        wanted = CreateToken(
            token_id=token_id,
            name=f"link-{token_id[:6]}" if name is None else name,
            scope=scope,
            digest=token_digest(token),
            expires_ms=time.time_ns() // 1_000_000 + lasts_s * 1000,
            session_id=only,
        )
        return await sessions.dispatch(wanted), token


async def _list() -> list[StoredToken]:
    from makai.cli.session_access import open_sessions
    from makai.sessions.requests import ListTokens

    async with open_sessions() as sessions:
        return await sessions.dispatch(ListTokens())


async def _revoke(given: tuple[str, ...]) -> list[StoredToken]:
    """All tokens are found before one is revoked."""
    from makai.cli.session_access import open_sessions
    from makai.core.errors import InvalidRequest
    from makai.sessions.requests import ListTokens, RevokeToken

    async with open_sessions() as sessions:
        known = await sessions.dispatch(ListTokens())
        live = [token for token in known if token.revoked_ms is None]
        chosen: dict[str, StoredToken] = {}
        for word in given:
            # A name may be that of an expired token as well: the newest one is meant.
            found = [token for token in live if word in (token.token_id, token.name)]
            if not found and any(word in (token.token_id, token.name) for token in known):
                raise InvalidRequest(f"the token {word!r} is revoked already.", hint=_LIST_HINT)
            if not found:
                raise InvalidRequest(f"there is no token {word!r}.", hint=_LIST_HINT)
            chosen[found[-1].token_id] = found[-1]
        for token_id in chosen:
            await sessions.dispatch(RevokeToken(token_id))
    return list(chosen.values())


def _shown(token: StoredToken) -> dict[str, object]:
    """Everything but the hash, which is of no use to a reader."""
    names = ("token_id", "name", "scope", "created_ms", "expires_ms", "session_id", "used_ms", "revoked_ms")
    return {name: getattr(token, name) for name in names}


def _described(token: StoredToken) -> str:
    left = span(token.expires_ms - time.time_ns() // 1_000_000)
    only = f" for session {token.session_id[:8]}" if token.session_id else ""
    return f"{token.name} ({token.scope}{only}, {left})"


def span(ms: int) -> str:
    """The time until a token expires, rounded to its largest unit."""
    if ms <= 0:
        return "expired"
    units = (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000))
    number, unit = next(((round(ms / size), unit) for unit, size in units if ms >= 0.99 * size), (0, ""))
    return f"expires in {number} {'day' if (number, unit) == (1, 'days') else unit}" if unit else "expires in a minute"


def _table(tokens: Sequence[StoredToken], now_ms: int) -> list[str]:
    from makai.cli.session_list import age

    rows = [("NAME", "ID", "SCOPE", "CREATED", "LAST USED", "STATE")]
    for token in tokens:
        used = "never" if token.used_ms is None else age(now_ms - token.used_ms)
        state = "revoked" if token.revoked_ms is not None else span(token.expires_ms - now_ms)
        scope = token.scope if token.session_id is None else f"{token.scope} {token.session_id[:8]}"
        rows.append((token.name, token.token_id, scope, age(now_ms - token.created_ms), used, state))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
