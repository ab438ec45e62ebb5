// An agent on the official TypeScript SDK: it thinks, asks before it edits, and echoes what it was told. See agent.py.
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const { agent: methods, client } = acp.methods;
const cancelled = new Map();
let count = 0;

const text = (words) => ({ type: "text", text: words });

acp
  .agent({ name: "typescript-sdk-example" })
  .onRequest(methods.initialize, () => ({
    protocolVersion: acp.PROTOCOL_VERSION,
    agentCapabilities: { loadSession: false },
    agentInfo: { name: "typescript-sdk-example", version: "1" },
  }))
  .onRequest(methods.session.new, () => {
    const sessionId = `session-${++count}`;
    return { sessionId };
  })
  .onNotification(methods.session.cancel, ({ params }) => cancelled.get(params.sessionId)?.())
  .onRequest(methods.session.prompt, async ({ params, client: editor }) => {
    const { sessionId, prompt } = params;
    const send = (update) => editor.notify(client.session.update, { sessionId, update });
    const say = (words) => send({ sessionUpdate: "agent_message_chunk", content: text(words) });
    const words = prompt.map((block) => block.text ?? "").join("");
    const [first, rest] = words.split(" ");
    if (first === "count") {
      for (let number = 0; number < Number(rest); number++) await say("word ");
    } else if (first === "wait") {
      await say("Waiting. ");
      await new Promise((resolve) => cancelled.set(sessionId, resolve));
      return { stopReason: "cancelled" };
    } else if (first === "edit") {
      const call = { toolCallId: `call-${++count}`, title: "Edit a file", kind: "edit" };
      await send({ sessionUpdate: "tool_call", status: "pending", ...call });
      const { outcome } = await editor.request(client.session.requestPermission, {
        sessionId,
        toolCall: call,
        options: [
          { optionId: "no", name: "Refuse", kind: "reject_once" },
          { optionId: "yes", name: "Allow", kind: "allow_once" },
        ],
      });
      if (outcome.outcome === "cancelled") return { stopReason: "cancelled" };
      const status = outcome.optionId === "yes" ? "completed" : "failed";
      await send({ sessionUpdate: "tool_call_update", toolCallId: call.toolCallId, status });
      await say(`The edit ${status}.`);
    } else {
      await send({ sessionUpdate: "agent_thought_chunk", content: text("Hm.") });
      await say(words);
    }
    return { stopReason: "end_turn" };
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
