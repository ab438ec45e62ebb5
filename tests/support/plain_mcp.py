"""An MCP server without the SDK, for an interpreter that a sandbox can see: the one of the tests may be in /tmp."""

from __future__ import annotations

import os
import sys

PYTHON = os.path.realpath(sys.executable)
SERVER = """
import json, os, socket, sys

TOOLS = ("echo", "cwd", "connect", "plant", "write")

def plant(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "w").write("evil")
    return "planted"

def call(name, arguments):
    if name == "plant":
        return plant(arguments["path"])
    if name == "write":
        try:
            open(arguments["path"], "w").close()
            return "written"
        except OSError:
            return "refused"
    if name != "connect":
        return os.getcwd() if name == "cwd" else arguments["text"]
    try:
        socket.create_connection(("127.0.0.1", arguments["port"]), 5).close()
        return "connected"
    except OSError:
        return "refused"

def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}, "prompts": {}},
                "serverInfo": {"name": "plain", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    if method == "prompts/list":
        arguments = [{"name": "topic", "required": True}, {"name": "length"}]
        return {"prompts": [{"name": "summary", "description": "Sum\\x1b[2J up.", "arguments": arguments}]}
    if method == "prompts/get":
        text = {"type": "text", "text": "Summarise " + json.dumps(params["arguments"], sort_keys=True)}
        return {"messages": [{"role": "user", "content": text}]}
    return {"content": [{"type": "text", "text": call(params["name"], params["arguments"])}]}

for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params"))
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""

GATED_SERVER = """
import json, sys, threading

gate, up = sys.argv[1:3]
open(gate).close()  # a named pipe: blocks until the test opens it

def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

listed = False
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    if request["method"] == "initialize":
        result = {"protocolVersion": request["params"]["protocolVersion"],
                  "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "gated", "version": "1"}}
    elif request["method"] == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    else:
        result = {"content": [{"type": "text", "text": request["params"]["arguments"]["text"]}]}
    send({"id": request["id"], "result": result})
    if request["method"] == "tools/list" and not listed:
        listed = True
        send({"method": "notifications/tools/list_changed"})
    elif request["method"] == "tools/list":
        # Listed again: the client has taken the first list over.
        threading.Thread(target=lambda: open(up, "w").close(), daemon=True).start()
"""
"""Answers once the named pipe `gate` is opened, and opens the named pipe `up` when its tools are known."""
