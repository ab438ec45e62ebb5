"""`makai run` as a person and a script use it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from support.cli import Cli, Finished, interrupt
from support.upstream import Upstream, answers, chat_stream, starts_then_hangs, upstream

ECHO = ("run", "-m", "scripted/echo")
MODEL = "openai/openai-completions@gpt-test"
PARTIAL = chat_stream("Hello", " there", finish=None, done=False)
PERSON = '{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}'


@pytest.fixture
def makai(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def at(server: Upstream) -> dict[str, str]:
    return {"OPENAI_API_KEY": "sk-test-0123456789", "OPENAI_BASE_URL": f"{server.url}/v1"}


@pytest.mark.parametrize(
    ("arguments", "stdin", "out"),
    [
        ((*ECHO, "Grüße, 世界"), b"", "Grüße, 世界\n"),
        (("-p", "as an option", "-m", "scripted/echo"), b"", "as an option\n"),
        (("run", "--prompt=as an option", "-m", "scripted/echo"), b"", "as an option\n"),
        (ECHO, b"  from a pipe\n", "from a pipe\n"),
        ((*ECHO, "Review this:"), "a – b".encode(), "Review this:\n\na – b\n"),
        ((*ECHO, "--", "-m"), b"", "-m\n"),
    ],
)
async def test_the_prompt_comes_from_arguments_and_standard_input(
    makai: Cli, arguments: tuple[str, ...], stdin: bytes, out: str
) -> None:
    assert await makai(*arguments, stdin=stdin) == Finished(0, out, "")


@pytest.mark.parametrize("stdin", [b"a \xff byte", b"a \x00 byte"])
async def test_standard_input_that_is_not_all_text_is_asked_with_a_note(makai: Cli, stdin: bytes) -> None:
    note = "makai: standard input is not all text; the model sees � for each byte that is none\n"
    assert await makai(*ECHO, stdin=stdin) == Finished(0, "a � byte\n", note)


async def test_json_is_one_object_with_the_text_and_the_message(makai: Cli) -> None:
    async with upstream(answers(chat_stream("Hel", "lo"))) as server:
        finished = await makai("run", "-m", MODEL, "--output-format", "json", "Hi", environ=at(server))

    result = finished.json()
    assert (finished.code, result["type"], result["text"]) == (0, "result", "Hello")
    assert result["message"]["content"] == [{"type": "text", "text": "Hello"}]
    assert result["message"]["stop_reason"] == "end_turn"


async def test_stream_json_is_one_event_per_line_from_init_to_result(makai: Cli) -> None:
    async with upstream(answers(chat_stream("Hel", "lo"))) as server:
        finished = await makai("run", "-m", MODEL, "--output-format", "stream-json", "Hi", environ=at(server))

    events = finished.json_lines()
    assert finished.code == 0
    assert [event["type"] for event in events if event["type"] != "text_delta"] == [
        *("init", "user_message", "turn_started", "assistant_text", "turn_ended", "usage", "result")
    ]
    assert "".join(str(event["delta"]) for event in events if event["type"] == "text_delta") == "Hello"


async def test_the_options_reach_the_request(makai: Cli, tmp_path: Path) -> None:
    schema = tmp_path / "person.json"
    schema.write_text(PERSON)
    options = ("--max-tokens", "7", "--temperature", "0.5", "--system-prompt", "Be brief", "--json-schema", str(schema))
    async with upstream(answers(chat_stream('{"name":', '"Ada"}'))) as server:
        finished = await makai("run", "-m", MODEL, *options, "Who?", environ=at(server))

        body = server.requests[0].json()
    assert finished == Finished(0, '{"name":"Ada"}\n', "")
    assert (body["max_completion_tokens"], body["temperature"]) == (7, 0.5)
    assert body["messages"][0]["content"] == "Be brief"
    assert body["response_format"]["json_schema"]["schema"] == msgspec.json.decode(PERSON)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('{"name": 1}', "does not fit the schema at name: 1 is not of type"),
        ("{}", 'does not fit the schema: "name" is a required property'),
        ("Ada", "is not JSON"),
    ],
)
async def test_an_answer_that_does_not_fit_the_schema_is_never_handed_over(makai: Cli, answer: str, why: str) -> None:
    finished = await makai(*ECHO, "--json-schema", PERSON, answer)

    assert (finished.code, finished.out) == (1, "")
    assert finished.err.startswith(f"makai: the answer of scripted {why}")


async def test_with_a_schema_a_stream_ends_in_one_result_or_error(makai: Cli) -> None:
    finished = await makai(*ECHO, "--json-schema", PERSON, "--output-format", "stream-json", "{}")

    kinds = [event["type"] for event in finished.json_lines()]
    assert (finished.code, kinds[-1], kinds.count("result")) == (1, "error", 0)


@pytest.mark.parametrize("schema", ["[1]", '{"type": 7}', '{"$ref": "http://127.0.0.1:9/x"}', "no-such-file.json", "{"])
async def test_a_schema_that_cannot_be_used_is_refused_before_asking(makai: Cli, schema: str) -> None:
    async with upstream(answers(b"")) as server:
        finished = await makai("run", "-m", MODEL, "--json-schema", schema, "Hi", environ=at(server))

    assert (finished.code, finished.out, server.requests) == (2, "", [])
    assert finished.err.startswith("makai: ")


async def test_ctrl_c_ends_with_130_and_closes_the_connection_at_once(makai: Cli) -> None:
    async with (
        upstream(starts_then_hangs(PARTIAL)) as server,
        makai.started("run", "-m", MODEL, "Hi", environ=at(server)) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        async with asyncio.timeout(60):
            await process.stdout.readexactly(len("Hello there"))
        interrupt(process)
        async with asyncio.timeout(1):
            await server.closed_by_client.wait()
        async with asyncio.timeout(60):
            _, err = await process.communicate()

    assert (process.returncode, err) == (130, b"\n")


async def test_a_reader_that_goes_away_is_no_traceback(makai: Cli) -> None:
    long_answer = chat_stream(*["line of text\n" * 1000] * 100)
    async with (
        upstream(answers(long_answer)) as server,
        makai.started("run", "-m", MODEL, "Hi", environ=at(server)) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.close()
        async with asyncio.timeout(60):
            await process.stdout.readline()
            process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
            err = await process.stderr.read()
            await process.wait()

    assert (process.returncode, err) == (1, b"")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run",), "the prompt is missing"),
        (("run", "a", "-p", "b"), "you gave two prompts"),
        (("run", "--nonsense", "a"), "No such option"),
        (("run", "--output-format", "xml", "a"), "Invalid value for '--output-format'"),
        (("run", "--retry-for", "soon", "a"), "'soon' is no duration: write 90, 90s, 2m or 1h."),
        (("run", "--retry-for", "25h", "a"), "90000.0 is not in the range"),
        (("run", "--stall-timeout", "0", "a"), "Invalid value for '--stall-timeout'"),
        (("rum",), "Did you mean `makai run`?"),
        (("models", "list", "--provider", "unknown"), "there is no provider 'unknown'"),
        (("models", "list", "--api", "nonsense"), "there is no API 'nonsense'"),
        (("models", "resolve", "unknown/x"), "model not found"),
        (("models", "pull", "nothing"), "model not found"),
        (("completion", "tcsh"), "Invalid value"),
    ],
)
async def test_a_command_that_is_not_understood_exits_with_2(makai: Cli, arguments: tuple[str, ...], says: str) -> None:
    finished = await makai(*arguments)

    assert (finished.code, finished.out) == (2, "")
    assert says in finished.err
    assert "Traceback" not in finished.err


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
async def test_colour_is_for_terminals_without_no_color(makai: Cli, no_color: str, coloured: bool) -> None:
    async with makai.on_terminal("models", "list", "--provider", "groq", environ={"NO_COLOR": no_color}) as terminal:
        await terminal.shows("MODEL", "Groq")
        assert terminal.screen.startswith("\x1b[0m: ") is coloured
        assert await terminal.ended() == 0


async def test_a_terminal_is_not_obeyed_to_what_a_model_says(makai: Cli) -> None:
    async with makai.on_terminal(*ECHO, "red \x1b[31m alert \x07 end") as terminal:
        await terminal.shows("red \\x1b[31m alert \\x07 end")

        assert await terminal.ended() == 0
