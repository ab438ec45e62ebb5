"""Who may attach, and what the others are told."""

from __future__ import annotations

import msgspec

from makai.core.errors import AuthRequired, NotSupported
from makai.core.secret import Secret
from makai.core.version import __version__
from makai.protocols.attach.messages import FORMAT, AttachHello, hello, objection

KEY = Secret("the key of this home")
OWNER = 10
ATTACHED = 20


def changed(**fields: object) -> AttachHello:
    return msgspec.structs.replace(hello(ATTACHED, KEY), **fields)


def test_the_same_version_with_the_key_is_welcome() -> None:
    assert objection(hello(ATTACHED, KEY), KEY, OWNER) is None


def test_a_process_without_the_key_is_refused_whatever_else_it_says() -> None:
    assert type(objection(changed(key=Secret("guessed"), makai="9.9"), KEY, OWNER)) is AuthRequired


def test_a_newer_process_is_told_to_restart_the_owner() -> None:
    refusal = objection(changed(makai="99.0.0"), KEY, OWNER)

    assert isinstance(refusal, NotSupported)
    assert refusal.message == (
        f"The sessions belong to process 10, which runs makai {__version__} (format {FORMAT}); "
        f"process 20 runs makai 99.0.0 (format {FORMAT})."
    )
    assert refusal.hint == "Restart process 10, the older one, with the same version as the other."


def test_an_older_process_is_told_to_restart_itself() -> None:
    refusal = objection(changed(format=FORMAT - 1), KEY, OWNER)

    assert isinstance(refusal, NotSupported)
    assert refusal.hint == "Restart process 20, the older one, with the same version as the other."
