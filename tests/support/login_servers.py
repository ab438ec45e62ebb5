"""Scripted login servers: what they say, what they were sent, and a login at one of them."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from makai.auth.credentials import Account
from makai.auth.flows import LoginProvider, procedure_of
from makai.auth.http import AuthHttp
from makai.auth.runtime import AuthRuntime
from makai.auth.store import CredentialStore
from support.people import Person
from support.upstream import Request, Script, answers

DEVICE = {
    "device_code": "d",
    "user_code": "ABCD-EFGH",
    "verification_uri": "https://sso.example/device",
    "expires_in": 600,
    "interval": 2,
}
ORIGIN = "https://api.acme.example:443"


def says(body: Any, status: int = 200, **headers: str) -> Script:
    return answers(json.dumps(body).encode(), status, "application/json", **headers)


def form_of(request: Request) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(request.body.decode()))


def jwt(claims: dict[str, Any]) -> str:
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"eyJhbGciOiJub25lIn0.{middle}.signature"


@asynccontextmanager
async def auth_runtime(
    home: Path, *providers: LoginProvider, environ: dict[str, str] | None = None
) -> AsyncIterator[AuthRuntime]:
    async with AuthHttp() as http, asyncio.timeout(60):
        made = AuthRuntime(CredentialStore(home), providers, http, environ or {})
        yield made
        await made.close()


async def log_in(person: Person, provider: LoginProvider) -> Account:
    async with AuthHttp() as http, asyncio.timeout(60):
        return await procedure_of(provider)(person, provider, http)
