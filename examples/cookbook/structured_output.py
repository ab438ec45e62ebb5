"""An answer that is a Python value, not text.

    python examples/cookbook/structured_output.py [MODEL]

`output` takes a dataclass, a msgspec Struct, a TypedDict, a pydantic model, a list of them, or a JSON Schema. The
answer is validated here. One that does not fit goes back to the model with what is wrong about it.
"""

import asyncio
import sys
from typing import Literal

from pydantic import BaseModel, Field

import makai

MODEL = sys.argv[1] if len(sys.argv) > 1 else "local/smollm2-135m"
REVIEW = "Bought it for Ada. It broke after two days, but the shop was kind and paid me back all 25 euros."


class Review(BaseModel):
    mood: Literal["happy", "neutral", "angry"]
    refund: float = Field(ge=0, description="In euros; 0 for none.")
    topics: list[str]


async def main() -> None:
    async with makai.connect() as client:
        try:
            answer = await client.agent.run(model_ref=MODEL, messages=f"Classify this: {REVIEW}", output=Review)
        except makai.MakaiStreamError as error:
            raise SystemExit(f"The model did not manage: {error}") from None
        review: Review = answer.output
        print(f"{review.mood}, {review.refund:.2f} euros back, about {' and '.join(review.topics)}")


asyncio.run(main())
