"""Structured logs: one JSON object a line, for programs that collect logs, and the lines about runs.

What is left out of the text format (`log_output`) is left out here too. Values beside a message travel in the record's
`facts`; makai puts ids, codes, counts and names of models there, and nothing that a client or a model wrote.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Final

import msgspec

from makai.core import session_events as ev
from makai.core.log_context import logged_ids
from makai.core.observation import Observer
from makai.server.log_output import LogFormat, LogLevel, PlacesFormatter, log_without_values, places_of, said_by

log = logging.getLogger("makai.runs")

MAX_MESSAGE: Final = 8_000
MAX_VALUE: Final = 200
_LOGGED: Final = frozenset({ev.RunStarted, ev.RunResumed, ev.RunFinished, ev.RunFailed})


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        session_id, run_id = logged_ids()
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": said_by(record)[:MAX_MESSAGE],
        }
        ids = {"session_id": session_id, "run_id": run_id}
        line |= {name: value for name, value in ids.items() if value}
        line |= getattr(record, "facts", {})
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = places_of(record.exc_info[1])[:MAX_MESSAGE]
        return msgspec.json.encode(line).decode()


def server_log(log_format: LogFormat, level: LogLevel) -> AbstractContextManager[None]:
    """Print the log of this process on stderr, in this format, for the time of the block."""
    return log_without_values(JsonFormatter() if log_format == "json" else PlacesFormatter(), level)


class RunLog(Observer):
    """Logs when a run begins and how it ends."""

    def committed(self, session_id: str, events: Sequence[ev.Logged], seconds: float) -> None:
        for logged in events:
            if type(logged.event) not in _LOGGED:
                continue
            ids: dict[str, object] = {"session_id": session_id, "run_id": logged.run_id}
            match logged.event:
                case ev.RunStarted(model_ref=model):
                    _say(logging.INFO, "run started", ids | {"model": model})
                case ev.RunResumed():
                    _say(logging.INFO, "run resumed", ids)
                case ev.RunFinished(stop_reason=reason, usage=usage):
                    spent: dict[str, object] = {
                        "input": usage.input,
                        "output": usage.output,
                        "cost_usd": usage.cost_usd,
                    }
                    _say(logging.INFO, "run finished", ids | {"stop_reason": reason} | spent)
                case ev.RunFailed(code=code, provider_id=provider):
                    _say(logging.WARNING, "run failed", ids | {"code": code, "provider": provider})
                case _:
                    pass

    def commit_failed(self, session_id: str, code: str) -> None:
        _say(logging.WARNING, "an append failed", {"session_id": session_id, "code": code})


def _say(level: int, message: str, facts: dict[str, object]) -> None:
    if log.isEnabledFor(level):
        cut = {name: value[:MAX_VALUE] if isinstance(value, str) else value for name, value in facts.items()}
        log.log(level, message, extra={"facts": {name: value for name, value in cut.items() if value is not None}})
