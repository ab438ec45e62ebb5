"""Your own functions are the agent's tools.

    python examples/cookbook/tools.py [MODEL]

The model sees the name, the types and the docstring. Wrong arguments never reach the function: the model gets an error
that it can correct. What a function raises is an error for the model too, and the run continues.
"""

import sys
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

import makai

MODEL = sys.argv[1] if len(sys.argv) > 1 else "local/smollm2-135m"


@dataclass
class Forecast:
    day: date
    degrees: float


def forecast(city: str, first_day: date, days: int = 1, unit: Literal["C", "F"] = "C") -> list[Forecast]:
    """Forecast the weather.

    Args:
        city: A city of Italy.
        days: At most 7.
    """
    if city != "Rome":
        raise ValueError(f"there is no forecast for {city}")
    degrees = 30.5 if unit == "C" else 86.9
    return [Forecast(first_day + timedelta(days=number), degrees) for number in range(min(days, 7))]


@makai.tool(name="notes", description="Look up what the user wrote down about a city.", timeout_s=10)
async def look_up_notes(city: str) -> str:
    return f"{city}: avoid August."


with makai.connect_sync() as client:
    answer = client.agent.run(
        model_ref=MODEL,
        messages="Should I go to Rome on the first of May 2026 for two days?",
        tools=[forecast, look_up_notes],
    )
    print(answer.text)
