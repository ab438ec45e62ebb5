"""The operations of the session contract: what follows from their definitions."""

from __future__ import annotations

from typing import get_type_hints

import pytest

from makai.core.errors import SessionRefused
from makai.sessions import requests as req
from makai.sessions.owner import HANDLERS

OPERATIONS = {kind for kind in req.request_types() if kind.__module__ == req.__name__}


def test_the_owner_has_one_handler_for_each_operation_with_its_types() -> None:
    assert set(HANDLERS) >= OPERATIONS
    for kind in OPERATIONS:
        hints = list(get_type_hints(HANDLERS[kind]).values())
        assert hints in ([], [kind, req.answer_type(kind)]), kind  # a lambda has none; mypy knows its answer's type


def test_operations_are_told_apart_by_their_names_in_snake_case() -> None:
    tags = {kind.__struct_config__.tag for kind in OPERATIONS}

    assert len(tags) == len(OPERATIONS)
    assert {"create_session", "run_command", "list_trusted"} <= tags


@pytest.mark.parametrize(
    ("request_", "repeatable"),
    [
        (req.CreateSession(model_ref="m"), True),
        (req.CreateSession(model_ref="m", session_id="mine"), False),
        (req.ForkSession(origin="s"), True),
        (req.GetState("s"), True),
        (req.DeleteSession("s"), False),
        (req.SetTrust("/a", True), True),
        (req.RevokeGrant("/a", "Bash(ls)"), False),
        (req.CheckLog(), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_what_cannot_count_twice_is_repeated(request_: req.Request[object], repeatable: bool) -> None:
    assert request_.is_repeatable is repeatable


def test_a_refused_repetition_proves_that_the_session_was_created_under_its_id() -> None:
    named = req.CreateSession(model_ref="m").with_id()

    assert named.session_id
    assert named.with_id() == named
    assert named.answer_of_first_attempt(SessionRefused("SESSION_EXISTS", "There is one.")) == named.session_id
    assert named.answer_of_first_attempt(SessionRefused("BAD_ARGUMENT", "No.")) is None
