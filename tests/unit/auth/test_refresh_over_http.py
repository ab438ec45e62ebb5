"""The standard refresh procedure and the refresher together, against everything a token endpoint may answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.token_server import PROVIDER, Answer, token_server

from makai.auth.credentials import OAuthToken
from makai.auth.http import AuthHttp
from makai.auth.refresh import REFRESHERS, Refresher
from makai.auth.store import CredentialStore
from makai.core.errors import AuthError, AuthExpired, AuthRefreshFailed
from makai.core.secret import Secret

ANSWERS: dict[str, tuple[Answer, type[AuthError]]] = {
    "invalid_grant": (Answer(400, b'{"error":"invalid_grant"}'), AuthExpired),
    "another refusal": (Answer(400, b'{"error":"invalid_client"}'), AuthRefreshFailed),
    "401": (Answer(401, b'{"error":"unauthorized_client"}'), AuthRefreshFailed),
    "401 without a word": (Answer(401, b""), AuthRefreshFailed),
    "429": (Answer(429, b'{"error":"slow_down"}'), AuthRefreshFailed),
    "500": (Answer(500, b"oops"), AuthRefreshFailed),
    "500 that says invalid_grant": (Answer(500, b'{"error":"invalid_grant"}'), AuthRefreshFailed),
    "503": (Answer(503, b'{"error":"temporarily_unavailable"}'), AuthRefreshFailed),
    "a page of the proxy": (Answer(502, b"<html>Bad gateway</html>"), AuthRefreshFailed),
    "a page of the hotel": (Answer(200, b"<html>Welcome</html>"), AuthRefreshFailed),
    "a redirect": (Answer(302, b""), AuthRefreshFailed),
    "nothing": (Answer(200, b""), AuthRefreshFailed),
    "an empty object": (Answer(200, b"{}"), AuthRefreshFailed),
    "a number for a token": (Answer(200, b'{"access_token":5}'), AuthRefreshFailed),
    "an unknown kind of token": (Answer(200, b'{"access_token":"a","token_type":"mac"}'), AuthRefreshFailed),
    "a flood": (Answer(200, b'{"access_token":"' + b"a" * 300_000 + b'"}'), AuthRefreshFailed),
}


@pytest.mark.proof("O3")
@pytest.mark.parametrize(("answer", "expected"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_only_invalid_grant_is_final_and_none_is_lost(
    home: Path, answer: Answer, expected: type[AuthError]
) -> None:
    store = CredentialStore(home)
    async with token_server() as server, AuthHttp() as http:
        store.save(PROVIDER, server.login(expires_at_ms=1))
        before = store.snapshot()
        source = Refresher(store, http, REFRESHERS)

        server.answer_in_place = [answer] * 2  # an answer that never came whole is asked for once more
        with pytest.raises(expected) as caught:
            await source.fresh(PROVIDER)
        assert store.snapshot() is before
        assert "refresh-1" not in str(caught.value)

        server.answer_in_place = []
        if expected is AuthExpired:
            with pytest.raises(AuthExpired):
                await source.fresh(PROVIDER)
        else:
            await source.fresh(PROVIDER)
            assert (server.issued, server.revoked) == (2, False)


async def test_an_answer_without_a_refresh_token_leaves_the_old_one_in_use(home: Path) -> None:
    store = CredentialStore(home)
    async with token_server() as server, AuthHttp() as http:
        store.save(PROVIDER, server.login(expires_at_ms=1))
        server.answer_in_place = [Answer(200, b'{"access_token":"next","expires_in":3600}')]

        credential = (await Refresher(store, http, REFRESHERS).fresh(PROVIDER)).credential

    assert isinstance(credential, OAuthToken)
    assert (credential.access, credential.refresh) == (Secret("next"), Secret("refresh-1"))
