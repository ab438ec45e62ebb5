"""The messages between the process that owns the sessions of a MAKAI_HOME and the processes attached to it.

    attached: hello                                 owner: welcome | refused
    request, one of `sessions.requests`                    answer | records | failure | moved
    follow, then pull for every batch that was taken       records, one batch at a time, until unfollow
    register_executor, until unregister_executor           answer, then execute | cancel_execute
    register_tool_server, until unregister_executor        answer, then execute | cancel_execute
    execute_progress, executed | execute_failed            (answers an execute)
    ping                                                   pong

At most one batch per follower is under way, so neither side buffers for a slow reader. Both sides run the same version
of makai; `hello` says which, and any other is refused. Exceptions cross with class, code, message and hint; one that is
not of `core.errors` is a defect and loses its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeAlias, get_args

import msgspec

from makai.core.errors import AuthRequired, MakaiError, NotSupported, RefusalCode, SessionRefused, error_from_code
from makai.core.secret import Secret
from makai.core.version import __version__
from makai.harness.base import ToolAnswer, ToolRequest, ToolServerOffer

FORMAT: Final = 3
"""The version of these messages, increased with every change between two versions of makai."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    pass


class AttachProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An exception as a value: `kind` is the name of its class in `core.errors`, `details` its other attributes."""

    code: str
    message: str
    hint: str | None = None
    kind: str = "MakaiError"
    details: dict[str, str | bool | int | None] = {}


class AttachHello(Message, frozen=True, tag="hello"):
    makai: str
    format: int
    pid: int
    key: Secret
    """The token of the MAKAI_HOME, which keeps out processes that reach the socket but cannot read the folder."""


class AttachWelcome(Message, frozen=True, tag="welcome"):
    makai: str
    format: int
    pid: int


class Refused(Message, frozen=True, tag="refused"):
    """The owner closes the link after this."""

    problem: AttachProblem


class RequestMessage(Message, frozen=True, tag="request"):
    number: int
    request: msgspec.Raw
    """One of `sessions.requests`; `frames.request_of` decodes it."""


class RegisterExecutor(Message, frozen=True, tag="register_executor"):
    """Answered by null. The executor has the number of this request, until `UnregisterExecutor`."""

    number: int
    session_id: str


class RegisterToolServer(Message, frozen=True, tag="register_tool_server"):
    """As `RegisterExecutor`, for the tools of a server in place of those of a session."""

    number: int
    offer: ToolServerOffer


class AttachAnswer(Message, frozen=True, tag="answer"):
    """The request was carried out. Its class declares the type of `result`."""

    number: int
    result: msgspec.Raw


class Failure(Message, frozen=True, tag="failure"):
    number: int
    problem: AttachProblem


class Moved(Message, frozen=True, tag="moved"):
    """The request was not and will not be carried out: the owner is closing. Ask the next owner."""

    number: int


class Records(Message, frozen=True, tag="records"):
    """A batch for a follower, or the answer to `ReadEvents`. Each line is the stored one, unchanged."""

    number: int
    ids: list[int]
    lines: list[msgspec.Raw]


class Follow(Message, frozen=True, tag="follow"):
    """Send the first batch above `after`, as soon as there is one."""

    number: int
    session_id: str
    after: int = 0
    deltas: bool = True


class Pull(Message, frozen=True, tag="pull"):
    number: int


class Unfollow(Message, frozen=True, tag="unfollow"):
    number: int


class Execute(Message, frozen=True, tag="execute"):
    """Execute a tool; `call` counts the calls of this link."""

    call: int
    executor: int
    request: ToolRequest


class CancelExecute(Message, frozen=True, tag="cancel_execute"):
    call: int


class ExecuteProgress(Message, frozen=True, tag="execute_progress"):
    call: int
    text: str


class Executed(Message, frozen=True, tag="executed"):
    call: int
    answer: ToolAnswer


class ExecuteFailed(Message, frozen=True, tag="execute_failed"):
    call: int
    problem: AttachProblem


class UnregisterExecutor(Message, frozen=True, tag="unregister_executor"):
    number: int


class AttachPing(Message, frozen=True, tag="ping"):
    pass


class AttachPong(Message, frozen=True, tag="pong"):
    pass


_Registering: TypeAlias = RegisterExecutor | RegisterToolServer | UnregisterExecutor
FromExecutor: TypeAlias = _Registering | ExecuteProgress | Executed | ExecuteFailed
FromAttached: TypeAlias = AttachHello | RequestMessage | Follow | Pull | Unfollow | AttachPing | FromExecutor
FromOwner: TypeAlias = (
    AttachWelcome | Refused | AttachAnswer | Failure | Moved | Records | Execute | CancelExecute | AttachPong
)


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


_REFUSALS: Final = frozenset(get_args(RefusalCode))


def problem_of(error: Exception) -> AttachProblem:
    if not isinstance(error, MakaiError):
        return AttachProblem(code=MakaiError.code, message=f"Internal error: {type(error).__name__}.")
    details = {
        name: _sendable(value) if isinstance(value, str) else value
        for name, value in vars(error).items()
        if name not in ("message", "hint") and (value is None or isinstance(value, str | int))
    }
    return AttachProblem(
        code=error.code,
        message=_sendable(error.message),
        hint=None if error.hint is None else _sendable(error.hint),
        kind=type(error).__name__,
        details=details,
    )


def _sendable(text: str) -> str:
    """The text without what JSON cannot carry: an error about such text must reach the other side, too."""
    return text.encode(errors="replace").decode().replace("\0", "?")


def exception_of(problem: AttachProblem) -> MakaiError:
    """The exception that was sent; for an unknown class, the one that its code stands for."""
    kind = _CLASSES.get(problem.kind)
    if kind is None or (kind is SessionRefused and problem.details.get("code") not in _REFUSALS):
        return _by_code(problem)
    try:
        error = kind(message=problem.message, **problem.details)  # type: ignore[arg-type]
    except TypeError:  # details of another class
        return _by_code(problem)
    error.hint = problem.hint
    return error


def _by_code(problem: AttachProblem) -> MakaiError:
    return error_from_code(problem.code, problem.message, hint=problem.hint)


def _family(kind: type[MakaiError]) -> Iterator[type[MakaiError]]:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__ == MakaiError.__module__:
            yield from _family(child)


_CLASSES: Final = {kind.__name__: kind for kind in _family(MakaiError)}
