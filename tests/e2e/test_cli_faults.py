"""`makai run` against upstreams that misbehave in every way the issue lists.

Each fault: one error that names the provider and says what to do, the documented exit code, no traceback, no key.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from pathlib import Path

import msgspec
import pytest
import trustme
from support import upstream as scripted
from support.cli import Cli, Finished
from support.upstream import Request, Script, Upstream, answers, chat_stream, dies_after, head, refuses, upstream

KEY = "sk-test-0123456789abcdefghij"
MODELS = {
    "openai": "openai/openai-completions@gpt-test",
    "anthropic": "anthropic/claude-test",
    "ollama": "ollama/qwen-test",
}
PARTIAL = {
    "openai": chat_stream("Hel", "lo", finish=None, done=False),
    "anthropic": (
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":1}}}\n\n'
        b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}\n\n'
    ),
    "ollama": b'{"model":"q","message":{"role":"assistant","content":"Hello"},"done":false}\n',
}
"""The beginning of an answer that says Hello."""


@pytest.fixture
def makai(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def variables(url: str) -> dict[str, str]:
    """Every provider of `MODELS` at this address."""
    return {
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": f"{url}/v1",
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": url,
        "OLLAMA_HOST": url,
    }


def error_body(message: str, code: str | None = None) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": code, "code": code}})


def assert_one_clear_error(finished: Finished, provider: str, fragment: str, *, warnings: int = 0) -> None:
    """Two lines: what happened at whom, and what to do. Each incomplete answer before it is a line of its own."""
    lines = finished.err.rstrip("\n").split("\n")
    asked_again, (what, *todo) = lines[:warnings], lines[warnings:]

    for line in asked_again:
        assert re.search(r"Asking again in \d\.\d s \(1 of 1\)\. The incomplete answer is not used\.$", line), line
    assert what.startswith("makai: ")
    assert provider in what
    assert fragment in finished.err
    assert len(todo) == 1, finished.err
    assert todo[0].startswith("       ")
    assert todo[0].strip()
    assert "Traceback" not in finished.err
    assert KEY not in finished.out + finished.err


class Fault(msgspec.Struct, frozen=True):
    """One way to misbehave and what a user then sees."""

    provider: str
    script: Script
    says: str
    code: int = 1
    out: str = ""
    requests: int = 1
    """How often we ask, retries included (at most one is allowed)."""

    @classmethod
    def after_words(cls, provider: str, script: Script, says: str) -> Fault:
        """The answer breaks off after "Hello", and is asked for again."""
        return cls(provider, script, says, out="Hello\nHello\n", requests=2)


def breaks(provider: str, ending: bytes) -> Script:
    """An answer that begins well and ends like this."""
    content_type = "application/x-ndjson" if provider == "ollama" else "text/event-stream"
    return answers(PARTIAL[provider] + ending, content_type=content_type)


async def says_nothing(request: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def sends_only_keepalives(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(head() + PARTIAL["openai"])
    while True:
        writer.write(b": keep-alive\n\n")
        await writer.drain()
        await asyncio.sleep(0.05)


SLOW = error_body("Slow down")
HTML = b"<!doctype html><html><head><title>Welcome</title></head><body>Hi</body></html>"
BAD_UTF8 = b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n'
OLLAMA_ERROR = b'{"error":"out of memory"}\n'
ANTHROPIC_ERROR = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'

FAULTS = {
    "wrong key": Fault(
        "openai",
        refuses(401, error_body(f"Incorrect API key provided: {KEY}", "invalid_api_key")),
        "did not accept the credential",
        code=3,
    ),
    "wrong key, anthropic": Fault("anthropic", refuses(401, error_body("invalid x-api-key")), "makai doctor", code=3),
    "rate limit, short Retry-After": Fault("openai", refuses(429, SLOW, Retry_After="0"), "Slow down", requests=2),
    "rate limit, long Retry-After": Fault("openai", refuses(429, SLOW, Retry_After="2820"), "Try again in 47 min"),
    "rate limit without Retry-After": Fault("openai", refuses(429, SLOW), "try again", requests=2),
    "no credit": Fault("openai", refuses(429, error_body("You are out", "insufficient_quota")), "billing"),
    "500 for good": Fault("openai", refuses(500, error_body("boom"), Retry_After="0"), "boom", requests=2),
    "overloaded": Fault(
        "anthropic",
        refuses(529, error_body("Overloaded", "overloaded_error"), Retry_After="0"),
        "another model",
        requests=2,
    ),
    "HTML error page": Fault("openai", answers(HTML, 404, "text/html"), says='an HTML page titled "Welcome"'),
    "HTML instead of an answer": Fault("openai", answers(HTML, 200, "text/html"), "openai"),
    "HTML instead of an answer, ollama": Fault("ollama", answers(HTML, 200, "text/html"), "ollama"),
    "dies in the middle": Fault.after_words("openai", dies_after(PARTIAL["openai"]), "in the middle"),
    "dies in the middle, claude": Fault.after_words("anthropic", dies_after(PARTIAL["anthropic"]), "in the middle"),
    "no last event": Fault.after_words("openai", breaks("openai", b""), "before it was complete"),
    "no last event, anthropic": Fault.after_words("anthropic", breaks("anthropic", b""), "before it was complete"),
    "no last event, ollama": Fault.after_words("ollama", breaks("ollama", b""), "before it was complete"),
    "error event after 200": Fault.after_words(
        "openai",
        breaks("openai", b"data: " + error_body("The server had an error") + b"\n\n"),
        "The server had an error",
    ),
    "error event, anthropic": Fault.after_words("anthropic", breaks("anthropic", ANTHROPIC_ERROR), "overloaded"),
    "error line, ollama": Fault.after_words("ollama", breaks("ollama", OLLAMA_ERROR), "out of memory"),
    "5 MB of rubbish in one line": Fault.after_words("openai", breaks("openai", b"x" * 5_000_000), "openai"),
    "an endless line": Fault("openai", answers(b"data: " + b"x" * 17_000_000), "limit", requests=2),
    "invalid UTF-8": Fault("openai", answers(BAD_UTF8), "before it was complete", out="��\n��\n", requests=2),
    "empty body": Fault("openai", answers(b""), "before it was complete", requests=2),
    "empty JSON body": Fault("openai", answers(b"", 200, "application/json"), "openai", requests=2),
    "stalls before the answer": Fault("openai", says_nothing, "no answer"),
    "stalls in the middle": Fault.after_words(
        "openai", scripted.starts_then_hangs(PARTIAL["openai"]), "nothing new for 2 s"
    ),
    "only keep-alives": Fault.after_words("openai", sends_only_keepalives, "nothing new for 2 s"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_misbehaving_provider_gives_one_clear_error(makai: Cli, fault: Fault) -> None:
    async with upstream(fault.script) as server:
        finished = await ask(makai, server, fault.provider)

        assert (finished.code, finished.out, len(server.requests)) == (fault.code, fault.out, fault.requests)
    assert_one_clear_error(finished, fault.provider, fault.says, warnings=1 if fault.out else 0)


async def ask(makai: Cli, server: Upstream, provider: str, *more: str) -> Finished:
    impatient = ("--max-retries", "1", "--stall-timeout", "2")
    return await makai("run", "-m", MODELS[provider], *impatient, *more, "Hi", environ=variables(server.url))


async def test_a_server_fault_that_passes_is_not_the_users_business(makai: Cli) -> None:
    scripts = (refuses(500, error_body("boom"), Retry_After="0"), answers(chat_stream("Hello")))
    async with upstream(*scripts) as server:
        finished = await ask(makai, server, "openai")

    assert finished == Finished(0, "Hello\n", "")


async def test_an_answer_that_breaks_off_once_is_asked_for_again(makai: Cli) -> None:
    async with upstream(dies_after(PARTIAL["openai"]), answers(chat_stream("Hello", " world"))) as server:
        text = await ask(makai, server, "openai")
    async with upstream(dies_after(PARTIAL["openai"]), answers(chat_stream("Hello", " world"))) as server:
        finished = await ask(makai, server, "openai", "--output-format", "json")

    assert (text.code, text.out) == (0, "Hello\nHello world\n")
    assert "broke in the middle of the answer" in text.err
    result = finished.json()
    assert (finished.code, result["text"], finished.err) == (0, "Hello world", "")
    assert [warning["code"] for warning in result["warnings"]] == ["stream_broken"]


async def test_five_megabytes_in_one_line_are_a_long_answer(makai: Cli) -> None:
    async with upstream(answers(chat_stream("x" * 5_000_000))) as server:
        finished = await ask(makai, server, "openai")

    assert (finished.code, len(finished.out), finished.err) == (0, 5_000_001, "")


async def test_a_refused_connection_is_said_with_the_address(makai: Cli) -> None:
    async with upstream(says_nothing) as server:
        pass
    finished = await ask(makai, server, "ollama")

    assert (finished.code, finished.out) == (1, "")
    assert_one_clear_error(finished, "ollama", server.url)


async def test_a_certificate_nobody_trusts_is_said(makai: Cli) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    async with upstream(answers(chat_stream("Hello")), tls=tls) as server:
        finished = await ask(makai, server, "openai")

    assert (finished.code, finished.out, server.requests) == (1, "", [])
    assert_one_clear_error(finished, "openai", "TLS certificate")


async def test_tls_to_a_server_that_speaks_none_is_said(makai: Cli) -> None:
    async with upstream(answers(chat_stream("Hello"))) as server:
        server.url = server.url.replace("http:", "https:")
        finished = await ask(makai, server, "openai")

    assert (finished.code, finished.out, server.requests) == (1, "", [])
    assert_one_clear_error(finished, "openai", "openai at https://127.0.0.1")


@pytest.mark.parametrize(
    ("model", "code", "what"),
    [
        ("opnai/gpt", 2, "model not found: there is no provider 'opnai'. Did you mean openai"),
        ("no-such-model", 2, "model not found: 'no-such-model'"),
        ("local/llama", 2, "model not found: local has no 'llama'"),
        ("openai/nonsense@gpt", 3, "No API key for OpenAI"),
        ("openai/anthropic-messages@gpt", 2, "openai does not speak 'anthropic-messages'"),
        ("anthropic/claude-test", 3, "No API key for Anthropic"),
        ("local/smollm2", 1, "are not on this machine"),
    ],
)
async def test_what_is_missing_here_is_said_before_any_request(makai: Cli, model: str, code: int, what: str) -> None:
    finished = await makai("run", "-m", model, "Hi")

    assert (finished.code, finished.out) == (code, "")
    assert_one_clear_error(finished, "", what)


async def test_a_missing_key_names_the_variable_to_set(makai: Cli) -> None:
    finished = await makai("run", "-m", "groq/any", "Hi")

    assert finished == Finished(
        3, "", "makai: No API key for Groq.\n       Run `makai auth login groq`, or set GROQ_API_KEY.\n"
    )


@pytest.mark.parametrize("output_format", ["json", "stream-json"])
async def test_scripts_get_a_failure_as_their_last_json_object(makai: Cli, output_format: str) -> None:
    async with upstream(refuses(401, error_body(f"bad key {KEY}"))) as server:
        finished = await ask(makai, server, "openai", "--output-format", output_format)

    last = finished.json_lines()[-1]
    assert (finished.code, finished.err) == (3, "")
    assert (last["type"], last["reason"]) == ("error", "error")
    assert (last["error_code"], last["provider_id"]) == ("auth_required", "openai")
    assert KEY not in finished.out


async def test_a_failure_before_the_stream_is_json_too(makai: Cli) -> None:
    finished = await makai("run", "-m", "groq/any", "--output-format", "stream-json", "Hi")

    assert finished.code == 3
    error = {"type": "error", "reason": "error", "error_code": "auth_required", "provider_id": "groq"}
    hint = "Run `makai auth login groq`, or set GROQ_API_KEY."
    assert finished.json() == {**error, "error_message": "No API key for Groq.", "hint": hint}


async def test_a_base_url_that_is_none_is_said(makai: Cli) -> None:
    finished = await makai("run", "-m", "openai/any", "Hi", environ=variables("localhost:1234"))

    assert finished.code == 2
    assert_one_clear_error(finished, "", "OPENAI_BASE_URL: the base URL is not usable")
