"""`makai serve` that also says how many asyncio tasks it has; only a test of leaks wants to know.

Put before the command of a server: `python soak_server.py QUESTIONS python -m makai serve ...`. QUESTIONS is a named
pipe; each line that is written to it names a file, into which a thread writes the number of tasks.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from pathlib import Path

from makai.cli.main import main


def _answer_questions(questions: Path) -> None:
    while True:
        for line in questions.read_text(encoding="utf-8").splitlines():
            gc.collect()
            tasks = [found for found in gc.get_objects() if isinstance(found, asyncio.Task) and not found.done()]
            draft = Path(f"{line}.draft")
            draft.write_text(str(len(tasks)), encoding="ascii")
            draft.rename(line)


threading.Thread(target=_answer_questions, args=(Path(sys.argv[1]),), daemon=True).start()
sys.argv[:] = ["makai", *sys.argv[sys.argv.index("makai") + 1 :]]
main()
