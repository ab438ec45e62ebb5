"""The messages between the process that owns the sessions of a MAKAI_HOME and those that attach to it.

In and out: frozen Structs tagged by `type`; `frames` has their bytes. Nothing is known about sockets, tasks or who is
on which side.

    attached                         owner
    hello ------------------------->
          <------------------------- welcome | refused
    create, command, read ... ----->
          <------------------------- answer | failure | moved        by the request's number
    follow ------------------------>
          <------------------------- records                         one batch
    pull -------------------------->                                 the batch was taken: one more, please
          <------------------------- records ...
    unfollow ---------------------->
    attend ------------------------>
          <------------------------- answer
          <------------------------- execute
    executed | execute_failed ----->                                 or `cancel_execute` from the owner
    leave ------------------------->
    ping -------------------------->
          <------------------------- pong

At most one batch of a follower is under way, so nobody has to buffer for a reader that is slow. Both sides are the same
version of makai: `hello` says so, and anything else is refused.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from makai.core.secret import Secret
from makai.sessions.log.base import BATCH_EVENTS, NEWEST, SessionFilter
from makai.sessions.service import NewSession, ToolAnswer, ToolRequest, UserCommand

FORMAT: Final = 1
"""Of these messages; it changes with every change that is not one of makai's version."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of everything that is said."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error on its way; `errors` makes one of an exception, and the exception of one."""

    code: str
    message: str
    hint: str | None = None
    kind: str = "MakaiError"
    """The name of its class in `core.errors`."""
    details: dict[str, str | int | None] = {}
    """What the class knows beside its message."""


# ---------------------------------------------------------------- greeting


class Hello(Message, frozen=True, tag="hello"):
    """The first message of whoever attaches."""

    makai: str
    format: int
    pid: int
    key: Secret
    """The token of the MAKAI_HOME: whoever can reach the socket but not read the folder stays out."""


class Welcome(Message, frozen=True, tag="welcome"):
    """The link is open."""

    makai: str
    format: int
    pid: int


class Refused(Message, frozen=True, tag="refused"):
    """There is no link, or no more; the owner hangs up after it."""

    problem: Problem


# ---------------------------------------------------------------- requests


class Request(Message, frozen=True):
    """Base of what is answered once, under its number."""

    number: int


class Create(Request, frozen=True, tag="create"):
    """Answered by the session's id."""

    wanted: NewSession


class Command(Request, frozen=True, tag="command"):
    """Answered by a `Receipt`."""

    session_id: str
    command: UserCommand


class Read(Request, frozen=True, tag="read"):
    """Answered by `Records`."""

    session_id: str
    after: int = 0
    limit: int = BATCH_EVENTS
    deltas: bool = True


class State(Request, frozen=True, tag="state"):
    """Answered by the packed state (`sessions.state.packed`)."""

    session_id: str


class Summaries(Request, frozen=True, tag="summaries"):
    wanted: SessionFilter = NEWEST


class Summary(Request, frozen=True, tag="summary"):
    session_id: str


class PendingApprovals(Request, frozen=True, tag="pending_approvals"):
    pass


class Delete(Request, frozen=True, tag="delete"):
    session_id: str


class Attend(Request, frozen=True, tag="attend"):
    """Answered by null. The executor has the number of the request from then on, until `Leave`."""

    session_id: str


class IsTrusted(Request, frozen=True, tag="is_trusted"):
    folder: str


class Trust(Request, frozen=True, tag="trust"):
    folder: str
    trusted: bool


# ---------------------------------------------------------------- answers


class Answer(Message, frozen=True, tag="answer"):
    """The request was carried out; what the result is depends on the request."""

    number: int
    result: msgspec.Raw


class Failure(Message, frozen=True, tag="failure"):
    """The request, or the follower, of this number failed."""

    number: int
    problem: Problem


class Moved(Message, frozen=True, tag="moved"):
    """The request was not carried out and will not be: the owner is about to give the sessions up. Ask the next one."""

    number: int


class Records(Message, frozen=True, tag="records"):
    """A batch for a follower, or the answer to `Read`. Each line is what the log stores, unchanged."""

    number: int
    ids: list[int]
    lines: list[msgspec.Raw]


# ---------------------------------------------------------------- following


class Follow(Message, frozen=True, tag="follow"):
    """Send the first batch above `after`, as soon as there is one."""

    number: int
    session_id: str
    after: int = 0
    deltas: bool = True


class Pull(Message, frozen=True, tag="pull"):
    """The last batch was taken; send the next one."""

    number: int


class Unfollow(Message, frozen=True, tag="unfollow"):
    number: int


# ---------------------------------------------------------------- tools of the attached


class Execute(Message, frozen=True, tag="execute"):
    """Carry out a tool; `call` counts the calls of this link."""

    call: int
    executor: int
    request: ToolRequest


class CancelExecute(Message, frozen=True, tag="cancel_execute"):
    """Nobody wants the answer any more."""

    call: int


class Executed(Message, frozen=True, tag="executed"):
    call: int
    answer: ToolAnswer


class ExecuteFailed(Message, frozen=True, tag="execute_failed"):
    """The tool raised instead of answering."""

    call: int
    problem: Problem


class Leave(Message, frozen=True, tag="leave"):
    """The executor of this number is over."""

    number: int


# ---------------------------------------------------------------- is anybody there


class Ping(Message, frozen=True, tag="ping"):
    pass


class Pong(Message, frozen=True, tag="pong"):
    pass


AnyRequest: TypeAlias = (
    Create | Command | Read | State | Summaries | Summary | PendingApprovals | Delete | Attend | IsTrusted | Trust
)
FromAttached: TypeAlias = Hello | AnyRequest | Follow | Pull | Unfollow | Executed | ExecuteFailed | Leave | Ping
FromOwner: TypeAlias = Welcome | Refused | Answer | Failure | Moved | Records | Execute | CancelExecute | Pong
