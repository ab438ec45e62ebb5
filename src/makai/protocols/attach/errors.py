"""Exceptions that cross the link: the same class, code, message and hint on both sides.

An exception that is not of `core.errors` is a defect and crosses as an internal error, without its text, which may
hold anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from makai.core.errors import MakaiError, RefusalCode, SessionRefused, error_from_code
from makai.protocols.attach.messages import AttachProblem

_REFUSALS: Final = frozenset(get_args(RefusalCode))


def problem_of(error: Exception) -> AttachProblem:
    """The form in which an exception is sent."""
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
