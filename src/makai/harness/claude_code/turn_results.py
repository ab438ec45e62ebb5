"""How a turn of Claude Code ended, by its `result` line. Pure.

Failures of the model API arrive as `subtype: "success"`, with `is_error: true` or only with the reason "api_error".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from makai.core.usage import token_count
from makai.core.visible_text import shown
from makai.harness.acp.updates_to_facts import TURNS
from makai.harness.claude_code.output_lines import ResultLine
from makai.wire.acp import sessions

MAX_MESSAGE_LENGTH: Final = 2_000
_STOP_REASONS: Final[Mapping[str, sessions.StopReason]] = {
    "max_tokens": "max_tokens", "refusal": "refusal", "model_context_window_exceeded": "max_tokens",
}  # fmt: skip
_LOGIN_WORDS: Final = ("not logged in", "please run /login", "invalid api key", "failed to authenticate", "oauth token")
_AGAIN: Final = "Try again in a moment."
_HINTS: Final[Mapping[int, str]] = {
    400: "Change the request or the model, and try again.",
    404: "Choose a model that your account offers.",
    413: "Summarise the conversation with /compact, or begin a new session.",
    429: "Wait until your limit is reset, or choose another model.",
}


class ClaudeFailure(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    hint: str = _AGAIN
    needs_login: bool = False


class ClaudeTurnResult(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one turn. `failure` is set when it has no answer."""

    stop_reason: sessions.StopReason = "end_turn"
    usage: sessions.TurnUsage | None = None
    turns: int = 0
    failure: ClaudeFailure | None = None
    session_id: str = ""

    def answer(self) -> Any:
        """The answer to the prompt of ACP, as JSON values."""
        response = sessions.PromptResponse(stop_reason=self.stop_reason, usage=self.usage, meta={TURNS: self.turns})
        return msgspec.to_builtins(response)

    def after(self, earlier: ClaudeTurnResult | None) -> ClaudeTurnResult:
        """This end of a prompt that had another turn before: what both used."""
        if earlier is None:
            return self
        mine, before, turns = self.usage, earlier.usage, self.turns + earlier.turns
        if mine is None or before is None:
            return msgspec.structs.replace(self, usage=mine or before, turns=turns)
        names = [name for name in sessions.TurnUsage.__struct_fields__ if name != "meta"]
        sums: dict[str, Any] = {name: (getattr(mine, name) or 0) + (getattr(before, name) or 0) for name in names}
        return msgspec.structs.replace(self, usage=sessions.TurnUsage(**sums), turns=turns)


def turn_result(line: ResultLine) -> ClaudeTurnResult:
    is_aborted = isinstance(line.terminal_reason, str) and line.terminal_reason.startswith("aborted")
    stop: sessions.StopReason = _STOP_REASONS.get(str(line.stop_reason), "end_turn")
    failure: ClaudeFailure | None = None
    if is_aborted:
        stop = "cancelled"
    elif line.subtype == "error_max_turns":
        stop = "max_turn_requests"
    elif line.subtype == "error_max_structured_output_retries":
        pass  # there is no value that follows the schema: the text of the answer may still help
    elif line.is_error or line.terminal_reason == "api_error" or str(line.subtype).startswith("error"):
        failure = _failure(line)
    session_id = line.session_id if isinstance(line.session_id, str) else ""
    turns = token_count(line.num_turns)
    usage = _usage(line.usage)
    return ClaudeTurnResult(stop_reason=stop, usage=usage, turns=turns, failure=failure, session_id=session_id)


def _failure(line: ResultLine) -> ClaudeFailure:
    said = line.result if isinstance(line.result, str) and line.result else line.error
    if not isinstance(said, str) or not said:
        listed = line.errors if isinstance(line.errors, list) else []
        words = (str(one.get("message", one)) if isinstance(one, dict) else str(one) for one in listed)
        said = "; ".join(words) or f"It ended with {line.subtype}."
    message = shown(said)[:MAX_MESSAGE_LENGTH]
    status = line.api_error_status if isinstance(line.api_error_status, int) else 0
    needs_login = status in (401, 403) or any(words in message.lower() for words in _LOGIN_WORDS)
    return ClaudeFailure(message=message, hint=_HINTS.get(status, _AGAIN), needs_login=needs_login)


def _usage(said: Any) -> sessions.TurnUsage | None:
    if not isinstance(said, dict):
        return None
    read = token_count(said, "cache_read_input_tokens")
    written = token_count(said, "cache_creation_input_tokens")
    fresh, output = token_count(said, "input_tokens"), token_count(said, "output_tokens")
    thought = token_count(said, "output_tokens_details", "thinking_tokens")
    return sessions.TurnUsage(
        total_tokens=fresh + output + read + written,
        input_tokens=fresh,
        output_tokens=output,
        thought_tokens=thought or None,
        cached_read_tokens=read or None,
        cached_write_tokens=written or None,
    )


def amount(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0


def context_window(line: ResultLine) -> int:
    """The largest context window of the models that answered; 0 when it is not said."""
    models = line.model_usage.values() if isinstance(line.model_usage, dict) else ()
    return max((token_count(one, "contextWindow") for one in models), default=0)


def cost_since_last(line: ResultLine) -> float | None:
    """What the turn cost. `total_cost_usd` counts a resumed session from its beginning; this does not."""
    if not isinstance(line.since_last, dict):
        return None
    return sum(amount(one.get("costUSD")) for one in line.since_last.values() if isinstance(one, dict))
