"""A mode is named after what it does, and its former name is read wherever one comes from outside."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import makai
from makai.cli.console import MODE_ALIASES, MODES
from makai.core import session_events as ev
from makai.sessions.log.base import Record
from makai.sessions.log.encoding import decoded_one
from makai.sessions.state import SessionState

FORMER = "full_access"


def _structs(cls: type[Any] = msgspec.Struct) -> Iterator[type[Any]]:
    for each in cls.__subclasses__():
        yield each
        yield from _structs(each)


def _decoded_structs() -> list[type[Any]]:
    """Every type of makai that takes the former name."""
    for package in ("core", "sessions", "protocols", "server", "client"):
        for module in pkgutil.walk_packages([f"{makai.__path__[0]}/{package}"], f"makai.{package}."):
            if not module.name.endswith(("__main__", "grpc")):
                importlib.import_module(module.name)
    found = {
        struct: struct
        for struct in _structs()
        if struct.__module__.startswith("makai.") and "DecodedMode" in str(struct.__annotations__.get("mode"))
    }
    return sorted(found, key=lambda struct: f"{struct.__module__}.{struct.__qualname__}")


def test_every_value_that_is_decoded_reads_the_former_name() -> None:
    structs = _decoded_structs()

    assert {struct.__name__ for struct in structs} == {
        *("SessionCreated", "ModeChanged", "SessionSummary", "SessionState", "CreateSession", "ForkSession"),
        *("Create", "SetMode", "AgentStart", "SessionInfo", "SetModeCommand", "NewBody"),
    }
    assert [struct for struct in structs if not issubclass(struct, ev.HasPermissionMode)] == [SessionState]


@pytest.mark.parametrize(
    "event", [{"type": "mode_changed", "mode": FORMER}, {"type": "session_created", "model_ref": "m", "mode": FORMER}]
)
def test_an_old_log_is_read_and_the_new_name_is_written(event: dict[str, str]) -> None:
    line = msgspec.json.encode({"event_id": 1, "ts": 1, "event": event})
    logged = decoded_one(Record(event_id=1, line=line))

    assert isinstance(logged, ev.Logged)
    assert isinstance(logged.event, ev.ModeChanged | ev.SessionCreated)
    assert logged.event.mode == "never_ask"
    assert FORMER not in msgspec.json.encode(logged).decode()


def test_the_command_line_knows_the_same_modes() -> None:
    assert MODES == ev.MODES
    assert {name: MODE_ALIASES[name] for name in ev.FORMER_MODES} == ev.FORMER_MODES
    assert set(MODE_ALIASES.values()) <= set(MODES)
