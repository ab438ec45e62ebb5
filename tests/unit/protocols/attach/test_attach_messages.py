"""Who may attach, and exceptions that are the same on both sides of the link."""

from __future__ import annotations

import msgspec
import pytest

from makai.core import errors
from makai.core.secret import Secret
from makai.core.version import __version__
from makai.protocols.attach import messages as wire
from makai.protocols.attach.frames import encoded, from_owner

KEY = Secret("the key of this home")
OWNER = 10
ATTACHED = 20
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
    message = from_owner(encoded(wire.Failure(number=1, problem=wire.problem_of(error))))

    assert isinstance(message, wire.Failure)
    arrived = wire.exception_of(message.problem)
    assert (type(arrived), arrived.code, vars(arrived)) == (type(error), error.code, vars(error))


def test_a_defect_is_told_without_what_it_says() -> None:
    assert wire.problem_of(ValueError("sk-secret")) == wire.AttachProblem(
        code="internal_error", message="Internal error: ValueError."
    )


def test_an_error_about_text_that_cannot_be_sent_is_told_all_the_same() -> None:
    assert wire.problem_of(errors.InvalidRequest("a\0b\ud800")).message == "a?b?"


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (wire.AttachProblem(code="storage_unavailable", message="m", kind="OfTheFuture"), errors.StorageUnavailable),
        (
            wire.AttachProblem(code="invalid_request", message="m", kind="InvalidRequest", details={"self": 1}),
            errors.InvalidRequest,
        ),
        (
            wire.AttachProblem(code="x", message="m", kind="SessionRefused", details={"code": "NEVER_HEARD"}),
            errors.MakaiError,
        ),
        (wire.AttachProblem(code="internal_error", message="m", kind="LogDamaged"), errors.MakaiError),
    ],
)
def test_an_error_we_do_not_know_is_what_its_code_says(
    problem: wire.AttachProblem, kind: type[errors.MakaiError]
) -> None:
    assert type(wire.exception_of(problem)) is kind


def changed(**fields: object) -> wire.AttachHello:
    return msgspec.structs.replace(wire.hello(ATTACHED, KEY), **fields)


def test_the_same_version_with_the_key_is_welcome() -> None:
    assert wire.objection(wire.hello(ATTACHED, KEY), KEY, OWNER) is None


def test_a_process_without_the_key_is_refused_whatever_else_it_says() -> None:
    assert type(wire.objection(changed(key=Secret("guessed"), makai="9.9"), KEY, OWNER)) is errors.AuthRequired


@pytest.mark.parametrize(
    ("fields", "runs", "older"),
    [
        pytest.param({"makai": "99.0.0"}, f"99.0.0 (format {wire.FORMAT})", OWNER, id="a newer process"),
        pytest.param(
            {"format": wire.FORMAT - 1}, f"{__version__} (format {wire.FORMAT - 1})", ATTACHED, id="an older process"
        ),
    ],
)
def test_the_older_of_two_versions_is_to_be_restarted(fields: dict[str, object], runs: str, older: int) -> None:
    refusal = wire.objection(changed(**fields), KEY, OWNER)

    assert isinstance(refusal, errors.NotSupported)
    assert refusal.message == (
        f"The sessions belong to process 10, which runs makai {__version__} (format {wire.FORMAT}); "
        f"process 20 runs makai {runs}."
    )
    assert refusal.hint == f"Restart process {older}, the older one, with the same version as the other."
