"""A scripted `codex app-server`, well or badly behaved, as a program with nothing but the standard library.

Each line of the last part of a prompt is a step: `say TEXT`, `run ID COMMAND` (asks first), `early ID COMMAND` (asks
before the item is reported), `slow ID` (a command that runs until the turn is interrupted), `deaf` (does nothing more),
`ask METHOD JSON` (says the answer), `raw LINE`, `part TEXT` (no newline), `junk N`, `big BYTES`, `stray`, `steered`,
`env`, `params`, `hidden MESSAGE`, `fail KIND MESSAGE`, `die CODE`. It withdraws a question when it is steered
meanwhile. Its first argument has settings as JSON: `version`, `first` (lines before everything else), `dies` (exit code
at once), `known` (a file with the id of its last thread), `account`.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

SETTINGS = json.loads(sys.argv[1])
incoming: Queue[dict[str, Any]] = Queue()
state: dict[str, Any] = {"thread": f"thread-{os.getpid()}", "turn": 0, "started": {}}
ids = count(1)


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def send(message: dict[str, Any]) -> None:
    write(json.dumps(message) + "\n")


def tell(method: str, **params: Any) -> None:
    send({"method": method, "params": {"threadId": state["thread"], "turnId": f"turn-{state['turn']}", **params}})


def item(when: str, kind: str, name: str, **members: Any) -> None:
    tell(f"item/{when}", item={"type": kind, "id": name, **members})


def say(text: str) -> None:
    name = f"m{next(ids)}"
    tell("item/agentMessage/delta", itemId=name, delta=text)
    item("completed", "agentMessage", name, text=text)


def ask(method: str, params: dict[str, Any]) -> int:
    number = next(ids)
    send({"id": number, "method": method, "params": {"threadId": state["thread"], "turnId": "t", **params}})
    return number


def answered(number: int) -> dict[str, Any] | None:
    """The client's answer, or None when the turn is interrupted meanwhile."""
    while True:
        message = incoming.get()
        if message.get("id") == number and "method" not in message:
            return message
        if message.get("method") in ("turn/interrupt", "turn/steer"):
            send({"id": message["id"], "result": {}})
            tell("serverRequest/resolved", requestId=number)
            if message["method"] == "turn/interrupt":
                return None


def run(name: str, command: str, *, is_early: bool) -> str | None:
    shown = {"command": command, "cwd": os.getcwd(), "status": "inProgress"}
    asked = {"itemId": name, "command": command, "cwd": os.getcwd(), "availableDecisions": ["accept", "cancel"]}
    if is_early:
        number = ask("item/commandExecution/requestApproval", asked)
    item("started", "commandExecution", name, **shown)
    if not is_early:
        number = ask("item/commandExecution/requestApproval", asked)
    decision = (answered(number) or {}).get("result", {}).get("decision", "none")
    if decision in ("none", "cancel"):
        return "interrupted"
    ended: dict[str, Any] = {"status": "completed", "exitCode": 0, "aggregatedOutput": "out"}
    item(
        "completed", "commandExecution", name, **(shown | ({"status": "declined"} if decision == "decline" else ended))
    )
    say(f"decision {decision}")
    return None


def until_interrupted() -> str:
    while True:
        message = incoming.get()
        if message.get("method") == "turn/interrupt":
            send({"id": message["id"], "result": {}})
            return "interrupted"


def step(word: str, rest: str) -> str | dict[str, Any] | None:  # noqa: C901
    match word:
        case "say":
            say(rest)
        case "run" | "early":
            name, _, command = rest.partition(" ")
            return run(name, command, is_early=word == "early")
        case "slow":
            item("started", "commandExecution", rest, command="sleep 600", cwd="/", processId="1", status="inProgress")
            tell("item/commandExecution/outputDelta", itemId=rest, delta="tick\n")
            return until_interrupted()
        case "ask":
            method, _, params = rest.partition(" ")
            said = answered(ask(method, json.loads(params)))
            if said is None:
                return "interrupted"
            say(json.dumps(said.get("result", said.get("error")), sort_keys=True))
        case "deaf":
            Queue[None]().get()
        case "raw":
            write(rest + "\n")
        case "part":
            write(rest)
        case "junk":
            write("progress\n" * int(rest))
        case "big":
            write('{"method":"x","params":{"text":"' + "x" * int(rest) + '"}}\n')
        case "stray":
            send({"id": 987654, "result": {}})
            send({"id": "none", "error": {"code": 1, "message": "x"}})
        case "steered":
            further = incoming.get()
            send({"id": further["id"], "result": {"turnId": further["params"]["expectedTurnId"]}})
            say(f"steered: {further['params']['input'][0]['text']}")
        case "env":
            say(json.dumps(dict(os.environ)))
        case "params":
            say(json.dumps(state["started"], sort_keys=True))
        case "hidden":
            return {"message": rest, "status": "completed"}
        case "fail":
            kind, _, message = rest.partition(" ")
            return {"message": message, "codexErrorInfo": kind, "status": "failed"}
        case "die":
            sys.stderr.write("it broke\n")
            os._exit(int(rest))
    return None


def turn(message: dict[str, Any]) -> None:
    state["turn"] += 1
    state["started"]["turn"] = {k: v for k, v in message["params"].items() if k != "input"}
    begun = {"id": f"turn-{state['turn']}", "status": "inProgress", "error": None}
    send({"id": message["id"], "result": {"turn": begun}})
    tell("turn/started", turn=begun)
    ended = "completed"
    error: dict[str, Any] | None = None
    for line in message["params"]["input"][-1]["text"].splitlines():
        word, _, rest = line.partition(" ")
        found = step(word, rest)
        if isinstance(found, str):
            ended = found
            break
        if found is not None:
            ended, error = found.pop("status"), found
            break
    tell("turn/completed", turn={**begun, "status": ended, "error": error})


def answer(message: dict[str, Any]) -> None:
    method, params = message.get("method"), message.get("params") or {}
    if method == "turn/start":
        turn(message)
        return
    result: Any = {}
    known = Path(SETTINGS.get("known", "/nonexistent"))
    if method == "thread/resume":
        if not known.exists() or params["threadId"] not in known.read_text(encoding="utf-8").split():
            send({"id": message["id"], "error": {"code": -32600, "message": "no rollout found"}})
            return
        state["thread"] = params["threadId"]
    if method in ("thread/start", "thread/resume"):
        state["started"][method] = params
        if "known" in SETTINGS:
            known.write_text(state["thread"], encoding="utf-8")
        result = {"thread": {"id": state["thread"]}, "model": params.get("model") or "m1"}
    elif method == "model/list":
        shown = [{"id": "m1", "displayName": "M One", "hidden": False}, {"id": "m2", "hidden": True}]
        result = {"data": shown, "nextCursor": None}
    elif method == "account/read":
        result = SETTINGS.get("account", {"account": {"type": "apiKey"}, "requiresOpenaiAuth": True})
    if "id" in message and method:
        send({"id": message["id"], "result": result})


def read() -> None:
    for line in sys.stdin:
        incoming.put(json.loads(line))
    os._exit(0)


def main() -> None:
    if sys.argv[2:] == ["--version"]:
        write(SETTINGS.get("version", "codex-cli 0.166.0") + "\n")
        return
    for line in SETTINGS.get("first", ()):
        write(line + "\n")
    if "dies" in SETTINGS:
        sys.stderr.write("no such option\n")
        os._exit(SETTINGS["dies"])
    Thread(target=read, daemon=True).start()
    while True:
        answer(incoming.get())


if __name__ == "__main__":
    main()
