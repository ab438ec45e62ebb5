import assert from "node:assert/strict";
import { test } from "node:test";

import { facts, failureOf, FakeServer } from "./support/fake_server.js";

const REQUEST = { model_ref: "m", messages: [] };

test("a server that never answers fails the request after its deadline, and is told to stop", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const server = new FakeServer();
  const failure = failureOf((await server.client()).provider.complete(REQUEST));
  await server.next("complete_request");
  t.mock.timers.tick(30_000);

  assert.deepEqual(facts(await failure), {
    name: "MakaiStreamError",
    kind: "transport_error",
    code: "transport_error",
    provider_id: undefined,
    message: "the server did not answer in time",
  });
  await server.next("abort_request");
});

test("a cancelled login that is never confirmed ends all the same", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const server = new FakeServer();
  const controller = new AbortController();
  const failure = failureOf((await server.client()).auth.login("acme", {}, { signal: controller.signal }));
  server.ack(await server.next("auth_login_start"));
  controller.abort();
  await server.next("auth_cancel");
  t.mock.timers.tick(5_000);

  assert.equal(facts(await failure)["kind"], "cancelled");
});

test("an answer without a reader is bounded: the stream fails and is aborted", async () => {
  const server = new FakeServer();
  const iterator = (await server.client()).provider.stream(REQUEST)[Symbol.asyncIterator]();
  const first = iterator.next();
  const request = await server.next("stream_request");
  server.ack(request);
  server.reply(request, "start");
  await first;
  const delta = "x".repeat(8 * 1024 * 1024);
  for (let sent = 0; sent < 9; sent += 1) server.reply(request, "text_delta", { content_index: 0, delta });

  assert.equal(facts(await failureOf(iterator.next()))["code"], "overloaded");
  await server.next("abort_request");
});

test("a missing message fails the stream and aborts it", async () => {
  const server = new FakeServer();
  const iterator = (await server.client()).provider.stream(REQUEST)[Symbol.asyncIterator]();
  const failure = failureOf(iterator.next());
  const request = await server.next("stream_request");
  server.ack(request);
  server.frame(
    JSON.stringify({
      type: "text_delta",
      stream_id: request.scopeId,
      message_id: request.messageId,
      sequence: 9,
      timestamp: 1,
      version: 1,
      payload: { delta: "x" },
    }),
  );

  assert.equal(facts(await failure)["code"], "sequence_gap");
  await server.next("abort_request");
});
