"""A small readable language for what a scripted model does.

    # Comments and blank lines are ignored. An answer ends at a line of dashes.
    think: The user wants the weather.
    say: Let me look that up.
    tool: get_weather {"city": "Paris"}
    usage: input=12 output=34 cache_read=5
    ---
    say: It is sunny,
      and this line continues the one above (indented lines do).
    ---
    when: quota
    fail: rate_limited retry_after=2s Slow down, please.

Answers are given in order: the n-th answer of a conversation is the n-th one here, the last one repeats. An answer
with `when` is given instead whenever the newest user message contains its words. Other steps: `wait: 200ms` (upstream
is silent), `pace: 20ms` (delay before each following delta), `chunk: 4` (characters per delta; by default a delta is a
word), `repeat: 1000 word` (the word so many times, one delta each), `stop: max_tokens`, `arguments: raw text` (replaces
the last tool's JSON, to be malformed), `signature: opaque` (signs the block before it), `cut` (the connection breaks),
`stall` (nothing ever comes again), `echo` (says what the user said).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias, get_args

import msgspec

from makai.core.errors import ParseError
from makai.core.messages import StopReason
from makai.core.usage import Usage


class Say(msgspec.Struct, frozen=True):
    text: str


class Think(msgspec.Struct, frozen=True):
    text: str


class Echo(msgspec.Struct, frozen=True):
    """Say what the newest user message says."""


class Repeat(msgspec.Struct, frozen=True):
    """One delta, many times."""

    times: int
    text: str


class CallTool(msgspec.Struct, frozen=True):
    name: str
    arguments_json: str


class Signature(msgspec.Struct, frozen=True):
    """Signs the block before it."""

    signature: str


class Wait(msgspec.Struct, frozen=True):
    seconds: float


class Pace(msgspec.Struct, frozen=True):
    """Delay before each following delta."""

    seconds: float


class ChunkSize(msgspec.Struct, frozen=True):
    """Characters per following delta."""

    size: int


class Count(msgspec.Struct, frozen=True):
    """What the answer is said to have consumed."""

    usage: Usage


class Stop(msgspec.Struct, frozen=True):
    reason: StopReason


class Fail(msgspec.Struct, frozen=True):
    """End in an error of this code."""

    code: str
    message: str
    retry_after_ms: int | None = None


class Cut(msgspec.Struct, frozen=True):
    """The connection breaks."""


class Stall(msgspec.Struct, frozen=True):
    """Nothing ever comes again."""


Step: TypeAlias = (
    Say | Think | Echo | Repeat | CallTool | Signature | Wait | Pace | ChunkSize | Count | Stop | Fail | Cut | Stall
)


class ScriptedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model does when asked once."""

    steps: tuple[Step, ...]
    when: str | None = None


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scripted model."""

    answers: tuple[ScriptedAnswer, ...]

    def answer(self, turn: int, user_text: str) -> ScriptedAnswer:
        """The answer for the `turn`-th model call (from 0) of a conversation whose newest user text is this."""
        for answer in self.answers:
            if answer.when is not None and answer.when.lower() in user_text.lower():
                return answer
        ordered = [answer for answer in self.answers if answer.when is None]
        if not ordered:
            return ScriptedAnswer(steps=(Say("(the scenario has no answer for this)"),))
        return ordered[min(turn, len(ordered) - 1)]


_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s)$")


def parse_scenario(text: str) -> Scenario:
    """Read a scenario; `ParseError` names the line that cannot be read."""
    answers: list[ScriptedAnswer] = []
    steps: list[Step] = []
    when: str | None = None
    for number, line in _logical_lines(text):
        if set(line) == {"-"} and len(line) >= 3:
            answers.append(ScriptedAnswer(steps=tuple(steps), when=when))
            steps, when = [], None
            continue
        word, _, rest = line.partition(":")
        try:
            if word.strip() == "when":
                when = rest.strip()
            else:
                _add_step(steps, word.strip(), rest.strip())
        except (ValueError, TypeError, msgspec.DecodeError) as error:
            raise ParseError(f"scenario line {number}: {error}") from error
    if steps or when is not None or not answers:
        answers.append(ScriptedAnswer(steps=tuple(steps), when=when))
    return Scenario(answers=tuple(answers))


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers; an indented line continues the one before it."""
    lines: list[tuple[int, str]] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.rstrip()
        if line[:1] in (" ", "\t") and line.strip() and lines:
            first, before = lines[-1]
            lines[-1] = (first, f"{before}\n{line.strip()}")
        elif line and not line.startswith("#"):
            lines.append((number, line))
    return lines


def _add_step(steps: list[Step], word: str, rest: str) -> None:
    if word == "arguments":
        last = steps[-1] if steps else None
        if not isinstance(last, CallTool):
            raise ValueError("`arguments` must follow `tool`")
        steps[-1] = CallTool(last.name, rest)
    elif word in _STEPS:
        steps.append(_STEPS[word](rest))
    else:
        raise ValueError(f"unknown step {word!r}")


def _repeat(rest: str) -> Step:
    times, _, text = rest.partition(" ")
    return Repeat(int(times), text)


def _tool(rest: str) -> Step:
    name, _, arguments = rest.partition(" ")
    msgspec.json.decode(arguments or "{}", type=dict[str, object])
    return CallTool(name, arguments or "{}")


def _usage(rest: str) -> Step:
    counts = dict(pair.split("=", 1) for pair in rest.split())
    return Count(Usage(**{name: int(value) for name, value in counts.items()}))


def _stop(rest: str) -> Step:
    if rest not in get_args(StopReason):
        raise ValueError(f"unknown stop reason {rest!r}")
    return Stop(rest)  # type: ignore[arg-type]


def _fail(rest: str) -> Step:
    code, _, message = rest.partition(" ")
    wait_ms = None
    if message.startswith("retry_after="):
        duration, _, message = message.removeprefix("retry_after=").partition(" ")
        wait_ms = int(_seconds(duration) * 1000)
    return Fail(code, message or "scripted failure", wait_ms)


def _seconds(text: str) -> float:
    match = _DURATION.match(text)
    if match is None:
        raise ValueError(f"not a duration: {text!r} (write 200ms or 2s)")
    return float(match[1]) / (1000 if match[2] == "ms" else 1)


_STEPS: dict[str, Callable[[str], Step]] = {
    "say": Say,
    "think": Think,
    "echo": lambda rest: Echo(),
    "repeat": _repeat,
    "tool": _tool,
    "signature": Signature,
    "wait": lambda rest: Wait(_seconds(rest)),
    "pace": lambda rest: Pace(_seconds(rest)),
    "chunk": lambda rest: ChunkSize(max(1, int(rest))),
    "usage": _usage,
    "stop": _stop,
    "fail": _fail,
    "cut": lambda rest: Cut(),
    "stall": lambda rest: Stall(),
}
