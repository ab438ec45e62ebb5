"""`makai auth` as a process: at a terminal, in a pipe, and beside a server that is already running."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import msgspec
import pytest
from support.cli import Cli, interrupt
from support.places import mode
from support.upstream import Request, answers, chat_stream, refuses, upstream

from makai.client.connect import connect

KEY = "sk-pasted-0123456789abcdefghij"
FIXTURE = "test-fixture/fixture"


@pytest.fixture
def makai(tmp_path: Path) -> Cli:
    return Cli(tmp_path, {"MAKAI_TEST_LOGIN": "1"})


async def status_of(makai: Cli, provider: str) -> str:
    listed = await makai("models", "list", "--provider", provider, "--output-format", "json")
    [status] = {model["auth_status"] for model in msgspec.json.decode(listed.out)["models"]}
    return str(status)


async def test_a_login_at_the_test_fixture_from_nothing_to_an_answer(makai: Cli) -> None:
    assert await status_of(makai, "test-fixture") == "login_required"
    refused = await makai("run", "-m", FIXTURE, "Hi")
    assert (refused.code, refused.out) == (3, "")
    assert refused.err == "makai: Not logged in: Test fixture.\n       Run `makai auth login test-fixture`.\n"

    logged_in = await makai("auth", "login", "test-fixture", stdin=b"ok\n")
    assert (logged_in.code, logged_in.out) == (0, "Logged in to test-fixture.\n")
    assert mode(makai.home / "auth.json") == 0o600

    assert await status_of(makai, "test-fixture") == "authenticated"
    shown = await makai("auth", "status", "test-fixture")
    assert (shown.code, shown.out.splitlines()[1].split()) == (0, ["test-fixture", "authenticated", "login"])
    answered = await makai("run", "-m", FIXTURE, "Hi")
    assert (answered.code, answered.out) == (0, "You are logged in.Hi\n")

    assert (await makai("auth", "logout", "test-fixture")).out == "Logged out of test-fixture.\n"
    assert (await makai("auth", "logout", "test-fixture")).code == 1
    assert await status_of(makai, "test-fixture") == "login_required"


async def test_a_wrong_answer_fails_and_stores_nothing(makai: Cli) -> None:
    failed = await makai("auth", "login", "test-fixture", stdin=b"no\n")

    assert (failed.code, failed.out) == (1, "")
    assert 'The answer was not "ok".' in failed.err
    assert not (makai.home / "auth.json").exists()


async def test_accounts_are_chosen_by_name_and_one_is_the_default(makai: Cli) -> None:
    for account in ("home", "work"):
        await makai("auth", "login", "test-fixture", "--account", account, stdin=b"ok\n")
    assert (await makai("auth", "default", "test-fixture", "home")).code == 0

    shown = await makai("auth", "status", "--json")
    [fixture] = [one for one in msgspec.json.decode(shown.out)["providers"] if one["id"] == "test-fixture"]
    assert [(one["name"], one["is_default"]) for one in fixture["accounts"]] == [("home", True), ("work", False)]
    assert (await makai("run", "-m", FIXTURE, "--account", "work", "Hi")).code == 0
    missing = await makai("run", "-m", FIXTURE, "--account", "unknown", "Hi")
    assert missing.code == 3
    assert "Run `makai auth login test-fixture --account unknown`." in missing.err
    chatted = await makai("chat", "-m", FIXTURE, "--account", "unknown", stdin=b"Hi\n")
    assert "There is no account 'unknown'" in chatted.err
    assert (await makai("auth", "default", "test-fixture", "unknown")).code == 2


@pytest.mark.parametrize("named", [["test-fixture"], ["--provider", "test-fixture"]], ids=["argument", "option"])
async def test_a_program_gets_a_line_of_json_per_event_and_answers_with_lines(makai: Cli, named: list[str]) -> None:
    async with makai.started("auth", "login", *named, "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        prompt = msgspec.json.decode(await process.stdout.readline())
        process.stdin.write(b"ok\n")
        success = msgspec.json.decode(await process.stdout.readline())
        assert (await process.stdout.read(), await process.wait()) == (b"", 0)

    ids = {"flow_id": prompt["flow_id"], "provider_id": "test-fixture", "provider": "test-fixture"}
    question = {"message": 'Type "ok" to log in:', "prompt_id": prompt["prompt_id"], "allow_empty": False}
    assert prompt == {"type": "prompt", **ids, **question}
    assert success == {"type": "success", **ids}


@pytest.mark.parametrize("named", [[], ["groq", "--provider", "openai"]], ids=["none", "two"])
async def test_a_login_names_one_provider(makai: Cli, named: list[str]) -> None:
    refused = await makai("auth", "login", *named, stdin=b"")
    assert (refused.code, "name one provider" in refused.err) == (2, True)


async def test_an_unknown_provider_is_a_wrong_argument_of_a_login(makai: Cli) -> None:
    person = await makai("auth", "login", "absent", stdin=b"")
    program = await makai("auth", "login", "--provider", "absent", "--json", stdin=b"")

    assert (person.code, person.out) == (2, "")
    assert person.err.startswith("makai: There is no provider of that name to log in to. There are: anthropic, ")
    assert (program.code, program.json()["code"]) == (2, "invalid_request")


@pytest.mark.req("MK-AUTH-023")
async def test_an_interrupt_cancels_the_login_and_is_130(makai: Cli) -> None:
    async with makai.started("auth", "login", "test-fixture", "--output-format", "json") as process:
        assert process.stdout is not None
        await process.stdout.readline()
        interrupt(process)
        out, err = await process.communicate()

    assert (process.returncode, b"Traceback" in err) == (130, False)
    assert msgspec.json.decode(out)["code"] == "cancelled"
    assert not (makai.home / "auth.json").exists()


async def test_a_key_typed_at_a_terminal_is_not_shown_and_is_tried_before_it_is_kept(makai: Cli) -> None:
    keys: list[str] = []

    async def models(request: Request, writer: asyncio.StreamWriter) -> None:
        keys.append(request.headers["authorization"])
        script = refuses(401) if len(keys) == 1 else answers(b'{"data": []}', content_type="application/json")
        await script(request, writer)

    async with upstream(models, models, answers(chat_stream("Hello."))) as server:
        environ = {"OPENAI_BASE_URL": f"{server.url}/v1"}
        async with makai.on_terminal("auth", "login", "openai", environ=environ) as terminal:
            await terminal.shows("(it is not shown)")
            await terminal.types("sk-wrong\n", "refused the key")
            assert await terminal.ended() == 1
            assert "sk-wrong" not in terminal.screen
        async with makai.on_terminal("auth", "login", "openai", environ=environ) as terminal:
            await terminal.shows("(it is not shown)")
            await terminal.types(f"{KEY}\n", "Trying the key", "Logged in to openai.")
            assert await terminal.ended() == 0
            assert KEY not in terminal.screen
        used = await makai("run", "-m", "openai/openai-completions@gpt-test", "Hi", environ=environ)

    assert (used.out, used.code) == ("Hello.\n", 0)
    assert keys == ["Bearer sk-wrong", f"Bearer {KEY}"]
    assert server.requests[2].headers["authorization"] == f"Bearer {KEY}"
    elsewhere = await makai("models", "list", "--provider", "openai", environ={"OPENAI_BASE_URL": "http://127.0.0.1:9"})
    assert "the login 'default' is not for http://127.0.0.1:9" in elsewhere.out


async def test_ctrl_c_at_a_hidden_question_gives_the_terminal_back(makai: Cli) -> None:
    async with makai.on_terminal("auth", "login", "groq") as terminal:
        await terminal.shows("(it is not shown)")
        await terminal.types("\x03", "The login was cancelled. Nothing was stored.")
        assert await terminal.ended() == 130


@pytest.mark.parametrize("wish", ["", "--no-browser"])
async def test_a_page_opens_in_the_desktops_browser_unless_that_is_not_wanted(makai: Cli, wish: str) -> None:
    fake = makai.home / "browser"
    fake.write_text('#!/bin/sh\necho "[window: $1]"\n')
    fake.chmod(0o700)
    metadata = {"authorization_endpoint": "http://127.0.0.1:9/authorize", "token_endpoint": "http://127.0.0.1:9/token"}
    login = "\n".join(f"{name} = {json.dumps(value)}" for name, value in metadata.items())
    (makai.home / "config.toml").write_text(
        f'[providers.corp]\nbase_url = "http://127.0.0.1:9/v1"\n[providers.corp.login]\nclient_id = "x"\n{login}\n'
    )
    environ = {"DISPLAY": ":99", "BROWSER": str(fake)}
    arguments = ["auth", "login", "corp", *filter(None, [wish])]
    async with makai.on_terminal(*arguments, environ=environ) as terminal:
        await terminal.shows("Open this page in a browser:" if wish else "Your browser opens this page:")
        await terminal.shows("Ctrl-C cancels." if wish else "[window: http://127.0.0.1:9/authorize?")
        terminal.press("\x03")
        assert await terminal.ended() == 130
        assert not wish or "[window:" not in terminal.screen


@pytest.mark.req("MK-AUTH-016")
async def test_a_running_server_sees_a_login_of_another_process_at_once(makai: Cli) -> None:
    async with makai.serving() as (_, url):
        token = (makai.home / "server-token").read_text().strip()
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as page,
            connect(url.replace("http", "ws"), token=token) as client,
        ):

            async def statuses() -> set[str]:
                async with page.get(f"{url}/api/models?provider_id=test-fixture") as response:
                    over_rest = {model["auth_status"] for model in (await response.json())["models"]}
                async with page.get(f"{url}/api/auth/providers") as response:
                    providers = (await response.json())["providers"]
                listed = await client.auth.list_providers()
                return (
                    over_rest
                    | {one["auth_status"] for one in providers if one["id"] == "test-fixture"}
                    | {str(one.auth_status) for one in listed if one.id == "test-fixture"}
                )

            assert await statuses() == {"login_required"}
            assert (await makai("auth", "login", "test-fixture", stdin=b"ok\n")).code == 0
            assert await statuses() == {"authenticated"}
            answer = await client.provider.complete(model_ref="test-fixture/scripted@fixture", messages="Hi")
            assert answer.text == "You are logged in.Hi"
            assert (await makai("auth", "logout", "test-fixture")).code == 0
            assert await statuses() == {"login_required"}
    # a server that starts later finds what the last one knew
    assert (await makai("auth", "login", "test-fixture", stdin=b"ok\n")).code == 0
    async with connect(environ=makai.environment({})) as client:
        answer = await client.provider.complete(model_ref="test-fixture/scripted@fixture", messages="Hi")
        assert answer.text == "You are logged in.Hi"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda home: (home / "auth.json").write_text("{oops"), "holds no valid JSON"),
        (lambda home: (home / "auth.json").symlink_to("/dev/null"), "is a symbolic link"),
        (lambda home: (home / "config.toml").write_text("[providers"), "is not valid TOML"),
    ],
    ids=["corrupt", "link", "config"],
)
async def test_files_that_cannot_be_used_are_one_message_everywhere(makai: Cli, spoil: object, words: str) -> None:
    assert callable(spoil)
    spoil(makai.home)

    auth = ("status", "providers", "login test-fixture", "logout test-fixture")
    for command in (*(f"auth {words}" for words in auth), "models list", f"run -m {FIXTURE} Hi"):
        finished = await makai(*command.split(), stdin=b"ok\n")
        assert finished.code in (1, 2), command
        assert finished.err.count(words) == 1, (command, finished.err)
        assert "Traceback" not in finished.err


async def test_the_doctor_knows_logins_and_configured_providers(makai: Cli) -> None:
    config = '[providers.corp]\nbase_url = "http://127.0.0.1:9/v1"\ndefault_model = "large"\n'
    (makai.home / "config.toml").write_text(config)
    async with upstream(answers(b'{"data": []}', content_type="application/json")) as server:
        environ = {"OPENAI_BASE_URL": f"{server.url}/v1"}
        await makai("auth", "login", "openai", stdin=f"{KEY}\n".encode(), environ=environ)
        finished = await makai("doctor", "--offline", environ=environ)

    assert f"ok openai             logged in, OPENAI_BASE_URL={server.url}/v1, reachable" in finished.out
    assert "-- corp               not running at http://127.0.0.1:9/v1" in finished.out
    assert "because you are logged in to openai" in finished.out
    assert KEY not in finished.out


async def test_a_refreshed_list_is_what_the_provider_says_with_the_login(makai: Cli) -> None:
    models = answers(b'{"data": [{"id": "fresh-1"}]}', content_type="application/json")
    async with upstream(models) as server:
        config = f'[providers.corp]\nbase_url = "{server.url}/v1"\nmodels = ["known-1"]\n'
        (makai.home / "config.toml").write_text(config)
        before = await makai("models", "list", "--provider", "corp")
        await makai("auth", "login", "corp", stdin=f"{KEY}\n".encode())
        after = await makai("models", "list", "--provider", "corp", "--refresh")

    assert f"corp: no key needed, when it runs at {server.url}/v1\ncorp/known-1" in before.out
    assert "corp: ready (login 'default')\ncorp/fresh-1" in after.out
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
