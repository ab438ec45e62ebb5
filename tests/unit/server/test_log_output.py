"""What a server logs, as text and as JSON, and what it never logs."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.live_sessions import desk, scripted_models

from makai.core import session_events as ev
from makai.core.log_context import log_as
from makai.server.log_json import RunLog, server_log
from makai.server.log_output import LogFormat, LogLevel
from makai.server.observability import Observability
from makai.sessions.owner import OwnedSessions

CANARY = "sk-canary-0123456789"


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_secret_reaches_the_log_from_an_exception_or_a_library(
    log_format: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    with server_log(log_format, "debug"):
        try:
            raise ValueError(f"token {CANARY}") from KeyError(CANARY)
        except ValueError:
            logging.getLogger("makai.server").exception("a request failed")
            logging.getLogger("aiohttp.server").exception("Error handling request %s", CANARY)
        logging.getLogger("urllib3").warning("Connection to https://user:%s@host failed", CANARY)
        logging.getLogger("urllib3").info("a library talks")
    written = capsys.readouterr().err
    assert CANARY not in written
    assert "a library talks" not in written
    assert ["a request failed" in written, "Error handling request" in written, "ValueError" in written] == [True] * 3


def test_a_line_of_json_says_when_who_and_for_which_run(capsys: pytest.CaptureFixture[str]) -> None:
    with server_log("json", "info"):
        log_as("session-1", "run-1")
        logging.getLogger("makai.sessions.live").warning("it is %s", 'a "quoted"\nword')
        log_as("")
        logging.getLogger("makai.sessions.live").info("nothing special")
        logging.getLogger("makai.sessions.live").debug("not wanted")
    first, second = lines_of(capsys)
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "warning",
        "logger": "makai.sessions.live",
        "message": 'it is a "quoted"\nword',
        "session_id": "session-1",
        "run_id": "run-1",
    }
    assert second.keys() == {"time", "level", "logger", "message"}


@pytest.mark.parametrize(("level", "count"), [("info", 2), ("warning", 0)])
async def test_a_run_is_two_lines_without_what_was_said_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], level: LogLevel, count: int
) -> None:
    observer = Observability("json").observer
    with server_log("json", level):
        async with scripted_models(tmp_path, f"say: the answer is {CANARY}\nusage: input=3 output=4") as models:
            sessions = await OwnedSessions.open(tmp_path / "makai-home", models, observer=observer)
            client = await desk(sessions)
            await client.run(f"my key is {CANARY}")
            await sessions.close()
    written = capsys.readouterr().err
    lines = [msgspec.json.decode(line) for line in written.splitlines()]
    assert CANARY not in written
    assert [line["message"] for line in lines] == ["run started", "run finished"][:count]
    assert [(line["session_id"], line["logger"]) for line in lines] == [(client.session_id, "makai.runs")] * count
    assert [line.get("output") for line in lines] == [None, 4][:count]


def test_a_failed_run_is_a_warning_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    failed = ev.RunFailed(code="rate_limited", message=f"slow down, {CANARY}", provider_id="openai")
    with server_log("json", "info"):
        RunLog().committed("s", [ev.Logged(event_id=1, ts=1, event=failed, run_id="r")], 0.0)
        RunLog().commit_failed("s", "storage_unavailable")
    first, second = lines_of(capsys)
    assert (first["level"], first["code"], first["provider"], first["run_id"]) == (
        "warning",
        "rate_limited",
        "openai",
        "r",
    )
    assert (second["level"], second["message"], second["code"]) == (
        "warning",
        "an append failed",
        "storage_unavailable",
    )
