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
from typing import Literal, TypeAlias, get_args

import msgspec

from makai.core.errors import ParseError
from makai.core.messages import StopReason
from makai.core.usage import Usage

Word: TypeAlias = Literal[
    "say", "think", "echo", "repeat", "tool", "signature", "wait", "pace", "chunk", "usage", "stop", "fail", "cut",
    "stall",
]  # fmt: skip


class Step(msgspec.Struct, frozen=True):
    """One thing that an answer does. Its word says which of the other fields it has."""

    word: Word
    text: str = ""
    """What is said, the arguments of a tool, or the message of a failure."""
    name: str = ""
    """Of a tool; the code of a failure."""
    number: float = 0
    """Seconds, characters or repetitions."""
    retry_after_ms: int | None = None
    usage: Usage = Usage()
    reason: StopReason = "end_turn"


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
            return ScriptedAnswer(steps=(Step("say", "(the scenario has no answer for this)"),))
        return ordered[min(turn, len(ordered) - 1)]


STALL_S = 86_400.0
"""How long a model is silent that stalls."""
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s)$")


def read_scenario(text: str) -> Scenario:
    """The scenario of a file: its text, or the JSON of a `Scenario`."""
    try:
        return msgspec.json.decode(text, type=Scenario) if text.startswith("{") else parse_scenario(text)
    except msgspec.DecodeError as error:
        raise ParseError(f"the scenario is no JSON of one: {error}") from None


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
    if word != "arguments":
        steps.append(_step(word, rest))
        return
    last = steps[-1] if steps else None
    if last is None or last.word != "tool":
        raise ValueError("`arguments` must follow `tool`")
    steps[-1] = Step("tool", rest, last.name)


def _step(word: str, rest: str) -> Step:
    first, _, text = rest.partition(" ")
    match word:
        case "say" | "think" | "signature":
            return Step(word, rest)
        case "echo" | "cut" | "stall":
            return Step(word)
        case "wait" | "pace":
            return Step(word, number=_seconds(rest))
        case "chunk":
            return Step("chunk", number=max(1, int(rest)))
        case "repeat":
            return Step("repeat", text, number=int(first))
        case "tool":
            msgspec.json.decode(text or "{}", type=dict[str, object])
            return Step("tool", text or "{}", first)
        case "usage":
            counts = dict(pair.split("=", 1) for pair in rest.split())
            return Step("usage", usage=Usage(**{name: int(value) for name, value in counts.items()}))
        case "stop":
            if rest not in get_args(StopReason):
                raise ValueError(f"unknown stop reason {rest!r}")
            return Step("stop", reason=rest)  # type: ignore[arg-type]
        case "fail":
            wait_ms = None
            if text.startswith("retry_after="):
                duration, _, text = text.removeprefix("retry_after=").partition(" ")
                wait_ms = int(_seconds(duration) * 1000)
            return Step("fail", text or "scripted failure", first, retry_after_ms=wait_ms)
        case _:
            raise ValueError(f"unknown step {word!r}")


def _seconds(text: str) -> float:
    match = _DURATION.match(text)
    if match is None:
        raise ValueError(f"not a duration: {text!r} (write 200ms or 2s)")
    return float(match[1]) / (1000 if match[2] == "ms" else 1)
