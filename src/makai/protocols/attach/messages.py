"""The messages between the process that owns the sessions of a MAKAI_HOME and the processes attached to it.

    attached                         owner
    hello ------------------------->
          <------------------------- welcome | refused
    request ----------------------->                                 one of `sessions.requests`, under a number
          <------------------------- answer | records | failure | moved
    follow ------------------------>
          <------------------------- records                         one batch
    pull -------------------------->                                 the batch was taken; send the next one
          <------------------------- records ...
    unfollow ---------------------->
    register_executor ------------->
          <------------------------- answer
          <------------------------- execute
    executed | execute_failed ----->                                 or `cancel_execute` from the owner
    unregister_executor ----------->
    ping -------------------------->
          <------------------------- pong

At most one batch per follower is under way, so neither side buffers for a slow reader. Both sides run the same version
of makai; `hello` says which, and any other is refused. `frames` turns messages into bytes and back.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from makai.core.secret import Secret
from makai.harness.base import ToolAnswer, ToolRequest

FORMAT: Final = 2
"""The version of these messages, increased with every change between two versions of makai."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Base of all messages."""


class AttachProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An exception as a value; `errors` converts both ways."""

    code: str
    message: str
    hint: str | None = None
    kind: str = "MakaiError"
    """The name of its class in `core.errors`."""
    details: dict[str, str | int | None] = {}
    """The other attributes of the exception."""


# ---------------------------------------------------------------- greeting


class AttachHello(Message, frozen=True, tag="hello"):
    """The first message of a process that attaches."""

    makai: str
    format: int
    pid: int
    key: Secret
    """The token of the MAKAI_HOME, which keeps out processes that reach the socket but cannot read the folder."""


class AttachWelcome(Message, frozen=True, tag="welcome"):
    """The link is open."""

    makai: str
    format: int
    pid: int


class Refused(Message, frozen=True, tag="refused"):
    """The owner closes the link after this."""

    problem: AttachProblem


# ---------------------------------------------------------------- requests


class RequestMessage(Message, frozen=True, tag="request"):
    number: int
    request: msgspec.Raw
    """One of `sessions.requests`; `frames.request_of` decodes it."""


class RegisterExecutor(Message, frozen=True, tag="register_executor"):
    """Answered by null. The executor has the number of this request, until `UnregisterExecutor`."""

    number: int
    session_id: str


# ---------------------------------------------------------------- answers


class AttachAnswer(Message, frozen=True, tag="answer"):
    """The request was carried out. Its class declares the type of `result`."""

    number: int
    result: msgspec.Raw


class Failure(Message, frozen=True, tag="failure"):
    """The request, or the follower, of this number failed."""

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


# ---------------------------------------------------------------- tools of the attached process


class Execute(Message, frozen=True, tag="execute"):
    """Execute a tool; `call` counts the calls of this link."""

    call: int
    executor: int
    request: ToolRequest


class CancelExecute(Message, frozen=True, tag="cancel_execute"):
    """The answer is no longer needed."""

    call: int


class Executed(Message, frozen=True, tag="executed"):
    call: int
    answer: ToolAnswer


class ExecuteFailed(Message, frozen=True, tag="execute_failed"):
    """The tool raised instead of answering."""

    call: int
    problem: AttachProblem


class UnregisterExecutor(Message, frozen=True, tag="unregister_executor"):
    number: int


# ---------------------------------------------------------------- keep-alive


class AttachPing(Message, frozen=True, tag="ping"):
    pass


class AttachPong(Message, frozen=True, tag="pong"):
    pass


FromAttached: TypeAlias = (
    AttachHello
    | RequestMessage
    | RegisterExecutor
    | UnregisterExecutor
    | Follow
    | Pull
    | Unfollow
    | Executed
    | ExecuteFailed
    | AttachPing
)
FromOwner: TypeAlias = (
    AttachWelcome | Refused | AttachAnswer | Failure | Moved | Records | Execute | CancelExecute | AttachPong
)
