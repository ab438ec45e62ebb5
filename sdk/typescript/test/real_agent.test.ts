/** Agents of the real Python server, over both transports: real sessions, a scripted model. */

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";

import {
  type AgentStreamEvent,
  type AgentTool,
  type ChatMessage,
  createMakaiClient,
  type MakaiClient,
  type MakaiClientOptions,
  type PermissionRequest,
} from "../src/index.js";
import { collect, facts, failureOf } from "./support/fake_server.js";
import { type Ended, MODEL_REF, overStdio, overWebSocket, skipReal } from "./support/real_server.js";
import { req } from "./support/req.js";

const TRANSPORTS: Record<string, (t: Ended) => MakaiClientOptions | Promise<MakaiClientOptions>> = {
  stdio: overStdio,
  WebSocket: overWebSocket,
};
const START = { type: "message_start", provider_id: "scripted", api: "scripted", model_id: "scenario" };
const USAGE = { input: 10, output: 5, cache_read: 2 };

function asked(content: string) {
  return { model_ref: MODEL_REF, messages: [{ role: "user" as const, content }] };
}

function look(execute: AgentTool["execute"]): AgentTool[] {
  const definition = { name: "look", description: "Look", parameters_schema_json: '{"type":"object"}' };
  return [{ ...definition, ...(execute && { execute }) }];
}

function withoutDeltas(events: AgentStreamEvent[]): AgentStreamEvent[] {
  return events.filter(({ type }) => type !== "text_delta");
}

for (const [transport, options] of Object.entries(TRANSPORTS)) {
  describe(`over ${transport}`, { skip: skipReal, timeout: 60_000 }, () => {
    const ends: (() => unknown)[] = [];
    let reached: Promise<MakaiClientOptions> | undefined;
    const server = (): Promise<MakaiClientOptions> =>
      (reached ??= Promise.resolve(options({ after: (end) => ends.push(end) })));
    const connect = async (more: MakaiClientOptions = {}): Promise<MakaiClient> => {
      const client = await createMakaiClient({ ...(await server()), ...more });
      ends.unshift(() => client.close());
      return client;
    };
    let opened: Promise<MakaiClient> | undefined;
    const client = (): Promise<MakaiClient> => (opened ??= connect());
    after(async () => {
      for (const end of ends) await end();
    });

    test(`a new session takes a conversation that was had elsewhere ${req("MK-AGENT-022")}`, async () => {
      const call = { type: "tool_call" as const, tool_call_id: "c1", name: "look", arguments_json: "{}" };
      const messages: ChatMessage[] = [
        { role: "user", content: "Hi" },
        { role: "assistant", content: [call] },
        { role: "tool", tool_call_id: "c1", content: "Water." },
      ];
      const { agent } = await client();
      const first = await agent.run({ model_ref: MODEL_REF, messages });
      const longer: ChatMessage[] = [...messages, first.message, { role: "user", content: "Again?" }];
      const session_id = String(first.session_id);
      const again = await agent.run({ model_ref: MODEL_REF, messages: longer, options: { session_id } });
      assert.equal(again.session_id, session_id);
      const other: ChatMessage[] = [{ role: "assistant", content: "Never said." }, { role: "user", content: "Hi" }];
      const failure = await failureOf(agent.run({ model_ref: MODEL_REF, messages: other, options: { session_id } }));
      assert.equal((failure as { code?: string }).code, "invalid_request");
    });

    test("a run is turns and tools between one start and one end", async () => {
      const calls: unknown[] = [];
      const tools = look((args, { tool_call_id, signal }) => {
        calls.push([args, tool_call_id, signal.aborted]);
        return "Water.";
      });
      const stream = (await client()).agent.stream({ ...asked("look"), tools, options: { max_turns: 1 } });
      const events = await collect(stream);

      const call = events.find(({ type }) => type === "tool_call") as { tool_call_id: string };
      const tool_call_id = call.tool_call_id;
      assert.deepEqual(calls, [[{ at: "sea" }, tool_call_id, false]]);
      assert.deepEqual(withoutDeltas(events), [
        { type: "agent_start", session_id: stream.session_id },
        { type: "turn_start" },
        START,
        { type: "tool_call", name: "look", arguments_json: '{"at": "sea"}', tool_call_id },
        { type: "message_end", usage: USAGE, stop_reason: "tool_use" },
        { type: "turn_end", stop_reason: "tool_use" },
        { type: "tool_execution_start", tool_call_id, tool_name: "look" },
        { type: "tool_execution_end", tool_call_id },
        { type: "agent_end", stop_reason: "max_turns", usage: USAGE },
      ]);
      assert.equal(stream.response?.session_id, stream.session_id);
      assert.deepEqual(stream.response?.usage, USAGE);
    });

    test("a session goes on where it was", async () => {
      const agent = (await client()).agent;
      const first = await agent.run(asked("hi"));
      const { session_id = "" } = first;
      const second = await agent.run({ ...asked("hi"), options: { session_id } });
      const status = await agent.status(session_id);

      assert.deepEqual(second.message.content, [{ type: "text", text: "Hello there." }]);
      assert.equal(second.session_id, session_id);
      assert.deepEqual([status.status, status.usage.input, status.model_ref], ["idle", 6, MODEL_REF]);
    });

    test("undo does what its preview said, and redo takes it back", async () => {
      const agent = (await client()).agent;
      const cwd = mkdtempSync(join(tmpdir(), "makai-undo-"));
      ends.push(() => rmSync(cwd, { recursive: true }));
      const file = join(cwd, "a.txt");
      const run = await agent.run({ ...asked("write"), builtin_tools: true, cwd, mode: "accept_edits", options: { max_turns: 1 } });
      const { session_id = "" } = run;
      const plan = await agent.undo(session_id, { preview: true });

      assert.deepEqual(await agent.diff(session_id), [{ path: file, new_text: "A" }]);
      assert.deepEqual([plan.restored, plan.files], [false, [{ path: file, kind: "remove", removed: 1 }]]);
      assert.equal(facts(await failureOf(agent.undo(session_id, { plan_id: "another" })))["kind"], "unknown");
      assert.equal(existsSync(file), true);
      assert.deepEqual(await agent.undo(session_id, { plan_id: plan.plan_id }), { ...plan, restored: true });
      assert.equal(existsSync(file), false);
      assert.equal((await agent.redo(session_id, { paths: [file] })).restored, true);
      assert.match(String(facts(await failureOf(agent.undo(session_id, { paths: ["b.txt"] })))["message"]), /nothing to undo in/u);
      assert.equal(existsSync(file), true);
    });

    test("a tool that throws is an error for the model, and the run goes on", async () => {
      const tools = look(async () => {
        throw new RangeError("Storm.");
      });
      const events = await collect(
        (await client()).agent.stream({ ...asked("look"), tools, options: { max_turns: 1 } }),
      );

      assert.equal(events.find((event) => event.type === "tool_execution_end")?.is_error, true);
      assert.equal(events.at(-1)?.type, "agent_end");
    });

    test("a failing run is one error event, or one error thrown", async () => {
      const agent = (await client()).agent;
      const events = await collect(agent.stream(asked("forbidden")));
      const thrown = facts(await failureOf(agent.run(asked("forbidden"))));

      assert.deepEqual(events.at(-1), { type: "error", message: "No.", code: "invalid_request" });
      assert.equal(events.filter(({ type }) => type === "error" || type === "agent_end").length, 1);
      assert.deepEqual([thrown["name"], thrown["code"]], ["MakaiStreamError", "invalid_request"]);
      assert.equal(thrown["message"], "No.");
    });

    test("breaking out and aborting stop the run, and the tool that it waits for", async () => {
      const agent = (await client()).agent;
      const stream = agent.stream(asked("without end"));
      for await (const event of stream) if (event.type === "text_delta") break;
      assert.equal((await agent.status(stream.session_id)).status, "idle");

      const controller = new AbortController();
      const session_id = crypto.randomUUID();
      const ended = new Promise<string>((resolve) => {
        const tools = look((_, { signal }) => {
          signal.addEventListener("abort", () => resolve("aborted"));
          controller.abort("enough");
          return new Promise(() => undefined);
        });
        const run = agent.run({ ...asked("look"), tools, options: { session_id }, signal: controller.signal });
        void failureOf(run).then((error) => assert.equal(facts(error)["kind"], "aborted"));
      });
      assert.equal(await ended, "aborted");
      assert.equal((await agent.status(session_id)).status, "idle");
    });

    test("another client follows a session and stops it", async () => {
      const stream = (await client()).agent.stream(asked("without end"));
      const other = (await connect()).agent;
      const events: AgentStreamEvent[] = [];
      for await (const event of stream) {
        events.push(event);
        if (event.type !== "text_delta") continue;
        const seen: AgentStreamEvent[] = [];
        const follower = other.attach(stream.session_id);
        for await (const again of follower) {
          seen.push(again);
          if (again.type === "text_delta") break;
        }
        assert.deepEqual(seen, events);
        assert.equal(follower.event_id, stream.event_id);
        await other.stop(stream.session_id, { reason: "Enough." });
      }

      assert.deepEqual(events.at(-1), { type: "error", message: "Enough.", code: "aborted" });
      const after_event_id = stream.event_id ?? 0;
      const again = (await client()).agent.run({ ...asked("hi"), options: { session_id: stream.session_id } });
      const rest: string[] = [];
      for await (const event of other.attach(stream.session_id, { after_event_id })) {
        rest.push(event.type);
        if (event.type === "agent_end") break;
      }
      await again;
      assert.equal(rest[0], "agent_start");
    });

    test("the caller is asked for permission", async (t) => {
      const cwd = mkdtempSync(join(tmpdir(), "makai-work-"));
      t.after(() => rmSync(cwd, { recursive: true, force: true }));
      const asks: PermissionRequest[] = [];
      const request = { ...asked("write"), builtin_tools: true, cwd, options: { max_turns: 1 } };
      for (const decision of [{ decision: "deny", reason: "No." }, { decision: "allow" }] as const) {
        await (
          await client()
        ).agent.run({
          ...request,
          on_permission_request: (asked) => {
            asks.push(asked);
            return decision;
          },
        });
        assert.equal(existsSync(join(cwd, "a.txt")), decision.decision === "allow");
      }

      assert.deepEqual(
        asks.map(({ tool_name, diffs }) => [tool_name, diffs?.[0]?.new_text]),
        [
          ["write", "A"],
          ["write", "A"],
        ],
      );
    });

    test(`one client logs in, lists, picks, streams and runs ${req("MK-TSSDK-004")}`, async () => {
      const user = await client();
      const needed = (await user.auth.listProviders()).find(({ id }) => id === "test-fixture");
      assert.equal(needed?.auth_status, "login_required");
      const model_ref = (await user.models.list({ provider_id: needed.id })).models[0]?.model_ref ?? "";
      const request = { ...asked("Hi"), model_ref };
      const refused = facts(await failureOf(user.agent.run(request)));
      assert.deepEqual([refused["name"], refused["code"]], ["MakaiAuthError", "auth_required"]);
      assert.equal(refused["provider_id"], needed.id);

      await user.auth.login(needed.id, { onPrompt: () => "ok" });
      const stream = user.provider.stream(request);
      await collect(stream);
      const run = await user.agent.run(request);

      assert.deepEqual(run.message.content, stream.response?.message.content);
      assert.equal(run.stop_reason, "end_turn");
    });
  });

  test(`over ${transport} auto_once logs in and runs again ${req("MK-TSSDK-006")}`, { skip: skipReal }, async (t) => {
    const client = await createMakaiClient({
      ...(await options(t)),
      auth: { auth_retry_policy: "auto_once", handlers: { onPrompt: () => "ok" } },
    });
    t.after(() => client.close());
    const request = { ...asked("Hi"), model_ref: "test-fixture/scripted@fixture" };
    const types = (await collect(client.agent.stream(request))).map(({ type }) => type);

    assert.deepEqual([types[0], types.at(-1)], ["agent_start", "agent_end"]);
    assert.equal(types.filter((type) => type === "agent_start" || type === "error").length, 1);
  });
}

test("a server that dies is an error that names the session", { skip: skipReal, timeout: 60_000 }, async (t) => {
  const { process: server, ...options } = await overWebSocket(t);
  const client = await createMakaiClient(options);
  const stream = client.agent.stream(asked("without end"));
  const failure = failureOf(
    (async () => {
      for await (const event of stream) if (event.type === "text_delta") server.kill("SIGKILL");
    })(),
  );

  const error = facts(await failure);
  assert.equal(error["kind"], "transport_error");
  assert.ok(String(error["message"]).includes(stream.session_id));
  await client.close();
});
