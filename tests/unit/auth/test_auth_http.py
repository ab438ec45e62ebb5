"""The HTTP client of logins: what it sends, what it refuses, how it fails."""

from __future__ import annotations

import asyncio

import pytest
from support.login_servers import says
from support.upstream import Request, answers, refuses, upstream

from makai.auth.credentials import proxy_for
from makai.auth.http import MAX_BODY, AuthHttp, HttpAnswer
from makai.core.errors import InvalidRequest, ProviderError
from makai.core.secret import Secret


async def test_forms_json_and_headers_reveal_secrets_only_on_the_wire() -> None:
    async with upstream(says({"a": 1}, 201)) as server, AuthHttp() as http:
        answer = await http.post_form(f"{server.url}/form", {"x": Secret("1 2"), "y": "&"})
        await http.post_json(f"{server.url}/json", {"x": Secret("1"), "n": {"deep": True}})
        await http.get(f"{server.url}/get")

    form, document, plain = server.requests
    assert (answer.status, answer.body, answer.headers["content-type"]) == (201, b'{"a": 1}', "application/json")
    assert repr(answer) == "HttpAnswer(status=201)"
    assert (form.method, form.path, form.body) == ("POST", "/form", b"x=1+2&y=%26")
    assert form.headers["content-type"] == "application/x-www-form-urlencoded"
    assert (document.json(), document.headers["content-type"]) == ({"x": "1", "n": {"deep": True}}, "application/json")
    assert (plain.method, plain.body, plain.headers["accept"]) == ("GET", b"", "application/json")
    assert plain.headers["user-agent"].startswith("makai/")


async def test_redirects_are_answers_and_cookies_are_forgotten() -> None:
    """A redirect would carry the form's secrets to wherever it leads."""
    async with upstream(refuses(307, Location="/elsewhere", Set_Cookie="a=b")) as server, AuthHttp() as http:
        assert (await http.post_form(server.url, {"x": Secret("s")})).status == 307
        await http.get(server.url)
    assert [request.path for request in server.requests] == ["/", "/"]
    assert "cookie" not in server.requests[1].headers


@pytest.mark.parametrize(("length", "fits"), [(MAX_BODY, True), (MAX_BODY + 1, False)])
async def test_a_body_has_a_bound(length: int, fits: bool) -> None:
    async with upstream(answers(b"x" * length)) as server, AuthHttp() as http:
        if fits:
            assert len((await http.get(server.url)).body) == length
        else:
            with pytest.raises(ProviderError, match="longer than"):
                await http.get(server.url)


async def test_a_silent_server_is_given_up_after_the_deadline() -> None:
    async def silent(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with upstream(silent) as server, AuthHttp() as http:
        with pytest.raises(ProviderError, match=f"Cannot reach {server.url}: no answer within 0.05 s") as caught:
            await http.get(f"{server.url}/path?with=secret", deadline_s=0.05)
        assert caught.value.status is None, "no answer came: a refresh may be tried once more"
        assert "with=secret" not in str(caught.value)


async def test_an_address_without_tls_is_refused_before_anything_is_sent() -> None:
    async with AuthHttp() as http:
        with pytest.raises(InvalidRequest, match="unencrypted"):
            await http.get("http://sso.example/")


def test_the_environments_proxy_is_used_but_never_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "inside.example")

    assert proxy_for("https://sso.example/token") == "http://proxy.example:3128"
    assert [
        proxy_for(url)
        for url in ("https://inside.example/", "http://127.0.0.1:1/", "http://localhost/", "http://[::1]/")
    ] == [None] * 4


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({"HTTPS_PROXY": "http://callers.example:1"}, "http://callers.example:1"),
        ({"HTTPS_PROXY": "http://upper.example:1", "https_proxy": "http://lower.example:1"}, "http://lower.example:1"),
        ({"HTTPS_PROXY": "http://callers.example:1", "NO_PROXY": "sso.example"}, None),
        ({"HTTPS_PROXY": "http://callers.example:1", "no_proxy": "*"}, None),
        ({"HTTP_PROXY": "http://callers.example:1", "https_proxy": ""}, None),
        ({}, None),
    ],
)
def test_the_proxy_of_a_caller_replaces_that_of_this_process(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], proxy: str | None
) -> None:
    monkeypatch.setenv("https_proxy", "http://owners.example:3128")

    assert proxy_for("https://sso.example/token", environ) == proxy
    assert proxy_for("https://127.0.0.1/", environ) is None


async def test_a_closed_client_opens_again() -> None:
    async with upstream(says({})) as server:
        http = AuthHttp()
        assert isinstance(await http.get(server.url), HttpAnswer)
        await http.close()
        assert isinstance(await http.get(server.url), HttpAnswer)
        await http.close()
        await http.close()
