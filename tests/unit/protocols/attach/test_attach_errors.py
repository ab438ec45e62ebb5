"""An exception on one side of the link is the same on the other."""

from __future__ import annotations

import pytest

from makai.core.errors import (
    AuthExpired,
    ChannelClosed,
    ContextOverflow,
    HomeInUse,
    InvalidRequest,
    LogConflict,
    LogDamaged,
    MakaiError,
    ModelNotFound,
    ModelRefError,
    NotSupported,
    Overloaded,
    ParseError,
    SessionRefused,
    StorageUnavailable,
    TransportError,
)
from makai.protocols.attach.errors import exception_of, problem_of
from makai.protocols.attach.frames import encoded, from_owner
from makai.protocols.attach.messages import AttachProblem, Failure

ERRORS = [
    MakaiError("It failed."),
    ParseError("Not JSON."),
    InvalidRequest("No.", hint="Try this."),
    ModelNotFound("model not found"),
    ModelRefError("Not a ref.", kind="empty"),
    NotSupported("Not here."),
    AuthExpired("Log in.", provider_id="acme", hint="makai auth login acme"),
    TransportError("Gone."),
    ChannelClosed("Closed."),
    Overloaded("Busy.", provider_id="acme", status=529, request_id="r1", retry_after_ms=2000),
    ContextOverflow("Too long."),
    StorageUnavailable("Disk full.", hint="Make room."),
    LogDamaged("Event 3 is damaged.", session_id="s", event_id=3, hint="Repair it."),
    HomeInUse("In use.", pid=7),
    LogConflict("Other.", expected=1, last=2),
    SessionRefused("APPROVAL_CONFLICT", "Decided already.", hint="Look."),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_crosses_the_link_as_it_is(error: MakaiError) -> None:
    message = from_owner(encoded(Failure(number=1, problem=problem_of(error))))

    assert isinstance(message, Failure)
    arrived = exception_of(message.problem)
    assert (type(arrived), arrived.code, vars(arrived)) == (type(error), error.code, vars(error))


def test_a_defect_is_told_without_what_it_says() -> None:
    assert problem_of(ValueError("sk-secret")) == AttachProblem(
        code="internal_error", message="Internal error: ValueError."
    )


def test_an_error_about_text_that_cannot_be_sent_is_told_all_the_same() -> None:
    assert problem_of(InvalidRequest("a\0b\ud800")).message == "a?b?"


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (AttachProblem(code="storage_unavailable", message="m", kind="OfTheFuture"), StorageUnavailable),
        (
            AttachProblem(code="invalid_request", message="m", kind="InvalidRequest", details={"self": 1}),
            InvalidRequest,
        ),
        (AttachProblem(code="x", message="m", kind="SessionRefused", details={"code": "NEVER_HEARD"}), MakaiError),
        (AttachProblem(code="internal_error", message="m", kind="LogDamaged"), MakaiError),
    ],
)
def test_an_error_we_do_not_know_is_what_its_code_says(problem: AttachProblem, kind: type[MakaiError]) -> None:
    assert type(exception_of(problem)) is kind
