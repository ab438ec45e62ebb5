"""What a run may still cost: the smaller one of its own limit and of what is left of the session's."""

from __future__ import annotations

from makai.core.errors import InvalidRequest
from makai.harness.base import RunPort


def usd_left(port: RunPort) -> float | None:
    """None without a limit. Raises `InvalidRequest` when the session's limit is used up, before anything is spent."""
    limits = [] if port.run.terms.max_usd is None else [port.run.terms.max_usd]
    if (whole := port.session.terms.max_usd) is not None:
        used = port.session.usage.cost_usd or 0.0
        if used >= whole:
            raise InvalidRequest(
                f"The session's budget of {whole:g} USD is used up ({used:.4f} USD spent).",
                hint="Raise it with /budget, or begin a new session.",
            )
        limits.append(whole - used)
    return min(limits, default=None)
