"""The tool fetch: the public internet and nothing else; pages come from loopback, which tests allow by name."""

from __future__ import annotations

import asyncio
import base64
import gzip
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp import web
from support.orphan_trials import Silent, text_of

from makai.core.content import Image
from makai.core.errors import InvalidRequest
from makai.tools.base import CallDescription, ToolOutcome, text_outcome
from makai.tools.fetch import MAX_BYTES, FetchTool
from makai.tools.html_text import html_to_text

PNG = b"\x89PNG\r\n\x1a\n"
PAGES = {
    "/page": (b"<title>T</title><h1>Hi</h1><script>x</script><p>a <b>b</b>", {"Content-Type": "text/html"}),
    "/image": (PNG, {"Content-Type": "image/png"}),
    "/binary": (b"\0", {"Content-Type": "application/zip"}),
    "/latin": (b"caf\xe9", {"Content-Type": "text/plain; charset=latin-1"}),
    "/odd-charset": (b"text", {"Content-Type": "text/plain; charset=klingon"}),
    "/bomb": (gzip.compress(b"x" * (4 * MAX_BYTES)), {"Content-Type": "text/plain", "Content-Encoding": "gzip"}),
}
REDIRECTS = {
    "/once": "/json",
    "/loop": "/loop",
    "/away": "http://localhost:{port}/json",
    "/metadata": "http://169.254.169.254/latest/meta-data/",
    "/file": "file:///etc/passwd",
}
REFUSED = "Models may reach this machine and local networks only where the user allowed it."


class Site:
    """A server on loopback that remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path == "/slow":
            await asyncio.sleep(60)
        if request.path == "/json":
            return web.json_response({"agent": request.headers["User-Agent"].split("/")[0]})
        if target := REDIRECTS.get(request.path):
            raise web.HTTPFound(target.format(port=self.port))
        if request.path not in PAGES:
            raise web.HTTPNotFound(text="no such page")
        body, headers = PAGES[request.path]
        return web.Response(body=body, headers=headers)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    application = web.Application()
    application.router.add_get("/{path:.*}", site.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    server = web.TCPSite(runner, "127.0.0.1", 0)
    await server.start()
    site.port = runner.addresses[0][1]
    yield site
    await runner.cleanup()


async def fetch(site: Site, path: str, **settings: Any) -> ToolOutcome:
    tool = FetchTool(allowed_hosts=[f"127.0.0.1:{site.port}"], **settings)
    return await tool.run({"url": f"http://127.0.0.1:{site.port}{path}"}, Silent())


async def test_pages_come_as_text_and_images_as_images(site: Site) -> None:
    assert await fetch(site, "/page") == text_outcome("T\n\n# Hi\n\na b")
    assert await fetch(site, "/json#part") == text_outcome('{"agent": "makai"}')
    assert await fetch(site, "/latin") == text_outcome("café")
    assert await fetch(site, "/odd-charset") == text_outcome("text")
    assert await fetch(site, "/image") == ToolOutcome(
        content=(Image(data=base64.b64encode(PNG).decode(), mime_type="image/png"),)
    )


async def test_what_cannot_be_shown_is_named(site: Site) -> None:
    assert await fetch(site, "/binary") == text_outcome(
        f"http://127.0.0.1:{site.port}/binary is application/zip, which cannot be shown.", is_error=True
    )
    assert await fetch(site, "/missing") == text_outcome("[HTTP status 404]\nno such page", is_error=True)


async def test_a_page_that_unpacks_to_too_much_is_cut(site: Site) -> None:
    outcome = await fetch(site, "/bomb")

    assert outcome == text_outcome("[cut: the page is longer]\n" + "x" * 100_000)


async def test_a_page_that_takes_too_long_is_given_up(site: Site) -> None:
    assert await fetch(site, "/slow", deadline_s=0.2) == text_outcome(
        "There was no complete answer within 0.2 s.", is_error=True
    )


async def test_redirects_on_the_same_host_are_followed_a_few_times(site: Site) -> None:
    assert await fetch(site, "/once") == text_outcome('{"agent": "makai"}')
    assert await fetch(site, "/loop") == text_outcome("The page redirects more than 5 times.", is_error=True)
    assert site.asked == ["/once", "/json"] + ["/loop"] * 6


@pytest.mark.proof("L7")
@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/away", "The page has moved to another host: http://localhost:{port}/json Fetch that URL instead."),
        ("/metadata", "The page has moved to another host: http://169.254.169.254/latest/meta-data/ Fetch that URL"),
        ("/file", "Only http:// and https:// URLs can be fetched."),
    ],
)
async def test_redirects_elsewhere_are_told_not_followed(site: Site, path: str, told: str) -> None:
    outcome = await fetch(site, path)

    assert text_of(outcome).startswith(told.format(port=site.port))
    assert (outcome.is_error, site.asked) == (True, [path])


@pytest.mark.proof("L7")
@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "0.0.0.0", "0", "[::1]", "[::]"),
        *("[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]"),
        *("LOCALHOST", "localhost.", "127.0.0.1.", "①②⑦.⓪.⓪.①"),
    ],
)
async def test_this_machine_cannot_be_reached_by_any_notation(site: Site, host: str) -> None:
    outcome = await FetchTool().run({"url": f"http://{host}:{site.port}/json"}, Silent())

    assert (outcome.is_error, site.asked) == (True, [])


async def test_a_name_is_refused_when_any_of_its_addresses_is_not_public(site: Site) -> None:
    for addresses in (["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], []):

        async def resolve(host: str, port: int, found: Sequence[str] = tuple(addresses)) -> Sequence[str]:
            return found

        outcome = await FetchTool(resolve=resolve).run({"url": f"http://example.com:{site.port}/json"}, Silent())
        assert outcome == text_outcome(f"example.com is not on the public internet. {REFUSED}", is_error=True)
    assert site.asked == []


@pytest.mark.proof("L7")
async def test_the_connection_goes_to_the_address_that_was_checked(site: Site) -> None:
    """The name does not exist; it is resolved once, by us, and never again."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"]

    tool = FetchTool(resolve=resolve, allowed_hosts=[f"name.invalid:{site.port}"])
    outcome = await tool.run({"url": f"http://name.invalid:{site.port}/json"}, Silent())

    assert outcome == text_outcome('{"agent": "makai"}')
    assert asked == ["name.invalid"]


async def test_an_allowed_host_is_allowed_on_its_port_alone(site: Site) -> None:
    tool = FetchTool(allowed_hosts=[f"127.0.0.1:{site.port + 1}"])

    assert (await tool.run({"url": f"http://127.0.0.1:{site.port}/json"}, Silent())).is_error
    assert site.asked == []


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com", "http://", "http://[::1", "http://example.com:99999/", "http://user:pw@example.com/"),
        *("ftp://example.com/", "file:///etc/passwd", "javascript:alert(1)", "data:text/plain,x", "gopher://a.com"),
    ],
)
async def test_what_is_no_web_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidRequest):
        await FetchTool().describe({"url": url})


async def test_a_fetch_is_described_by_its_url() -> None:
    assert await FetchTool().describe({"url": "https://Example.com/a?b#c"}) == CallDescription(
        kind="fetch", title="Fetch https://example.com/a?b", subject="https://example.com/a?b"
    )


def test_html_becomes_readable_text() -> None:
    page = (
        "<html><head><title> A  page </title><style>p{}</style></head><body><nav>menu</nav>"
        "<h2>One</h2><p>Text with <a href='/x'>a link</a> &amp; more.</p><ul><li>first<li>second</ul>"
        "<pre>  code\n    more</pre><script>alert('<p>no</p>')</script><table><tr><td>1</td></tr></table>"
    )

    assert html_to_text(page) == (
        "A page\n\nmenu\n\n## One\n\nText with a link </x> & more.\n\n- first\n- second\n\n  code\n    more\n\n1"
    )


@pytest.mark.parametrize("piece", ["<", "<!", "<![", "<a ", "</", "<!--", "<p", "&#1", "<a href='", "<script>", "<a>"])
def test_time_to_read_a_page_grows_only_with_its_length(piece: str) -> None:
    begun = time.process_time()  # not by the clock: other processes may use it up
    html_to_text(piece * (200_000 // len(piece)))

    assert time.process_time() - begun < 5


def test_a_reference_of_thousands_of_digits_is_left_as_it_is() -> None:
    assert html_to_text(f"&#{'1' * 5000};") == f"&#{'1' * 5000};"
