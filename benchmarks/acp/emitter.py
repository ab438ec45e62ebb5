"""An agent made of bytes: it sends as many updates as the prompt says, in one write, so that only its client works."""

from __future__ import annotations

import json
import sys

UPDATE = (
    b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"session","update":'
    b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"word,"}}}}\n'
)
RESULTS = {
    "initialize": {"protocolVersion": 1, "agentInfo": {"name": "emitter", "version": "1"}},
    "session/new": {"sessionId": "session"},
    "session/prompt": {"stopReason": "end_turn"},
}


def main() -> None:
    for line in sys.stdin.buffer:
        frame = json.loads(line)
        if "id" not in frame:
            continue
        if frame["method"] == "session/prompt":
            text = "".join(block.get("text", "") for block in frame["params"]["prompt"])
            sys.stdout.buffer.write(UPDATE * int(text.split()[-1]))
        answer = {"jsonrpc": "2.0", "id": frame["id"]}
        result = RESULTS.get(frame["method"])
        answer |= {"result": result} if result else {"error": {"code": -32601, "message": "No such method."}}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
