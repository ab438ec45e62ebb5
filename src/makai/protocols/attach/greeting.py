"""Who may attach: the same version of makai, run by a user who can read the MAKAI_HOME."""

from __future__ import annotations

import re
from typing import Final

from makai.core.errors import AuthRequired, MakaiError, NotSupported
from makai.core.secret import Secret
from makai.core.version import __version__
from makai.protocols.attach.messages import FORMAT, AttachHello, AttachWelcome

_NUMBERS: Final = re.compile(r"\d{1,9}", re.ASCII)


def hello(pid: int, key: Secret) -> AttachHello:
    return AttachHello(makai=__version__, format=FORMAT, pid=pid, key=key)


def welcome(pid: int) -> AttachWelcome:
    return AttachWelcome(makai=__version__, format=FORMAT, pid=pid)


def objection(said: AttachHello, key: Secret, pid: int) -> MakaiError | None:
    """Why the owner, process `pid`, does not let this one attach; None when it does."""
    if not key.matches(said.key.reveal()):
        return AuthRequired("The owner of the sessions does not know this process.", provider_id="makai")
    if (said.makai, said.format) != (__version__, FORMAT):
        return _mismatch(owner=(__version__, FORMAT, pid), attached=(said.makai, said.format, said.pid))
    return None


def _mismatch(owner: tuple[str, int, int], attached: tuple[str, int, int]) -> NotSupported:
    """Two versions do not share a log: say which process to restart, the older one."""
    is_owner_older = (_order(owner[0]), owner[1]) < (_order(attached[0]), attached[1])
    older = owner if is_owner_older else attached
    return NotSupported(
        f"The sessions belong to process {owner[2]}, which runs makai {owner[0]} (format {owner[1]}); "
        f"process {attached[2]} runs makai {attached[0]} (format {attached[1]}).",
        hint=f"Restart process {older[2]}, the older one, with the same version as the other.",
    )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBERS.findall(version)[:8])
