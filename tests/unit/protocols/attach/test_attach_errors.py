"""An exception on one side of the link is the same on the other."""

from __future__ import annotations

import pytest

from makai.core import errors
from makai.protocols.attach.frames import encoded, from_owner
from makai.protocols.attach.messages import AttachProblem, Failure, exception_of, problem_of

ERRORS = [
    errors.MakaiError("It failed."),
    errors.ParseError("Not JSON."),
    errors.InvalidRequest("No.", hint="Try this."),
    errors.ModelNotFound("model not found"),
    errors.ModelRefError("Not a ref.", kind="empty"),
    errors.NotSupported("Not here."),
    errors.AuthExpired("Log in.", provider_id="acme", hint="makai auth login acme"),
    errors.TransportError("Gone."),
    errors.ChannelClosed("Closed."),
    errors.Overloaded("Busy.", provider_id="acme", status=529, request_id="r1", retry_after_ms=2000),
    errors.ContextOverflow("Too long."),
    errors.StorageUnavailable("Disk full.", hint="Make room."),
    errors.LogDamaged("Event 3 is damaged.", session_id="s", event_id=3, hint="Repair it."),
    errors.HomeInUse("In use.", pid=7),
    errors.LogConflict("Other.", expected=1, last=2),
    errors.SessionRefused("APPROVAL_CONFLICT", "Decided already.", hint="Look."),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_crosses_the_link_as_it_is(error: errors.MakaiError) -> None:
    message = from_owner(encoded(Failure(number=1, problem=problem_of(error))))

    assert isinstance(message, Failure)
    arrived = exception_of(message.problem)
    assert (type(arrived), arrived.code, vars(arrived)) == (type(error), error.code, vars(error))


def test_a_defect_is_told_without_what_it_says() -> None:
    assert problem_of(ValueError("sk-secret")) == AttachProblem(
        code="internal_error", message="Internal error: ValueError."
    )


def test_an_error_about_text_that_cannot_be_sent_is_told_all_the_same() -> None:
    assert problem_of(errors.InvalidRequest("a\0b\ud800")).message == "a?b?"


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (AttachProblem(code="storage_unavailable", message="m", kind="OfTheFuture"), errors.StorageUnavailable),
        (
            AttachProblem(code="invalid_request", message="m", kind="InvalidRequest", details={"self": 1}),
            errors.InvalidRequest,
        ),
        (
            AttachProblem(code="x", message="m", kind="SessionRefused", details={"code": "NEVER_HEARD"}),
            errors.MakaiError,
        ),
        (AttachProblem(code="internal_error", message="m", kind="LogDamaged"), errors.MakaiError),
    ],
)
def test_an_error_we_do_not_know_is_what_its_code_says(problem: AttachProblem, kind: type[errors.MakaiError]) -> None:
    assert type(exception_of(problem)) is kind
