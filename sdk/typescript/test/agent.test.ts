/** Sessions on one connection, against a server whose every word the test chooses. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { resultOf } from "../src/callbacks.js";
import type { Envelope, Payload } from "../src/envelope.js";
import type { AgentRunRequest, AgentRunResponse, MakaiClient, PermissionDecision } from "../src/index.js";
import { collect, facts, FakeServer, failureOf } from "./support/fake_server.js";

const RUN = "run-1";
const CALL = { tool_call_id: "c1", tool_name: "look", arguments: { at: "sea" }, run_id: RUN };

/** A client, and the server that the test plays. */
class Stage {
  readonly server = new FakeServer();
  readonly session_id = crypto.randomUUID();
  readonly client: Promise<MakaiClient> = this.server.client();

  async run(more: Partial<AgentRunRequest> = {}): Promise<AgentRunResponse> {
    return (await this.client).agent.run(this.request(more));
  }

  request(more: Partial<AgentRunRequest> = {}): AgentRunRequest {
    const { session_id } = this;
    return { model_ref: "m", messages: [{ role: "user", content: "Hi" }], options: { session_id }, ...more };
  }

  async start(): Promise<Envelope> {
    const start = await this.server.next("agent_start");
    this.server.ack(start);
    this.server.reply(start, "agent_started", { session_id: this.session_id, event_id: 1, resumed: true });
    return start;
  }

  async message(): Promise<Envelope> {
    const message = await this.server.next("agent_message");
    this.server.ack(message);
    this.event(message, { type: "agent_start", session_id: this.session_id });
    return message;
  }

  event(request: Envelope, event: Payload, run_id = RUN, more: Payload = {}): void {
    this.server.say(request, "agent_event", { event, run_id, ...more });
  }

  settle(message: Envelope, more: Payload = {}): void {
    this.event(message, { type: "agent_end", stop_reason: "end_turn", usage: { input: 1, output: 2 } });
    const content = [{ type: "text", text: "Done." }];
    const result = { message: { role: "assistant", content }, run_id: RUN, usage: {}, ...more };
    this.server.reply(message, "agent_result", result);
  }

  async letGo(): Promise<Payload> {
    const stop = await this.server.next("agent_stop");
    this.server.ack(stop);
    this.server.reply(stop, "agent_stopped", { session_id: this.session_id });
    this.server.beginAnew(stop);
    return stop.payload;
  }
}

test("a session is let go of after each run, and counted from one again", async () => {
  const stage = new Stage();
  for (let round = 0; round < 2; round += 1) {
    const run = stage.run({ messages: [{ role: "system", content: "Be brief." }, { role: "user", content: "Hi" }] });
    const start = await stage.start();
    const message = await stage.message();
    stage.settle(message);

    assert.deepEqual((await run).message.content, [{ type: "text", text: "Done." }]);
    assert.deepEqual([start.sequence, message.sequence], [1, 2]);
    assert.deepEqual(start.payload, { model_ref: "m", system_prompt: "Be brief.", resume: true });
    assert.deepEqual(message.payload, { messages: [{ role: "user", content: "Hi" }], options: {} });
    assert.deepEqual(await stage.letGo(), { detach: true });
  }
});

test("a run has the warnings of its result", async () => {
  const stage = new Stage();
  const run = stage.run();
  await stage.start();
  stage.settle(await stage.message(), { warnings: ["acme does not take `stop`."] });

  assert.deepEqual((await run).warnings, ["acme does not take `stop`."]);
});

test("a run that failed has the warnings of its error", async () => {
  const stage = new Stage();
  const run = stage.run();
  await stage.start();
  const message = await stage.message();
  const error = { code: "provider_error", message: "It broke.", warnings: ["acme does not take `stop`."] };
  stage.server.reply(message, "agent_error", error);

  await assert.rejects(run, { message: "It broke.", warnings: ["acme does not take `stop`."] });
});

test("a run that waited for its session lets go of it too", async () => {
  const stage = new Stage();
  const first = stage.run();
  await stage.start();
  stage.settle(await stage.message());
  await first;
  const second = stage.run();
  assert.deepEqual(await stage.letGo(), { detach: true });
  await stage.start();
  stage.settle(await stage.message());

  assert.equal((await second).session_id, stage.session_id);
  assert.deepEqual(await stage.letGo(), { detach: true });
});

test("a named session that does not exist is begun", async () => {
  const stage = new Stage();
  const run = stage.run();
  const missing = await stage.server.next("agent_start");
  stage.server.nack(missing, "session_not_found", "no such session");
  stage.server.beginAnew(missing);
  const start = await stage.start();
  stage.settle(await stage.message());
  await run;

  assert.deepEqual([start.sequence, start.payload["resume"]], [1, undefined]);
});

test("another agent is named when its session is begun, with one of its models or none", async () => {
  for (const [model_ref, sent] of [["", undefined], ["flash", "flash"]] as const) {
    const stage = new Stage();
    const run = stage.run({ agent: "gemini", model_ref, options: {} });
    const start = await stage.start();
    stage.settle(await stage.message());
    await run;

    assert.deepEqual([start.payload["agent"], start.payload["model_ref"]], ["gemini", sent]);
  }
});

test("a busy session is left alone", async () => {
  const stage = new Stage();
  const run = failureOf(stage.run());
  await stage.start();
  const message = await stage.server.next("agent_message");
  stage.server.reply(message, "agent_error", { code: "agent_busy", message: "A run is active." });

  assert.equal(facts(await run)["code"], "agent_busy");
  assert.deepEqual(await stage.letGo(), { detach: true });
});

for (const accepted of [true, false]) {
  test(`who leaves before his words are ${accepted ? "taken" : "refused"} stops only a run of his own`, async () => {
    const stage = new Stage();
    const controller = new AbortController();
    const run = failureOf(stage.run({ signal: controller.signal }));
    await stage.start();
    const message = await stage.server.next("agent_message");
    controller.abort();
    assert.equal(facts(await run)["kind"], "aborted");
    if (accepted) stage.server.ack(message);
    else stage.server.nack(message, "agent_busy", "busy");

    assert.deepEqual(await stage.letGo(), { detach: !accepted });
  });
}

test("who leaves while the session is opened lets go of it, and the next one gets it", async () => {
  const stage = new Stage();
  const controller = new AbortController();
  const run = failureOf(stage.run({ signal: controller.signal }));
  const start = await stage.server.next("agent_start");
  controller.abort();
  await run;
  const again = stage.run();
  stage.server.ack(start);
  stage.server.reply(start, "agent_started", { session_id: stage.session_id });
  assert.deepEqual(await stage.letGo(), { detach: true });
  await stage.start();
  stage.settle(await stage.message());

  assert.equal((await again).run_id, RUN);
});

test("a session that this client uses is busy", async () => {
  const stage = new Stage();
  const run = stage.run();
  await stage.start();
  const message = await stage.message();
  assert.equal(facts(await failureOf(stage.run()))["code"], "agent_busy");
  stage.settle(message);
  await run;
});

test("events of other runs, fields and events of later versions are not told", async () => {
  const stage = new Stage();
  const stream = (await stage.client).agent.stream(stage.request());
  const events = collect(stream);
  const start = await stage.start();
  stage.event(start, { type: "agent_start", session_id: stage.session_id }, "another");
  const message = await stage.server.next("agent_message");
  stage.event(start, { type: "text_delta", delta: "not ours" }, "another");
  stage.server.ack(message);
  stage.event(message, { type: "agent_start", session_id: stage.session_id });
  stage.event(message, { type: "daydream" });
  stage.event(message, { type: "text_delta", delta: "ours", mood: "blue" }, RUN, { event_id: 9 });
  stage.settle(message);

  assert.deepEqual(await events, [
    { type: "agent_start", session_id: stage.session_id },
    { type: "text_delta", delta: "ours" },
    { type: "agent_end", stop_reason: "end_turn", usage: { input: 1, output: 2 } },
  ]);
  assert.equal(stream.event_id, 9);
  await assert.rejects(async () => {
    for await (const _ of (await stage.client).agent.attach(""));
  }, /1 to 256 characters/);
});

test("what a tool answers is its result, as text, parts, or JSON", () => {
  const parts = [{ type: "text" as const, text: "a" }];
  assert.deepEqual(resultOf("Water."), { content: "Water." });
  assert.deepEqual(resultOf(undefined), { content: "" });
  assert.deepEqual(resultOf(parts), { content: parts });
  assert.deepEqual(resultOf({ depth: [1] }), { content: '{"depth":[1]}' });
  assert.deepEqual(resultOf({ content: parts, is_error: true, more: 1 }), { content: parts, is_error: true });
});

test("a tool that throws or does not exist is an error result, and one that is no longer wanted is aborted", async () => {
  const stage = new Stage();
  let given: AbortSignal | undefined;
  const tool = { name: "look", description: "", parameters_schema_json: "{}" };
  const execute = (args: Record<string, any>, { signal }: { signal: AbortSignal }): Promise<never> => {
    given = signal;
    return args["at"] === "sea" ? Promise.reject(new RangeError("Storm.")) : new Promise(() => undefined);
  };
  const run = stage.run({ tools: [{ ...tool, execute }, { ...tool, name: "stub" }] });
  await stage.start();
  const message = await stage.message();
  stage.server.say(message, "tool_execute", CALL);
  assert.deepEqual((await stage.server.next("tool_result")).payload, {
    tool_call_id: "c1",
    content: "RangeError: Storm.",
    is_error: true,
  });
  stage.server.say(message, "tool_execute", { ...CALL, tool_call_id: "c2", tool_name: "stub" });
  assert.deepEqual((await stage.server.next("tool_result")).payload, {
    tool_call_id: "c2",
    content: 'Error: this client has no function for the tool "stub"',
    is_error: true,
  });
  stage.server.say(message, "tool_execute", { ...CALL, arguments: {}, tool_call_id: "c3" });
  assert.equal(given?.aborted, false);
  stage.event(message, { type: "tool_execution_end", tool_call_id: "c3", is_error: true });
  assert.equal(given?.aborted, true);
  stage.settle(message);
  await run;
});

const DECISIONS: [PermissionDecision | Error, string | undefined, Payload][] = [
  [{ decision: "allow", scope: "always" }, "Write(a)", { decision: "approve", scope: "always", digest: "d" }],
  [{ decision: "allow", scope: "session" }, undefined, { decision: "approve", scope: "once", digest: "d" }],
  [{ decision: "deny", reason: "No." }, undefined, { decision: "deny", reason: "No." }],
  [new Error("?"), undefined, { decision: "deny", reason: "the permission handler failed: Error: ?" }],
];
for (const [decision, grant, sent] of DECISIONS) {
  test(`what the caller decides is answered: ${JSON.stringify(sent)}`, async () => {
    const stage = new Stage();
    const run = stage.run({
      on_permission_request: async () => {
        if (decision instanceof Error) throw decision;
        return decision;
      },
    });
    await stage.start();
    const message = await stage.message();
    stage.server.say(message, "permission_request", { ...CALL, digest: "d", grant });
    assert.deepEqual((await stage.server.next("permission_response")).payload, { tool_call_id: "c1", ...sent });
    stage.settle(message);
    await run;
  });
}

test("a question that others decide is withdrawn", async () => {
  const stage = new Stage();
  const withdrawn = new Promise<void>((resolve) => {
    const on_permission_request = (_: unknown, { signal }: { signal: AbortSignal }): Promise<undefined> => {
      signal.addEventListener("abort", () => resolve());
      return new Promise(() => undefined);
    };
    void stage.run({ on_permission_request });
  });
  await stage.start();
  const message = await stage.message();
  stage.server.say(message, "permission_request", { ...CALL, digest: "d" });
  stage.server.say(message, "permission_settled", { tool_call_id: "c1", decision: "deny", by: "another client" });
  await withdrawn;
  stage.settle(message);
});

test("a session that is deleted ends its followers with the reason, a lost connection with its name", async () => {
  const stage = new Stage();
  const follow = async () => collect((await stage.client).agent.attach(stage.session_id, { after_event_id: 7 }));
  const deleted = failureOf(follow());
  const start = await stage.start();
  assert.deepEqual(start.payload, { resume: true, after_event_id: 7 });
  stage.server.say(start, "agent_stopped", { session_id: stage.session_id, reason: "the session was deleted" });
  stage.server.beginAnew(start);
  assert.deepEqual(facts(await deleted)["message"], "the session was deleted");

  const lost = failureOf(follow());
  await stage.start();
  stage.server.drop();
  const error = facts(await lost);
  assert.equal(error["kind"], "transport_error");
  assert.match(String(error["message"]), new RegExp(stage.session_id));
  assert.equal(facts(await failureOf((await stage.client).agent.status(stage.session_id)))["kind"], "transport_error");
});
