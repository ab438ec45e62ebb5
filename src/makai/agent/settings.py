"""What a run of the agent is given, what it comes to, and the limits it is held to."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from makai.core.errors import InvalidRequest, MakaiError
from makai.core.messages import StopReason
from makai.core.model import Model
from makai.core.request import StreamOptions
from makai.core.session_events import ToolCalled
from makai.core.usage import Usage

LimitKind: TypeAlias = Literal["turns", "output_tokens", "usd", "seconds"]


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a run works. A limit of None is no limit."""

    model: str | Model | None
    options: StreamOptions = StreamOptions()
    max_turns: int | None = None
    """Answers of the model; the calls of the last one are still run."""
    max_output_tokens: int | None = None
    """In all turns together, reasoning included."""
    max_usd: float | None = None
    allow_unknown_price: bool = False
    """Whether a run may begin whose `max_usd` cannot be kept, because the price of the model is unknown."""
    max_seconds: float | None = None
    """Wall clock: waiting for people and providers counts."""
    tool_servers: tuple[str, ...] = ()
    """How the names of tools of programs begin that may not be connected: a call of an unknown one is unavailable."""
    max_parallel_tools: int = 8
    max_same_calls: int = 3
    """An identical call that comes so often in a row is not run."""
    quiet_notice_s: float = 15.0
    """After how much silence of the provider a notice says so."""
    stop_grace_s: float = 5.0
    """How long a cancelled tool may take to clean up."""
    compact_at: float = 0.85
    """How full the context window may get before older turns are summarised."""
    compact_every: int = 5
    """At most one compaction in so many turns, whether it helped or not."""
    keep_tokens: int | None = None
    """How much of the newest conversation a compaction keeps word for word; by default a fifth of the
    window, or a third of the conversation when that is less."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where the run continues; the default for the first run of a session."""

    places: tuple[int, ...] = ()
    """For each message of the conversation, the last event of the log that it is made of. Without them the
    conversation before this run can only be summarised as a whole."""
    turns: int = 0
    """The turns of the run so far."""
    usage: Usage = Usage()
    """Of these turns."""
    usage_before: Usage = Usage()
    """Of the session before this run."""
    seconds: float = 0.0
    """How long the run has taken so far."""
    open_calls: tuple[ToolCalled, ...] = ()
    """Calls of the newest answer without a result; they are run first."""


def price_problem(settings: AgentSettings, model: Model) -> InvalidRequest | None:
    """Why the run's limit of money cannot be kept; None when it can be, or when there is none."""
    if settings.max_usd is None or model.price is not None:
        return None
    return InvalidRequest(
        f"The price of {model.id} is unknown: the limit of {settings.max_usd:g} USD cannot be kept.",
        hint="Limit turns or tokens instead, use a model with a known price (`makai models list`), or accept it with "
        "--allow-unknown-price (allow_unknown_price in an SDK).",
    )


class AgentOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the run ended. Exactly one per run; there is none for a run that was cancelled."""

    stop_reason: StopReason
    usage: Usage = Usage()
    """Of all its turns and summaries."""
    error: MakaiError | None = None
    """Only with stop reason "error"."""
    limit: LimitKind | None = None
    """Which limit ended the run, if one did."""


class Limit(msgspec.Struct, frozen=True):
    kind: LimitKind
    stop_reason: StopReason
    """The nearest word there is; `kind` says exactly which limit it was."""
    message: str


def turns_reached(settings: AgentSettings, turns: int) -> Limit | None:
    if settings.max_turns is None or turns < settings.max_turns:
        return None
    return Limit("turns", "max_turns", f"The run reached its limit of {settings.max_turns} turns.")


def spent(settings: AgentSettings, usage: Usage) -> Limit | None:
    """The limit of tokens or money, when it is used up."""
    tokens, dollars = settings.max_output_tokens, settings.max_usd
    if tokens is not None and usage.output >= tokens:
        message = f"The run reached its limit of {tokens:,} output tokens ({usage.output:,} used)."
        return Limit("output_tokens", "max_tokens", message)
    if dollars is not None and usage.cost_usd is not None and usage.cost_usd >= dollars:
        message = f"The run reached its limit of {dollars:g} USD ({usage.cost_usd:.4f} used)."
        return Limit("usd", "max_tokens", message)
    return None


def out_of_time(settings: AgentSettings) -> Limit:
    return Limit("seconds", "max_turns", f"The run reached its limit of {settings.max_seconds:g} s.")


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
