"""Tokens, money and time as short text. Pure."""

from __future__ import annotations

from makai.cli.terminal.styled_text import Lines, lines_of
from makai.core.durations import duration as duration
from makai.core.session_events import UsageReported
from makai.core.usage import Usage


def tokens(count: int) -> str:
    """950, 1.2k or 3.4M."""
    if count < 1_000:
        return str(count)
    if count < 1_000_000:
        return f"{count / 1_000:.1f}k"
    return f"{count / 1_000_000:.1f}M"


def money(usd: float) -> str:
    """With fractions of a cent below a dollar."""
    return f"${usd:.4f}" if usd < 1 else f"${usd:.2f}"


def run_totals(usage: Usage, seconds: int) -> str:
    parts = [f"{tokens(all_input(usage))} in, {tokens(usage.output)} out"]
    if usage.cost_usd:
        parts.append(money(usage.cost_usd))
    if seconds:
        parts.append(duration(seconds))
    return f"[{', '.join(parts)}]"


def session_totals(usage: Usage, newest: UsageReported | None) -> Lines:
    parts = [
        f"  input    {usage.input:,} tokens",
        f"  caches   {usage.cache_read:,} tokens read, {usage.cache_write:,} written",
        f"  output   {usage.output:,} tokens",
        "  cost     " + ("unknown" if usage.cost_usd is None else money(usage.cost_usd)),
    ]
    if newest is not None and newest.context_tokens is not None:
        window = f" of {newest.context_window:,}" if newest.context_window else ""
        parts.append(f"  context  {newest.context_tokens:,}{window} tokens")
    return Lines(lines=tuple(lines_of("\n".join(parts))))


def all_input(usage: Usage) -> int:
    """Input tokens, cached ones included."""
    return usage.input + usage.cache_read + usage.cache_write


def context_share(usage: UsageReported | None) -> str:
    """How full the context is, such as "12% of context"; empty when it is unknown."""
    if usage is None or not usage.context_tokens or not usage.context_window:
        return ""
    return f"{100 * usage.context_tokens // usage.context_window}% of context"
