"""What a run of the agent is given, and what it comes to.

In: nothing. Out: `AgentSettings`, `Standing` and `AgentOutcome`. Plain values; nothing here does anything.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from makai.core.errors import MakaiError
from makai.core.messages import StopReason
from makai.core.model import Model
from makai.core.request import StreamOptions
from makai.core.session_events import ToolCalled
from makai.core.usage import Usage

LimitKind: TypeAlias = Literal["turns", "output_tokens", "usd", "seconds"]


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a run goes about it. A limit of None is no limit."""

    model: str | Model | None
    options: StreamOptions = StreamOptions()
    max_turns: int | None = None
    """How many answers of the model; the calls of the last one are still carried out."""
    max_output_tokens: int | None = None
    """In all turns together, reasoning included."""
    max_usd: float | None = None
    max_seconds: float | None = None
    """Wall clock: waiting for people and providers counts."""
    max_parallel_tools: int = 8
    max_same_calls: int = 3
    """An identical call that comes so often in a row is not carried out."""
    quiet_notice_s: float = 15.0
    """After how much silence of the provider people are told."""
    max_waits: int = 3
    """How often in a row a rate limit or an overload is waited for."""
    longest_wait_s: float = 300.0
    """A provider that wants us to wait longer than this has failed."""
    first_wait_s: float = 2.0
    """When the provider does not say how long; doubled each time."""
    stop_grace_s: float = 5.0
    """How long a cancelled tool may take to clean up."""
    compact_at: float = 0.85
    """How full the context window may get before older turns are summarised."""
    compact_every: int = 5
    """At most one compaction in so many turns: a summary that does not help is not tried again and again."""
    keep_tokens: int | None = None
    """How much of the newest conversation a compaction keeps word for word; by default a fifth of the
    window, or a third of the conversation when that is less."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where the run stands when the loop takes it over; anything but the default when it is resumed or has a past."""

    places: tuple[int, ...] = ()
    """For each message of the conversation, the last event of the log that it is made of. Without them the
    conversation before this run can only be summarised as a whole."""
    turns: int = 0
    """How many turns the run had."""
    usage: Usage = Usage()
    """What these turns consumed."""
    usage_before: Usage = Usage()
    """What the session consumed before this run."""
    seconds: float = 0.0
    """How long the run has been going."""
    open_calls: tuple[ToolCalled, ...] = ()
    """Calls of the newest answer that nobody carried out yet; they come first."""


class AgentOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the run ended. Exactly one per run; there is none for a run that was cancelled."""

    stop_reason: StopReason
    usage: Usage = Usage()
    """Of all its turns and summaries."""
    error: MakaiError | None = None
    """Only with stop reason "error"."""
    limit: LimitKind | None = None
    """Which limit ended the run, if one did."""
