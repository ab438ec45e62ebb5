"""Limits in money, time, turns and tokens.

    python examples/cookbook/budget.py [MODEL]

A run that reaches a limit stops there, and says which one. A model without a known price is refused with `max_usd`,
unless `allow_unknown_price` says that this is fine.
"""

import asyncio
import sys

import makai

MODEL = sys.argv[1] if len(sys.argv) > 1 else "local/smollm2-135m"
LIMITS = {"max_turns": 3, "max_usd": 0.10, "max_seconds": 120, "max_output_tokens": 2_000}


def search(query: str) -> list[str]:
    """Search the archive."""
    return []


async def main() -> None:
    async with makai.connect() as client:
        try:
            answer = await client.agent.run(
                model_ref=MODEL,
                messages="Find the oldest letter about the sea.",
                tools=[search],
                options={**LIMITS, "allow_unknown_price": True},
            )
        except makai.MakaiError as error:
            raise SystemExit(f"Stopped: {error}") from None
        usage = answer.usage or makai.UsageSummary()
        print(answer.text or "(no answer)")
        print(f"Ended with {answer.stop_reason}; {usage.output} tokens, {usage.cost_usd or 0:.4f} dollars")


asyncio.run(main())
