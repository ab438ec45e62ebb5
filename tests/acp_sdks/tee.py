"""Stands between an ACP client and its agent and writes down every line: `tee.py RECORD COMMAND ARGS...`.

Lines of the client begin with `>`, those of the agent with `<`. It ends with the agent, whose input ends with its own.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import IO


def copy(source: IO[bytes], target: IO[bytes], record: IO[bytes], mark: bytes) -> None:
    for line in source:
        record.write(mark + line)
        record.flush()
        try:
            target.write(line)
            target.flush()
        except BrokenPipeError:
            return
    target.close()


def main(path: str, *command: str) -> int:
    agent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdin is not None
    assert agent.stdout is not None
    with open(path, "ab") as record:
        arguments = (sys.stdin.buffer, agent.stdin, record, b">")
        threading.Thread(target=copy, args=arguments, daemon=True).start()
        copy(agent.stdout, sys.stdout.buffer, record, b"<")
    return agent.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
