"""Many questions, a few at a time; what is done already is not asked again.

    python examples/cookbook/batch.py QUESTIONS.txt ANSWERS.jsonl [MODEL]

One question per line. Stop it and start it again as you like: it continues after the answers that are in the file.
"""

import asyncio
import json
import sys
from pathlib import Path

import makai

if len(sys.argv) < 3:
    sys.exit("Usage: python batch.py QUESTIONS.txt ANSWERS.jsonl [MODEL]")
AT_ONCE = 4
QUESTIONS, ANSWERS = Path(sys.argv[1]), Path(sys.argv[2])
MODEL = sys.argv[3] if len(sys.argv) > 3 else "local/smollm2-135m"


def answered() -> set[str]:
    lines = ANSWERS.read_text(encoding="utf-8").splitlines() if ANSWERS.exists() else []
    return {json.loads(line)["question"] for line in lines}


def keep(question: str, answer: str) -> None:
    with ANSWERS.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"question": question, "answer": answer}) + "\n")


async def ask_all(questions: list[str]) -> int:
    """How many could be answered."""
    room = asyncio.Semaphore(AT_ONCE)

    async def ask(question: str) -> bool:
        async with room:
            try:
                answer = await client.provider.complete(model_ref=MODEL, messages=question)
            except makai.MakaiError as error:  # one failure does not stop the others
                print(f"{question}: {error}", file=sys.stderr)
                return False
            keep(question, answer.text)
            return True

    async with makai.connect() as client:
        return sum(await asyncio.gather(*map(ask, questions)))


done = answered()
waiting = [line for line in QUESTIONS.read_text(encoding="utf-8").splitlines() if line and line not in done]
count = asyncio.run(ask_all(waiting))
print(f"{count} answered, {len(done)} were there, {len(waiting) - count} failed")
