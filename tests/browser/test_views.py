"""Every view and dialog of the page, in both themes and on a phone: nothing that axe objects to, nothing wider than the
screen, and the focus inside of what opened. `make screenshots` writes a picture of each."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect
from support.browser import ARTIFACTS, AXE, LOST_SERVER, PHONE, ROOT, WIDE, Site, Theme, Window, site_of
from support.page_stage import Stage, drop_file, open_settings, stage_of, with_usage

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (`make checkpage`): it checked nothing"),
]

WRITES_PICTURES = "MAKAI_TEST_WRITES_DOCS" in os.environ
PICTURES = ROOT / "docs/screenshots/page"
PICTURE_QUALITY = 70

Opening = Callable[[Window], Awaitable[None]]


class View(msgspec.Struct, frozen=True):
    name: str
    at: str
    """Where it is: `home`, a session of the stage, or a path."""
    open: Opening
    browser: Literal["user", "newcomer", "stranger"] = "user"
    """Whose browser: of the stage, of a server without sessions, or one without a token."""
    is_left_by_loading: bool = False
    """It changes what the page remembers, so the page is loaded again after it."""
    is_wide_only: bool = False
    is_in_docs: bool = False
    """Its pictures are kept in docs/."""


class Look(msgspec.Struct, frozen=True):
    name: str
    theme: Theme
    is_phone: bool = False
    rules: tuple[str, ...] = ()
    """The only rules of axe that are checked. A theme changes nothing but colours."""


LOOKS = [
    pytest.param(Look("light", "light"), id="light"),
    pytest.param(Look("dark", "dark", rules=("color-contrast",)), id="dark", marks=pytest.mark.faults),
    pytest.param(Look("phone", "light", is_phone=True), id="phone", marks=pytest.mark.faults),
]
"""Each takes about a minute; every push looks at the first, `make faults` and `make screenshots` at all of them."""


def visible(test_id: str) -> Opening:
    async def opening(window: Window) -> None:
        await expect(window.test_id(test_id).first).to_be_visible()

    return opening


def key(key: str, test_id: str) -> Opening:
    async def opening(window: Window) -> None:
        await window.press(key)
        await expect(window.test_id(test_id).first).to_be_visible()

    return opening


def click(test_id: str, shown: str) -> Opening:
    async def opening(window: Window) -> None:
        await window.page.locator("main").get_by_test_id(test_id).first.click()
        await expect(window.page.locator(shown).first).to_be_visible()

    return opening


def typed(text: str, test_id: str) -> Opening:
    async def opening(window: Window) -> None:
        await window.composer.fill("")
        await window.composer.press_sequentially(text)
        await expect(window.test_id(test_id)).to_be_visible()

    return opening


def section(name: str) -> Opening:
    async def opening(window: Window) -> None:
        await open_settings(window, name)

    return opening


async def show_list(window: Window) -> None:
    """Open the list of sessions, which is a drawer on a phone."""
    if await window.test_id("open-list").is_visible():
        await window.test_id("open-list").click()
    await expect(window.test_id("session-row").first).to_be_visible()


async def _first_visit(window: Window) -> None:
    await expect(window.page.get_by_role("heading", name="Welcome to makai")).to_be_visible()
    await expect(window.test_id("pull-start")).to_be_visible()


async def _attachments(window: Window) -> None:
    await window.composer.fill("Compare these")
    for name, text in (("prices.csv", "a,b\n1,2\n"), ("notes.md", "# Notes\n")):
        await drop_file(window, name, text)
    await expect(window.test_id("attached-file")).to_have_count(2)


async def _no_sandbox(window: Window) -> None:
    await window.test_id("sandbox-picker").select_option("full-access")
    await expect(window.test_id("no-sandbox")).to_be_visible()


async def _top(window: Window) -> None:
    await expect(window.answers.last).to_contain_text("All is shown.")
    await window.test_id("transcript").evaluate("(box) => box.scrollTo(0, 0)")
    await window.tool("shell").locator("summary").first.click()


async def _end(window: Window) -> None:
    await expect(window.page.get_by_label("Footnote school", exact=True)).to_be_visible()
    await expect(window.test_id("diagram")).not_to_have_attribute("data-state", "drawing")
    await window.answers.last.hover()
    await expect(window.test_id("table")).to_be_in_viewport()


async def _regenerate(window: Window) -> None:
    await window.answers.last.hover()
    await window.answers.last.get_by_test_id("regenerate").click()
    await expect(window.page.get_by_role("menu")).to_be_in_viewport(ratio=1)


async def _edit(window: Window) -> None:
    await window.page.locator(".item.user").first.hover()
    await window.page.locator(".item.user").first.get_by_test_id("edit-message").click()
    await expect(window.test_id("edit-field")).to_be_focused()


async def _approval(window: Window) -> None:
    await expect(window.approval.get_by_test_id("diff")).to_be_visible()
    await window.test_id("approve-once").scroll_into_view_if_needed()


async def _deny_reason(window: Window) -> None:
    await window.test_id("deny-why").click()
    await expect(window.test_id("deny-reason")).to_be_focused()


async def _side_by_side(window: Window) -> None:
    await window.press("f")
    await window.test_id("side-by-side").click()
    await expect(window.page.locator(".pair").first).to_be_visible()


async def _restore(window: Window) -> None:
    await window.press("f")
    await window.test_id("undo-file").first.click()
    await expect(window.test_id("restore-file").first).to_be_visible()


async def _terminal(window: Window) -> None:
    await expect(window.tool("shell")).to_be_visible()
    await window.press("v")
    await expect(window.test_id("command-state")).to_have_text("Running")


async def _menu(window: Window) -> None:
    await window.test_id("session-menu").click()
    await expect(window.page.get_by_role("menu")).to_be_in_viewport(ratio=1)


async def _delete(window: Window) -> None:
    await _menu(window)
    await window.page.get_by_role("menuitem", name="Delete").click()
    await expect(window.test_id("delete-dialog")).to_be_visible()


async def _by_folder(window: Window) -> None:
    await show_list(window)
    await window.test_id("grouping").select_option("folder")
    await expect(window.test_id("group").first).to_be_visible()


async def _waiting_only(window: Window) -> None:
    await show_list(window)
    await window.test_id("filter").select_option("waiting")
    await expect(window.test_id("session-row")).to_have_count(1)


async def _hits(window: Window) -> None:
    await show_list(window)
    await window.test_id("session-search").fill("please")
    await expect(window.test_id("match").first).to_be_visible()


async def _nothing_found(window: Window) -> None:
    await show_list(window)
    await window.test_id("session-search").fill("xylophone")
    await expect(window.test_id("hits")).to_contain_text("Nothing found.")


async def _row_menu(window: Window) -> None:
    await show_list(window)
    await window.test_id("session-row").nth(1).hover()
    await window.test_id("row-actions").nth(1).click()
    await expect(window.page.get_by_role("menu")).to_be_in_viewport(ratio=1)


async def _select(window: Window) -> None:
    await show_list(window)
    await window.test_id("select-mode").click()
    for at in (1, 2):
        await window.test_id("session-row").nth(at).click()
    await expect(window.test_id("selection")).to_contain_text("2 selected")


async def _archive(window: Window) -> None:
    await show_list(window)
    await window.page.locator("[data-session^=s]").last.click(button="right")
    await window.page.get_by_role("menuitem", name="Archive", exact=True).click()
    await expect(window.test_id("toast-action")).to_be_visible()
    await window.test_id("filter").select_option("archived")
    await expect(window.test_id("session-row").first).to_be_visible()


async def _token(window: Window) -> None:
    await open_settings(window, "tokens")
    others = await window.page.get_by_role("button", name=re.compile("^Revoke ")).count()  # of the looks before
    await window.test_id("token-name").fill(f"phone-{others + 1}")
    await window.test_id("token-name").press("Enter")
    await expect(window.test_id("token-link")).to_be_visible()


async def _usage(window: Window) -> None:
    await with_usage(window)
    await open_settings(window, "usage")
    await expect(window.test_id("usage-chart")).to_be_visible()


async def _help(window: Window) -> None:
    await window.press("?")
    await expect(window.test_id("help")).to_be_visible()


async def _providers(window: Window) -> None:
    await show_list(window)
    await window.test_id("open-login").click()
    await expect(window.test_id("provider").first).to_be_visible()


async def _login(window: Window) -> None:
    await _providers(window)
    await window.page.locator("[data-provider='test-fixture']").get_by_test_id("start-login").click()
    await expect(window.test_id("login-answer")).to_be_visible()


async def _failed_login(window: Window) -> None:
    await _login(window)
    await window.test_id("login-answer").fill("no")
    await window.test_id("login-answer").press("Enter")
    await expect(window.test_id("login-flow")).to_have_attribute("data-result", "failed")


async def _missing(window: Window) -> None:
    window.allow(re.compile("404"))
    await expect(window.page.get_by_text("This session does not exist, or it was deleted.")).to_be_visible()


async def _without_network(window: Window) -> None:
    window.allow(re.compile(f"{LOST_SERVER.pattern}|404"))
    await window.page.context.set_offline(True)
    await window.say("Into the void")
    await expect(window.test_id("outgoing")).to_contain_text("it will be sent when the connection is back")


async def _offline_page(window: Window) -> None:
    await expect(window.page.get_by_role("heading")).to_have_text("makai is not running")


SECTIONS = (
    "defaults", "instructions", "permissions", "folders", "tokens", "mcp", "appearance", "notifications", "keys",
)  # fmt: skip
VIEWS = [
    View("first-visit", "home", _first_visit, "newcomer", is_in_docs=True),
    View("gate", "home", visible("gate"), "stranger"),
    View("offline-page", "offline.html", _offline_page, "stranger"),
    View("home", "home", visible("composer"), is_in_docs=True),
    View("folder-picker", "home", click("folder-picker", "[data-testid=cwd]")),
    View("agent-picker", "home", click("harness-picker", "[data-testid=agent-option]")),
    View("model-picker", "home", click("model-picker", "[data-testid=model-option]"), is_in_docs=True),
    View("no-sandbox", "home", _no_sandbox, is_left_by_loading=True),
    View("attachments", "everything", _attachments, is_left_by_loading=True),
    View("slash-list", "changed", typed("/", "completions")),
    View("file-list", "changed", typed("Look at @", "completions"), is_left_by_loading=True),
    View("session", "everything", _top),
    View("answer", "answer", _end, is_in_docs=True),
    View("regenerate", "everything", _regenerate),
    View("edit", "branch", _edit),
    View("branch", "branch", visible("branch-line")),
    View("streaming", "streaming", visible("abort")),
    View("failure", "failed", visible("remedies"), is_in_docs=True),
    View("approval", "asking", _approval, is_in_docs=True),
    View("approvals-menu", "asking", click("approval-badge", "[role=menu]")),
    View("deny-reason", "asking", _deny_reason, is_left_by_loading=True),
    View("queued", "asking", visible("waiting")),
    View("changes", "changed", key("f", "changed-file"), is_in_docs=True),
    View("side-by-side", "changed", _side_by_side, is_left_by_loading=True, is_wide_only=True),
    View("restore", "changed", _restore, is_left_by_loading=True),
    View("terminal", "running", _terminal),
    View("session-menu", "everything", _menu),
    View("rename", "everything", key("r", "title-field")),
    View("delete", "everything", _delete),
    View("list", "home", show_list, is_left_by_loading=True),
    View("list-by-folder", "home", _by_folder, is_left_by_loading=True),
    View("list-waiting", "home", _waiting_only, is_left_by_loading=True),
    View("list-hits", "home", _hits, is_left_by_loading=True, is_in_docs=True),
    View("list-nothing", "home", _nothing_found, is_left_by_loading=True),
    View("list-menu", "home", _row_menu, is_left_by_loading=True),
    View("list-select", "home", _select, is_left_by_loading=True),
    View("list-archived", "home", _archive, is_left_by_loading=True),
    *(View(f"settings-{name}", "home", section(name)) for name in SECTIONS),
    View("settings-token", "home", _token),
    View("settings-usage", "home", _usage, is_in_docs=True),
    View("help", "home", _help),
    View("providers", "home", _providers, is_left_by_loading=True),
    View("login", "home", _login, is_left_by_loading=True),
    View("login-failed", "home", _failed_login, is_left_by_loading=True),
    View("missing-session", "#/s/there-is-no-such-session", _missing),
    View("without-network", "branch", _without_network),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with stage_of(tmp_path_factory.mktemp("stage"), browser) as stage:
        yield stage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def new_site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A server without sessions."""
    async with site_of(tmp_path_factory.mktemp("new"), browser) as site:
        yield site


PROBLEMS = """() => {
    const dialog = [...document.querySelectorAll("dialog[open]")].pop();
    const isWider = document.documentElement.scrollWidth > innerWidth;
    const isFocusOutside = dialog && !dialog.contains(document.activeElement);
    return [...(isWider ? ["wider than the screen"] : []), ...(isFocusOutside ? ["the focus is outside"] : [])];
}"""


async def seen(window: Window, view: View, look: Look) -> list[tuple[str, str]]:
    """What is wrong with a view that is open."""
    found: list[str] = await window.page.evaluate(PROBLEMS)
    found += [str(violation) for violation in await window.axe(*look.rules)]
    if WRITES_PICTURES:
        await write_picture(window, view, look)
    return [(view.name, problem) for problem in found]


async def write_picture(window: Window, view: View, look: Look) -> None:
    """WebP, which Chromium writes at a fifth of the size of PNG; those that docs/ does not keep are PNG."""
    ARTIFACTS.mkdir(exist_ok=True)
    await window.screenshot(f"view-{view.name}-{look.name}")
    if view.is_in_docs and (look.name != "dark" or view.name in ("approval", "home")):
        options = {"format": "webp", "quality": PICTURE_QUALITY}
        taken = await (await window.devtools()).send("Page.captureScreenshot", options)
        PICTURES.mkdir(exist_ok=True)
        (PICTURES / f"{view.name}-{look.name}.webp").write_bytes(base64.b64decode(taken["data"]))


async def leave(window: Window, view: View) -> None:
    await window.page.context.set_offline(False)
    if view.is_left_by_loading:
        await window.page.evaluate("() => localStorage.clear()")
        await window.page.reload()
        return
    popups = window.page.locator("dialog[open], [role=menu], [data-testid=completions], [data-testid=edit-form]")
    while await popups.count():
        await window.page.keyboard.press("Escape")


@pytest.mark.parametrize("look", LOOKS)
async def test_every_view_can_be_used_by_everyone(stage: Stage, new_site: Site, look: Look) -> None:
    size = PHONE if look.is_phone else WIDE
    stranger = await stage.site.browser.new_context(
        color_scheme=look.theme, viewport={"width": size[0], "height": size[1]}, is_mobile=look.is_phone
    )
    found: list[tuple[str, str]] = []
    async with (
        stage.site.window(theme=look.theme, size=size, phone=look.is_phone) as user,
        new_site.window(theme=look.theme, size=size, phone=look.is_phone) as newcomer,
    ):
        windows = {"user": user, "newcomer": newcomer, "stranger": Window(await stranger.new_page())}
        for view in VIEWS:
            window = windows[view.browser]
            if view.is_wide_only and look.is_phone:
                continue
            site = Stage(new_site, {}) if view.browser == "newcomer" else stage
            for place in ("home", view.at):
                await window.page.goto(site.address(place))
            if view.at in stage.sessions:
                await window.connected()  # home has another state, so this is the session's
            await view.open(window)
            found += await seen(window, view, look)
            await leave(window, view)
    await stranger.close()
    assert found == []
