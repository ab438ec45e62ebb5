"""The limits of a run: when one is reached, and how far the next answer may go.

In: `AgentSettings` and what was consumed. Out: a `Limit`, or a cap for the next request. Pure.
"""

from __future__ import annotations

import msgspec

from makai.agent.terms import AgentSettings, LimitKind
from makai.core.messages import StopReason
from makai.core.model import Model
from makai.core.request import StreamOptions
from makai.core.session_events import Notice
from makai.core.usage import Usage


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that was reached."""

    kind: LimitKind
    stop_reason: StopReason
    """The nearest word there is; `kind` says exactly which limit it was."""
    message: str

    def notice(self) -> Notice:
        """What people are told."""
        return Notice(level="warning", code=f"limit_{self.kind}", message=self.message)


def turns_reached(settings: AgentSettings, turns: int) -> Limit | None:
    """The limit of turns, when there can be no further one."""
    if settings.max_turns is None or turns < settings.max_turns:
        return None
    message = f"The run reached its limit of {settings.max_turns} turns."
    return Limit(kind="turns", stop_reason="max_turns", message=message)


def spent(settings: AgentSettings, usage: Usage) -> Limit | None:
    """The limit of tokens or money, when it is used up."""
    tokens, dollars = settings.max_output_tokens, settings.max_usd
    if tokens is not None and usage.output >= tokens:
        message = f"The run reached its limit of {tokens:,} output tokens ({usage.output:,} used)."
        return Limit(kind="output_tokens", stop_reason="max_tokens", message=message)
    if dollars is not None and usage.cost_usd is not None and usage.cost_usd >= dollars:
        message = f"The run reached its limit of {dollars:g} USD ({usage.cost_usd:.4f} used)."
        return Limit(kind="usd", stop_reason="max_tokens", message=message)
    return None


def out_of_time(settings: AgentSettings) -> Limit:
    """The limit of time."""
    message = f"The run reached its limit of {settings.max_seconds:g} s."
    return Limit(kind="seconds", stop_reason="max_turns", message=message)


def capped(options: StreamOptions, settings: AgentSettings, usage: Usage, model: Model) -> StreamOptions:
    """The options with a limit that keeps the next answer within what is left: limits hold inside a turn too."""
    caps = [] if options.max_tokens is None else [options.max_tokens]
    if settings.max_output_tokens is not None:
        caps.append(settings.max_output_tokens - usage.output)
    if settings.max_usd is not None and model.price is not None and model.price.output > 0:
        left_usd = settings.max_usd - (usage.cost_usd or 0.0)
        caps.append(int(left_usd * 1_000_000 / model.price.output))
    most = model.max_output_tokens
    if not caps or (most is not None and options.max_tokens is None and min(caps) >= most):
        return options
    return msgspec.structs.replace(options, max_tokens=max(1, min(caps)))
