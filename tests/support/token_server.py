"""A token endpoint on loopback whose refresh tokens rotate, for tests and the child processes they start.

A refresh token is good for one use. A second use ends the whole login, as RFC 9700 section 4.14.2 recommends: every
later request is answered `invalid_grant`. A *forgiving* server repeats its answer instead, until the token it
gave is used.

`refresh_procedure` is the other side: small, without an HTTP library, so that a child process starts fast and takes the
same steps each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from makai.auth.credentials import DEFAULT_ACCOUNT, Account, OAuthToken
from makai.auth.http import AuthHttp
from makai.core.errors import InvalidGrant, ProviderError
from makai.core.secret import Secret

PROVIDER = "test-server"
DEADLINE_S = 60.0


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes


INVALID_GRANT = Answer(400, b'{"error":"invalid_grant"}')


class TokenServer:
    """One login and its tokens, `access-N` and `refresh-N`."""

    def __init__(self, latency_s: Callable[[], float], *, forgiving: bool) -> None:
        self.url = ""
        self.issued = 0
        """How many times a token was issued, the first login included."""
        self.answered = 0
        self.revoked = False
        self.answer_in_place: list[Answer] = []
        """What to answer to the next requests, whatever they ask."""
        self._latency_s = latency_s
        self._forgiving = forgiving

    def login(self, *, expires_at_ms: int) -> Account:
        self.revoked = False
        self.issued += 1
        return Account(
            name=DEFAULT_ACCOUNT,
            origins=("https://api.test:443",),
            credential=OAuthToken(
                access=Secret(f"access-{self.issued}"),
                refresh=Secret(f"refresh-{self.issued}"),
                expires_at_ms=expires_at_ms,
                token_url=self.url,
                client_id="a-client",
            ),
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request. The token rotates before the answer is on its way, as at any real server."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
                form = parse_qs((await reader.readexactly(length)).decode())
                await asyncio.sleep(self._latency_s() / 2)
                given = self.answer_in_place
                answer = given.pop(0) if given else self._rotated(form["refresh_token"][0])
                self.answered += 1
                await asyncio.sleep(self._latency_s() / 2)
                writer.write(
                    b"HTTP/1.1 %d Answer\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
                    b"Connection: close\r\n\r\n%b" % (answer.status, len(answer.body), answer.body)
                )
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client was killed
        finally:
            writer.close()

    def _rotated(self, refresh: str) -> Answer:
        repeated = refresh == f"refresh-{self.issued - 1}" and self._forgiving
        if self.revoked or (refresh != f"refresh-{self.issued}" and not repeated):
            self.revoked = True
            return INVALID_GRANT
        if not repeated:
            self.issued += 1
        tokens = {"access_token": f"access-{self.issued}", "refresh_token": f"refresh-{self.issued}"}
        return Answer(200, msgspec.json.encode({**tokens, "expires_in": 3600}))


@asynccontextmanager
async def token_server(
    latency_s: Callable[[], float] = lambda: 0.0, *, forgiving: bool = False
) -> AsyncIterator[TokenServer]:
    state = TokenServer(latency_s, forgiving=forgiving)
    server = await asyncio.start_server(state.serve, "127.0.0.1", 0)
    async with server:
        state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/token"
        yield state


async def refresh_procedure(token: OAuthToken, http: AuthHttp) -> OAuthToken:
    """Ask a `TokenServer` for the next token."""
    assert token.refresh is not None
    form = {"grant_type": "refresh_token", "refresh_token": token.refresh.reveal(), "client_id": token.client_id}
    answer = await _post(token.token_url, form)
    if answer == INVALID_GRANT:
        raise InvalidGrant("The server refused the refresh token.", provider_id=PROVIDER)
    if answer.status != 200:
        raise ProviderError(f"The server answered {answer.status}.", status=answer.status)
    fields = msgspec.json.decode(answer.body, type=dict[str, str | int])
    return msgspec.structs.replace(
        token,
        access=Secret(str(fields["access_token"])),
        refresh=Secret(str(fields["refresh_token"])),
        expires_at_ms=FAR_FUTURE_MS,
    )


FAR_FUTURE_MS = 4_000_000_000_000


async def _post(url: str, form: dict[str, str]) -> Answer:
    address = urlsplit(url)
    body = urlencode(form).encode()
    try:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            writer.write(
                b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
                % (address.path.encode(), len(body), body)
            )
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            answer = await reader.read()
        finally:
            writer.close()
    except (OSError, asyncio.IncompleteReadError) as error:
        raise ProviderError(f"No answer ({type(error).__name__}).") from None
    return Answer(int(head.split()[1]), answer)
