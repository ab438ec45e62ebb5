"""How one generation of Claude differs from the next, as data: adding a model is a row of `DIALECTS`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from makai.core.model import ReasoningEffort
from makai.providers.preparation import nearest_effort

MIN_BUDGET: Final = 1_024
BUDGETS: Final = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 32_768}


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What one generation of models accepts. The defaults are those of servers that only imitate the API."""

    thinking: Literal["none", "budget", "adaptive"] = "budget"
    efforts: tuple[str, ...] = ()
    """Levels of `output_config.effort`."""
    off: Literal["omit", "disabled", "between_tools", "never"] = "disabled"
    """How thinking is switched off: by saying nothing, by a `thinking.type`, or not at all (lowest effort instead)."""
    hides_thinking: bool = False
    """Thinking comes without its text unless `display` asks for it."""
    sampling: bool = True
    """Takes `temperature` and `top_p`."""
    forced_tools: Literal["always", "without_thinking", "never"] = "always"
    """When a tool call may be demanded."""
    interleaved: bool = False
    """Thinks between tool calls only with a beta header."""
    bound: bool = False
    """Refuses its own earlier thinking when anything before it has changed, unless asked to drop it."""


_CLAUDE_3 = Dialect(thinking="none", off="omit")
_EXTENDED = Dialect(off="omit", forced_tools="without_thinking", interleaved=True)
_UP_TO_MAX = ("low", "medium", "high", "max")
_WITH_XHIGH = ("low", "medium", "high", "xhigh", "max")
_4_6 = Dialect(thinking="adaptive", efforts=_UP_TO_MAX, off="omit", forced_tools="without_thinking")
_4_7 = msgspec.structs.replace(_4_6, efforts=_WITH_XHIGH, hides_thinking=True, sampling=False)
_5 = msgspec.structs.replace(_4_7, off="disabled")
_5_ALWAYS = msgspec.structs.replace(_5, off="never", forced_tools="always")
_BOUND = msgspec.structs.replace(_5_ALWAYS, forced_tools="never", bound=True)

DIALECTS: Final[dict[str, Dialect]] = {
    "": Dialect(),
    "claude-": _BOUND,  # not known yet: what the newest models accept
    "claude-3": _CLAUDE_3,
    "claude-3-7": _EXTENDED,
    "claude-opus-4": _EXTENDED,
    "claude-sonnet-4": _EXTENDED,
    "claude-haiku-4": _EXTENDED,
    "claude-opus-4-6": _4_6,
    "claude-sonnet-4-6": _4_6,
    "claude-opus-4-7": _4_7,
    "claude-opus-4-8": _4_7,
    "claude-mythos-preview": msgspec.structs.replace(_5_ALWAYS, efforts=_UP_TO_MAX),
    "claude-opus-5": _5,
    "claude-sonnet-5": _5,
    "claude-haiku-5": _5,
    "claude-fable-5": _5_ALWAYS,
    "claude-mythos-5": _5_ALWAYS,
    "claude-fable-5-": _BOUND,
    "claude-mythos-5-": _BOUND,
    "claude-opus-5-5": _BOUND,
    "claude-sonnet-5-5": msgspec.structs.replace(_BOUND, off="between_tools"),
    "claude-haiku-5-5": msgspec.structs.replace(_5, bound=True),
}
"""Beginning of the model id -> its dialect; the longest match counts."""


@lru_cache(maxsize=1024)
def dialect_of(model_id: str) -> Dialect:
    """The dialect of a model, also under a gateway's spelling such as "anthropic/claude-opus-4.6"."""
    at = model_id.find("claude-")
    name = model_id[at:].replace(".", "-") if at >= 0 else model_id
    return DIALECTS[max((prefix for prefix in DIALECTS if name.startswith(prefix)), key=len)]


def thinking_fields(
    dialect: Dialect, effort: ReasoningEffort | None, max_tokens: int, *, forces_tool: bool, replays_thinking: bool
) -> dict[str, Any]:
    """`thinking` and `output_config` for as much thinking as the caller wants, in the words the model understands."""
    if dialect.thinking == "none":
        return {}
    if forces_tool and dialect.forced_tools == "without_thinking":
        effort = "off"  # "Thinking may not be enabled when tool_choice forces tool use"
    if effort == "off" and dialect.off != "never":
        return {} if dialect.off == "omit" else {"thinking": {"type": dialect.off}}
    if dialect.thinking == "budget":
        return _budget(effort, max_tokens)
    if effort is None and dialect.off == "omit":
        return {}
    fields: dict[str, Any] = {"thinking": _adaptive(dialect, replays_thinking)}
    wanted = "low" if effort == "off" else effort and nearest_effort(effort, dialect.efforts)
    return fields | ({"output_config": {"effort": wanted}} if wanted else {})


def _budget(effort: ReasoningEffort | None, max_tokens: int) -> dict[str, Any]:
    # "Must be >= 1024 and less than max_tokens"; some room is left for the answer itself.
    budget = min(BUDGETS[effort], max_tokens - MIN_BUDGET) if effort else 0
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= MIN_BUDGET else {}


def _adaptive(dialect: Dialect, replays_thinking: bool) -> dict[str, Any]:
    thinking: dict[str, Any] = {"type": "adaptive"}
    if dialect.hides_thinking:
        thinking["display"] = "summarized"
    if dialect.bound and replays_thinking:
        # Callers may change tools and instructions within a conversation; losing old thinking beats a dead end.
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return thinking
