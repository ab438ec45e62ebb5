/** Tools that this client serves to sessions of others: word by word, and with the real server. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import type { Envelope } from "../src/envelope.js";
import { type AgentStreamEvent, createMakaiClient, type MakaiClientOptions, type ServedToolCall } from "../src/index.js";
import { collect, facts, FakeServer, failureOf } from "./support/fake_server.js";
import { type Ended, MODEL_REF, overStdio, overWebSocket, skipReal } from "./support/real_server.js";
import { req } from "./support/req.js";

const WATCH = { name: "watch", description: "Watch", parameters_schema_json: '{"type":"object"}' };
const TRANSPORTS: Record<string, (t: Ended) => MakaiClientOptions | Promise<MakaiClientOptions>> = {
  stdio: overStdio,
  WebSocket: overWebSocket,
};

function request(number: number): Record<string, unknown> {
  const ids = { execution_id: `e${number}`, tool_call_id: `c${number}`, session_id: "s", run_id: "r" };
  return { ...ids, tool_name: "watch", arguments: { number }, timeout_ms: 1 };
}

async function registered(server: FakeServer): Promise<Envelope> {
  const register = await server.next("tool_register");
  server.ack(register);
  server.reply(register, "tool_registered", { server_id: "desk", tools: ["desk__watch"] });
  return register;
}

test(`calls are started, shown and answered, and those beyond the limit wait ${req("MK-TOOL-012")}`, async () => {
  const server = new FakeServer();
  const { tools } = await server.client();
  const calls: ServedToolCall[] = [];
  const execute = async (call: ServedToolCall): Promise<unknown> => {
    calls.push(call);
    call.progress("Looking.");
    return { seen: call.arguments["number"] };
  };
  const serving = tools.serve("desk", { tools: [WATCH], execute, timeout_ms: 7, max_parallel: 1 });
  const register = await registered(server);
  assert.deepEqual(register.payload, { tools: [WATCH], timeout_ms: 7 });
  const served = await serving;
  assert.deepEqual(served.tool_names, ["desk__watch"]);
  server.say(register, "tool_request", request(1));
  server.say(register, "tool_request", request(2));
  for (const number of [1, 2]) {
    const execution_id = `e${number}`;
    assert.deepEqual((await server.next("tool_execution_start")).payload, { execution_id });
    assert.deepEqual((await server.next("tool_execution_update")).payload, { execution_id, text: "Looking." });
    const response = await server.next("tool_response");
    assert.deepEqual(response.payload, { execution_id, content: `{"seen":${number}}` });
  }
  assert.deepEqual(calls.map(({ name, session_id, tool_call_id }) => [name, session_id, tool_call_id]), [
    ["watch", "s", "c1"],
    ["watch", "s", "c2"],
  ]);
  const closing = served.close();
  const end = await server.next("tool_unregister");
  server.ack(end);
  server.reply(end, "tool_unregistered", { server_id: "desk" });
  await Promise.all([closing, served.closed]);
  server.beginAnew(register);
  const again = tools.serve("desk", { tools: [WATCH], execute });
  assert.equal((await registered(server)).sequence, 1);
  await again;
});

test(`a call that is cancelled is aborted and not answered; one that throws is ${req("MK-TOOL-013")}`, async () => {
  const server = new FakeServer();
  const { tools } = await server.client();
  const signals: AbortSignal[] = [];
  const execute = (call: ServedToolCall): Promise<unknown> => {
    signals.push(call.signal);
    if (call.arguments["number"] === 2) throw new Error("no");
    return new Promise((resolve) => call.signal.addEventListener("abort", () => resolve("late")));
  };
  const serving = tools.serve("desk", { tools: [WATCH], execute });
  const register = await registered(server);
  await serving;
  server.say(register, "tool_request", request(1));
  await server.next("tool_execution_start");
  server.say(register, "tool_cancel", { execution_id: "e1", code: "aborted", reason: "Stopped." });
  server.say(register, "tool_request", request(2));
  await server.next("tool_execution_start");
  const response = await server.next("tool_response");
  assert.deepEqual(response.payload, { execution_id: "e2", content: "Error: no", is_error: true });
  assert.deepEqual(signals.map(({ aborted }) => aborted), [true, false]);
});

test("refusals, a lost connection and a second server of one id are failures", async () => {
  const server = new FakeServer();
  const { tools } = await server.client();
  assert.equal(facts(await failureOf(tools.serve("desk", { tools: [WATCH] })))["code"], "invalid_request");
  const execute = (): string => "";
  const refused = tools.serve("desk", { tools: [WATCH], execute });
  const register = await server.next("tool_register");
  server.nack(register, "forbidden", "The tool server 'desk' is registered by another token.");
  assert.equal(facts(await failureOf(refused))["code"], "forbidden");
  server.beginAnew(register);
  const serving = tools.serve("desk", { tools: [WATCH], execute });
  await registered(server);
  const served = await serving;
  assert.equal(facts(await failureOf(tools.serve("desk", { tools: [WATCH], execute })))["code"], "invalid_request");
  server.drop();
  assert.equal(facts(await failureOf(served.closed))["kind"], "transport_error");
  await served.close();
});

for (const [transport, options] of Object.entries(TRANSPORTS)) {
  describe(`over ${transport}`, { skip: skipReal, timeout: 60_000 }, () => {
    test(`the agent of another client uses a served tool until it is closed ${req("MK-TOOL-012")}`, async (t) => {
      const reached = await options(t);
      const [program, client] = [await createMakaiClient(reached), await createMakaiClient(reached)];
      t.after(() => Promise.all([program.close(), client.close()]));
      const seen: unknown[] = [];
      const execute = (args: Record<string, unknown>): string => {
        seen.push(args);
        return "Water.";
      };
      const run = async (): Promise<unknown[]> => {
        const messages = [{ role: "user" as const, content: "serve" }];
        const asked = { model_ref: MODEL_REF, messages, tool_servers: ["desk"], options: { max_turns: 1 } };
        const events: AgentStreamEvent[] = await collect(client.agent.stream(asked));
        return events.filter(({ type }) => type === "tool_execution_end").map((event) => "is_error" in event);
      };
      const served = await program.tools.serve("desk", { tools: [{ ...WATCH, execute }] });
      assert.deepEqual(await run(), [false]);
      await served.close();
      assert.deepEqual(await run(), [true]);
      assert.deepEqual(seen, [{ at: "sea" }]);
    });
  });
}
