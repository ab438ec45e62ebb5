"""Who is logged in, in words. Pure.

In: what the auth runtime says of providers and accounts, and the time. Out: lines for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from makai.cli.model_table import Paint, plain

if TYPE_CHECKING:
    from makai.auth.runtime import AccountStatus, ProviderStatus
    from makai.client.types import ProviderAuthInfo

USABLE: Final = frozenset({"authenticated", "refreshing"})
"""Statuses under which a request would be sent."""

_UNITS: Final = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


def providers_text(providers: Sequence[ProviderAuthInfo], *, paint: Paint = plain) -> list[str]:
    """One line per provider; its first word is what `makai auth login` takes."""
    rows = [(one.id, str(one.auth_status), one.name) for one in providers]
    return _table([("PROVIDER", "STATUS", "NAME"), *rows], paint)


def status_text(providers: Sequence[ProviderStatus], now_ms: int, *, paint: Paint = plain) -> list[str]:
    """Providers with a credential or a problem, their accounts below them, and who is left."""
    free = [one for one in providers if one.auth_status == "authenticated" and not one.source]
    left = [one for one in providers if one.auth_status == "login_required"]
    shown = [one for one in providers if one not in free and one not in left]
    rows: list[tuple[str, ...]] = [("PROVIDER", "STATUS", "FROM")]
    for one in shown:
        rows.append((one.id, one.auth_status, one.source))
        rows += [(f"  {_mark(account)} {account.name}", "", _account(account, now_ms)) for account in one.accounts]
    lines = _table(rows, paint) if shown else ["No login, and no API key is set."]
    if free:
        lines += ["", f"No login needed: {_named(free)}"]
    if left:
        lines += ["", f"Not logged in: {_named(left)}", "Log in with: makai auth login PROVIDER"]
    return lines


def errors_of(providers: Sequence[ProviderStatus] | Sequence[ProviderAuthInfo]) -> list[str]:
    """What went wrong, each thing once: a store that cannot be read is every provider's problem."""
    return list(dict.fromkeys(one.last_error for one in providers if one.last_error))


def _named(providers: Sequence[ProviderStatus]) -> str:
    return ", ".join(one.id for one in providers)


def _mark(account: AccountStatus) -> str:
    return "*" if account.is_default else " "


def _account(account: AccountStatus, now_ms: int) -> str:
    return ", ".join(part for part in (account.label, _lifetime(account, now_ms)) if part)


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


def _table(rows: Sequence[tuple[str, ...]], paint: Paint) -> list[str]:
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    header, *body = ((row[0].ljust(first), row[1].ljust(second), row[2]) for row in rows)
    return [
        paint("  ".join(header), dim=True),
        *(f"{name}  {_coloured(status, paint)}  {rest}".rstrip() for name, status, rest in body),
    ]


def _coloured(status: str, paint: Paint) -> str:
    return paint(status, fg="green" if status.strip() in USABLE else "yellow") if status.strip() else status
