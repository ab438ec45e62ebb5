import assert from "node:assert/strict";
import { test } from "node:test";

import type { Envelope } from "../src/envelope.js";
import { collect, facts, failureOf, FakeServer } from "./support/fake_server.js";
import { req } from "./support/req.js";
import type { ProviderCompleteRequest, ProviderStreamEvent } from "../src/types.js";

const REQUEST: ProviderCompleteRequest = {
  model_ref: "any shape at all",
  messages: [{ role: "user", content: "hi" }],
  tools: [{ name: "look", description: "looks", parameters_schema_json: "{}" }],
  options: { temperature: 0.5, auth_retry_policy: "manual" },
};
const ORIGIN = { provider: "acme", api: "acme-chat", model: "m-1" };
const ABOUT = { ...ORIGIN, timestamp: 1 };

function textStream(server: FakeServer, request: Envelope): void {
  server.ack(request);
  server.reply(request, "start", {});
  server.reply(request, "text_start", { content_index: 0 });
  server.reply(request, "text_delta", { content_index: 0, delta: "Hel" });
  server.reply(request, "keepalive", {});
  server.reply(request, "text_delta", { content_index: 0, delta: "lo" });
  server.reply(request, "text_end", { content_index: 0, content_signature: "sig" });
}

test("the request travels without what is only the client's business", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const events = collect(client.provider.stream({ ...REQUEST, signal: new AbortController().signal }));
  const request = await server.next("stream_request");
  server.nack(request, "model_not_found", "retired");
  await failureOf(events);

  assert.equal(request.encoding, "proxy");
  assert.deepEqual(request.payload, {
    model_ref: REQUEST.model_ref,
    context: { messages: REQUEST.messages, tools: REQUEST.tools },
    options: { temperature: 0.5 },
  });
});

test(`a stream is its events and one message_end, the last ${req("MK-TSSDK-008")}`, async () => {
  const server = new FakeServer();
  const client = await server.client();
  const stream = client.provider.stream(REQUEST);
  const events = collect(stream);
  const request = await server.next("stream_request");
  textStream(server, request);
  server.reply(request, "thinking_start", { content_index: 1 });
  server.reply(request, "thinking_delta", { content_index: 1, delta: "hm" });
  server.reply(request, "thinking_end", { content_index: 1, thinking_signature: "t" });
  server.reply(request, "toolcall_start", { content_index: 2, id: "c1", name: "look" });
  server.reply(request, "toolcall_delta", { content_index: 2, delta: '{"x":' });
  server.reply(request, "toolcall_delta", { content_index: 2, delta: "1}" });
  server.reply(request, "toolcall_end", { content_index: 2 });
  server.reply(request, "done", { reason: "tool_use", usage: { input: 3, output: 4 } });
  server.reply(request, "result", { ...ABOUT, stop_reason: "tool_use", usage: { input: 3, output: 4 } });

  assert.deepEqual(await events, [
    { type: "message_start" },
    { type: "text_delta", delta: "Hel" },
    { type: "text_delta", delta: "lo" },
    { type: "thinking_delta", delta: "hm" },
    { type: "tool_call", name: "look", arguments_json: '{"x":1}', tool_call_id: "c1" },
    { type: "message_end", usage: { input: 3, output: 4 }, stop_reason: "tool_use" },
  ]);
  assert.deepEqual(stream.response, {
    message: {
      role: "assistant",
      ...ORIGIN,
      content: [
        { type: "text", text: "Hello", text_signature: "sig" },
        { type: "thinking", thinking: "hm", thinking_signature: "t" },
        { type: "tool_call", tool_call_id: "c1", name: "look", arguments_json: '{"x":1}' },
      ],
    },
    usage: { input: 3, output: 4 },
    provider_id: "acme",
    api: "acme-chat",
    model_id: "m-1",
    stop_reason: "tool_use",
  });
  assert.deepEqual(
    server.received.map(({ type }) => type),
    ["stream_request"],
  );
});

test("an answer has the warnings of its result, whole and as a stream", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const result = { ...ABOUT, content: [], stop_reason: "end_turn", usage: {}, warnings: ["acme does not take `stop`."] };
  const whole = client.provider.complete(REQUEST);
  const first = await server.next("complete_request");
  server.ack(first);
  server.reply(first, "result", result);
  const stream = client.provider.stream(REQUEST);
  const events = collect(stream);
  const second = await server.next("stream_request");
  textStream(server, second);
  server.reply(second, "result", result);
  await events;

  assert.deepEqual((await whole).warnings, ["acme does not take `stop`."]);
  assert.deepEqual(stream.response?.warnings, ["acme does not take `stop`."]);
});

test(`message_start names the model that the ack names ${req("MK-SDK-024")}`, async () => {
  const server = new FakeServer();
  const client = await server.client();
  const about = { provider_id: "acme", api: "acme-chat", model_id: "m-1" };
  const first = client.provider.stream(REQUEST)[Symbol.asyncIterator]().next();
  const request = await server.next("stream_request");
  server.reply(request, "ack", { acknowledged_id: request.messageId, ...about });
  server.reply(request, "start", {});

  assert.deepEqual((await first).value, { type: "message_start", ...about });
});

test("message_start names the model when this client has seen it listed", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const about = { provider_id: "acme", api: "acme-chat", model_id: "m-1" };
  const listing = client.models.list();
  const models = await server.next("models_request");
  server.ack(models);
  server.reply(models, "models_response", { models: [{ ...about, model_ref: REQUEST.model_ref }], fetched_at_ms: 1 });
  await listing;
  const first = client.provider.stream(REQUEST)[Symbol.asyncIterator]().next();
  const request = await server.next("stream_request");
  server.ack(request);
  server.reply(request, "start", {});

  assert.deepEqual((await first).value, { type: "message_start", ...about });
});

test(`a failure upstream is one error event, and nothing is thrown besides ${req("MK-TSSDK-008")}`, async () => {
  const server = new FakeServer();
  const stream = (await server.client()).provider.stream(REQUEST);
  const events = collect(stream);
  const request = await server.next("stream_request");
  textStream(server, request);
  server.reply(request, "error", { reason: "error", error_code: "rate_limited", error_message: "slow down" });
  server.reply(request, "stream_error", { error_code: "rate_limited", error_message: "slow down", hint: "Wait." });

  assert.deepEqual((await events).slice(-2), [
    { type: "text_delta", delta: "lo" },
    { type: "error", message: "slow down Wait.", code: "rate_limited" },
  ]);
  assert.equal(stream.response, undefined);
  assert.deepEqual(
    server.received.map(({ type }) => type),
    ["stream_request"],
  );
});

test(`a refusal is thrown once, with its code ${req("MK-TSSDK-002", "MK-TSSDK-008")}`, async () => {
  const server = new FakeServer();
  const events = collect((await server.client()).provider.stream(REQUEST));
  server.nack(await server.next("stream_request"), "model_not_found", "that model is retired");

  assert.deepEqual(facts(await failureOf(events)), {
    name: "MakaiStreamError",
    kind: "unknown",
    code: "model_not_found",
    provider_id: undefined,
    message: "that model is retired",
  });
  assert.deepEqual(
    server.received.map(({ type }) => type),
    ["stream_request"],
  );
});

test("a lost connection is thrown after what had arrived, and the next request fails too", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const seen: ProviderStreamEvent[] = [];
  const run = (async () => {
    for await (const event of client.provider.stream(REQUEST)) seen.push(event);
  })();
  textStream(server, await server.next("stream_request"));
  server.drop();

  assert.deepEqual(facts(await failureOf(run)), {
    name: "MakaiStreamError",
    kind: "transport_error",
    code: "transport_error",
    provider_id: undefined,
    message: "the fake server hung up",
  });
  assert.equal(seen.at(-1)?.type, "text_delta");
  assert.equal(facts(await failureOf(client.provider.complete(REQUEST)))["kind"], "transport_error");
});

test("breaking out of the loop aborts the request on the server", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const run = (async () => {
    for await (const event of client.provider.stream(REQUEST)) if (event.type === "text_delta") break;
  })();
  const request = await server.next("stream_request");
  textStream(server, request);
  await run;
  const abort = await server.next("abort_request");
  server.ack(abort);

  assert.deepEqual(abort.payload, { target_stream_id: request.scopeId });
  assert.notEqual(abort.scopeId, request.scopeId);
  assert.equal(abort.sequence, 1);
});

test("an AbortSignal aborts on the server and throws, though the server has not answered", async () => {
  for (const method of ["stream", "complete"] as const) {
    const server = new FakeServer();
    const client = await server.client();
    const controller = new AbortController();
    const asked = { ...REQUEST, signal: controller.signal };
    const run = method === "stream" ? collect(client.provider.stream(asked)) : client.provider.complete(asked);
    const request = await server.next(`${method}_request`);
    server.ack(request);
    controller.abort();

    assert.deepEqual(facts(await failureOf(run)), {
      name: "MakaiStreamError",
      kind: "aborted",
      code: "aborted",
      provider_id: undefined,
      message: "the request was aborted",
    });
    assert.deepEqual((await server.next("abort_request")).payload, { target_stream_id: request.scopeId });
  }
});

test("a signal that has already fired sends nothing", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const run = client.provider.complete({ ...REQUEST, signal: AbortSignal.abort() });

  assert.equal(facts(await failureOf(run))["kind"], "aborted");
  assert.deepEqual(server.received, []);
});

test("a stream that is never iterated sends nothing", async () => {
  const server = new FakeServer();
  (await server.client()).provider.stream(REQUEST);

  assert.deepEqual(server.received, []);
});

test("complete answers with the whole message, unknown stop reasons unchanged", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const answer = client.provider.complete(REQUEST);
  const request = await server.next("complete_request");
  server.ack(request);
  const content = [{ type: "text", text: "Hello" }];
  server.reply(request, "result", {
    role: "assistant",
    content,
    ...ABOUT,
    stop_reason: "napping",
    usage: { output: 1, cache_read: 5 },
  });

  assert.equal(request.encoding, undefined);
  assert.deepEqual(await answer, {
    message: { role: "assistant", content, ...ORIGIN },
    usage: { input: 0, output: 1, cache_read: 5 },
    provider_id: "acme",
    api: "acme-chat",
    model_id: "m-1",
    stop_reason: "napping",
  });
});

const KINDS: Record<string, string> = {
  provider_error: "provider_error",
  rate_limited: "provider_error",
  overloaded: "provider_error",
  context_overflow: "provider_error",
  aborted: "aborted",
  internal_error: "unknown",
};
test(`complete throws every failure, its kind telling whose it was ${req("MK-TSSDK-002")}`, async () => {
  for (const [code, kind] of Object.entries(KINDS)) {
    const server = new FakeServer();
    const answer = (await server.client()).provider.complete(REQUEST);
    const request = await server.next("complete_request");
    server.ack(request);
    server.reply(request, "stream_error", { error_code: code, error_message: "no", retry_after_ms: 7 });
    const error = await failureOf(answer);

    assert.deepEqual(facts(error), { name: "MakaiStreamError", kind, code, provider_id: undefined, message: "no" });
    assert.equal((error as { retry_after_ms?: number }).retry_after_ms, 7);
  }
});

test("two streams at once do not mix", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const both = [collect(client.provider.stream(REQUEST)), collect(client.provider.stream(REQUEST))];
  const requests = [await server.next("stream_request"), await server.next("stream_request")];
  for (const request of requests) server.ack(request);
  for (const delta of ["a", "b"])
    requests.forEach((request, index) => server.reply(request, "text_delta", { delta: delta + index }));
  for (const request of requests.toReversed()) server.reply(request, "result", { ...ABOUT, stop_reason: "end_turn" });

  const end = { type: "message_end", stop_reason: "end_turn" };
  assert.deepEqual(
    await Promise.all(both),
    [0, 1].map((index) => [
      { type: "text_delta", delta: `a${index}` },
      { type: "text_delta", delta: `b${index}` },
      end,
    ]),
  );
});

test("close says goodbye, fails what is running with a typed error, and may be called twice", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const running = client.provider.complete(REQUEST);
  await server.next("complete_request");
  const failure = failureOf(running);
  await client.close();
  await client.close();

  assert.deepEqual(facts(await failure), {
    name: "MakaiStreamError",
    kind: "aborted",
    code: "aborted",
    provider_id: undefined,
    message: "the client was closed",
  });
  assert.deepEqual(
    server.received.map(({ type }) => type),
    ["complete_request", "goodbye"],
  );
  assert.equal(server.closed, true);
});

test("an agent run is asked for, and the server's refusal is what the caller gets", async () => {
  const server = new FakeServer();
  const client = await server.client();
  for (const run of [() => client.agent.run(REQUEST), () => collect(client.agent.stream(REQUEST))]) {
    const failure = failureOf(run());
    const start = await server.next("agent_start");
    server.nack(start, "not_implemented", "unknown request type agent_start");

    assert.equal(start.scopeKind, "session_id");
    assert.deepEqual(facts(await failure), {
      name: "MakaiStreamError",
      kind: "unknown",
      code: "not_implemented",
      provider_id: undefined,
      message: "unknown request type agent_start",
    });
  }
});
