/** The SDK against the real Python server, over both transports. */

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";

import {
  createMakaiClient,
  type MakaiClient,
  type MakaiClientOptions,
  type ProviderStreamEvent,
} from "../src/index.js";
import { collect, facts, failureOf } from "./support/fake_server.js";
import { type Ended, MODEL_REF, overStdio, overWebSocket, skipReal } from "./support/real_server.js";

const TRANSPORTS: Record<string, (t: Ended) => MakaiClientOptions | Promise<MakaiClientOptions>> = {
  stdio: overStdio,
  WebSocket: overWebSocket,
};
const ORIGIN = { provider: "scripted", api: "scripted", model: "scenario" };

function asked(content: string) {
  return { model_ref: MODEL_REF, messages: [{ role: "user" as const, content }] };
}

function said(events: ProviderStreamEvent[]): string {
  return events.map((event) => (event.type === "text_delta" ? event.delta : "")).join("");
}

for (const [transport, options] of Object.entries(TRANSPORTS)) {
  describe(`over ${transport}`, { skip: skipReal, timeout: 60_000 }, () => {
    let opened: Promise<MakaiClient> | undefined;
    const client = (): Promise<MakaiClient> =>
      (opened ??= (async () => createMakaiClient(await options({ after: (end) => ends.push(end) })))());
    const ends: (() => unknown)[] = [];
    after(async () => {
      await (await opened)?.close();
      for (const end of ends) await end();
    });

    test("models are listed and resolved", async () => {
      const { models } = await (await client()).models.list({ provider_id: "scripted" });
      const { model } = await (await client()).models.resolve({ provider_id: "scripted", model_id: "scenario" });

      assert.ok(models.some(({ model_ref }) => model_ref === MODEL_REF));
      assert.equal(model.model_ref, MODEL_REF);
      const missing = facts(
        await failureOf((await client()).models.resolve({ provider_id: "scripted", model_id: "none" })),
      );
      assert.equal(missing["code"], "invalid_request");
      assert.match(String(missing["message"]), /model not found/);
    });

    test("a stream and a completion say the same", async () => {
      const stream = (await client()).provider.stream(asked("weather"));
      const events = await collect(stream);
      const completed = await (await client()).provider.complete(asked("weather"));

      const [start, ...rest] = events.filter(({ type }) => !type.endsWith("_delta"));
      assert.equal(start?.type, "message_start");
      assert.deepEqual(said(events), "Let me look.");
      const toolCallId = rest[0]?.type === "tool_call" ? rest[0].tool_call_id : "";
      assert.deepEqual(rest, [
        { type: "tool_call", name: "get_weather", arguments_json: '{"city": "Paris"}', tool_call_id: toolCallId },
        { type: "message_end", usage: { input: 12, output: 34, cache_read: 5 }, stop_reason: "tool_use" },
      ]);
      const content = (id: string) => [
        { type: "thinking", thinking: "The user wants the weather.", thinking_signature: "proof" },
        { type: "text", text: "Let me look." },
        { type: "tool_call", tool_call_id: id, name: "get_weather", arguments_json: '{"city": "Paris"}' },
      ];
      assert.deepEqual(stream.response?.message, { role: "assistant", ...ORIGIN, content: content(toolCallId) });
      const last = completed.message.content.at(-1) as { tool_call_id: string };
      assert.deepEqual(completed, {
        ...stream.response,
        message: { role: "assistant", ...ORIGIN, content: content(last.tool_call_id) },
      });
    });

    test("an answer can be sent back for the next turn", async () => {
      const first = await (await client()).provider.complete(asked("weather"));
      const call = first.message.content.at(-1) as { tool_call_id: string; name: string };
      const second = await (
        await client()
      ).provider.complete({
        model_ref: MODEL_REF,
        messages: [
          { role: "user", content: "weather" },
          first.message,
          {
            role: "tool",
            content: [{ type: "tool_result", tool_call_id: call.tool_call_id, tool_name: call.name, content: "Sunny" }],
          },
          { role: "user", content: "Thanks" },
        ],
        tools: [{ name: call.name, description: "", parameters_schema_json: '{"type":"object"}' }],
        options: { temperature: 0, max_tokens: 10, reasoning_effort: "low", metadata: { a: "b" } },
      });

      assert.deepEqual(second.message.content, [{ type: "text", text: "Hello there." }]);
    });

    test("text that other line splitters cut arrives whole", async () => {
      const text = 'one\u2028two\u2029three\u0085 \u{1F30D} \\ " end';
      const answer = await (await client()).provider.complete({ ...asked(text), model_ref: "scripted/scripted@echo" });

      assert.deepEqual(answer.message.content, [{ type: "text", text }]);
    });

    test("a failure upstream is one error event", async () => {
      const events = await collect((await client()).provider.stream(asked("quota")));

      assert.deepEqual(events.at(-1), { type: "error", message: "Slow down, please.", code: "rate_limited" });
      assert.deepEqual(events.filter(({ type }) => type === "error" || type === "message_end").length, 1);
      const error = await failureOf((await client()).provider.complete(asked("quota")));
      assert.deepEqual(
        [facts(error)["kind"], facts(error)["code"], (error as { retry_after_ms?: number }).retry_after_ms],
        ["provider_error", "rate_limited", 2000],
      );
    });

    test("a model that does not exist is refused", async () => {
      const error = await failureOf(
        collect((await client()).provider.stream({ ...asked("hi"), model_ref: "scripted/scripted@none" })),
      );

      assert.equal(facts(error)["name"], "MakaiStreamError");
      assert.match(String(facts(error)["message"]), /model not found/);
    });

    test("breaking out and aborting leave the connection usable", async () => {
      for await (const event of (await client()).provider.stream(asked("without end")))
        if (event.type === "text_delta") break;
      const controller = new AbortController();
      const failure = failureOf(
        (await client()).provider.complete({ ...asked("without end"), signal: controller.signal }),
      );
      controller.abort();

      assert.equal(facts(await failure)["kind"], "aborted");
      assert.equal((await (await client()).provider.complete(asked("hi"))).stop_reason, "end_turn");
    });

    test("a long stream arrives complete, beside others", async () => {
      const requests = ["a lot", "hi", "a lot", "hi"].map(
        async (text) => said(await collect((await client()).provider.stream(asked(text)))).length,
      );

      assert.deepEqual(await Promise.all(requests), [80_000, 12, 80_000, 12]);
    });
  });
}

test(
  "a server that dies mid-stream ends the stream with transport_error",
  { skip: skipReal, timeout: 60_000 },
  async (t) => {
    const { process: server, ...options } = await overWebSocket(t);
    const client = await createMakaiClient(options);
    const failure = failureOf(
      (async () => {
        for await (const event of client.provider.stream(asked("without end")))
          if (event.type === "text_delta") server.kill("SIGKILL");
      })(),
    );

    assert.equal(facts(await failure)["kind"], "transport_error");
    await client.close();
  },
);

test("a wrong token is refused", { skip: skipReal, timeout: 60_000 }, async (t) => {
  const { url = "" } = await overWebSocket(t);
  const error = facts(await failureOf(createMakaiClient({ url, token: "wrong" })));

  assert.equal(error["kind"], "transport_error");
  assert.match(String(error["message"]), /could not connect to ws:/);
});
