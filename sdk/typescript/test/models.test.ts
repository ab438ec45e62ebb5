import assert from "node:assert/strict";
import { test } from "node:test";

import type { Payload } from "../src/envelope.js";
import type { ListModelsRequest, ModelDescriptor } from "../src/types.js";
import { facts, failureOf, FakeServer } from "./support/fake_server.js";
import { req } from "./support/req.js";

const MODEL: ModelDescriptor = {
  model_ref: "acme/chat@m",
  model_id: "m",
  display_name: "M",
  provider_id: "acme",
  api: "chat",
  auth_status: "authenticated",
  lifecycle: "stable",
  capabilities: ["chat"],
  source: "dynamic",
};
const ANSWER = { models: [MODEL], fetched_at_ms: 1000, cache_max_age_ms: 500 };

/** Let a call that will ask the server be answered with this. */
async function answered<T>(server: FakeServer, call: Promise<T>, payload: Payload = ANSWER): Promise<T> {
  const request = await server.next("models_request");
  server.ack(request);
  server.reply(request, "models_response", payload);
  return call;
}

test("filters travel unchanged and the answer comes back whole", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const filters: ListModelsRequest = {
    provider_id: "acme",
    api: "chat",
    model_id: "m",
    include_deprecated: true,
    include_login_required: false,
  };

  assert.deepEqual(await answered(server, client.models.list(filters)), ANSWER);
  assert.deepEqual(server.received[0]?.payload, filters);
});

test(`resolve asks with the exact filter and nothing else ${req("MK-TSSDK-007")}`, async () => {
  const server = new FakeServer();
  const client = await server.client();

  assert.deepEqual(await answered(server, client.models.resolve({ provider_id: "acme", model_id: "m" })), {
    model: MODEL,
  });
  await answered(server, client.models.resolve({ provider_id: "acme", model_id: "m", api: "chat" }));
  assert.deepEqual(
    server.received.map(({ type, payload }) => [type, payload]),
    [
      ["models_request", { provider_id: "acme", model_id: "m" }],
      ["models_request", { provider_id: "acme", api: "chat", model_id: "m" }],
    ],
  );
});

test(`resolve refuses none and more than one ${req("MK-TSSDK-007")}`, async () => {
  for (const [models, message] of [
    [[], "model not found: m of acme"],
    [[MODEL, MODEL], "m of acme is ambiguous: name its api"],
  ] as const) {
    const server = new FakeServer();
    const call = (await server.client()).models.resolve({ provider_id: "acme", model_id: "m" });
    const failure = failureOf(answered(server, call, { ...ANSWER, models }));

    assert.deepEqual(facts(await failure), {
      name: "MakaiStreamError",
      kind: "unknown",
      code: "invalid_request",
      provider_id: undefined,
      message,
    });
  }
});

test(`an answer is reused for the same filters until it is strictly too old ${req("MK-TSSDK-007")}`, async () => {
  const clock = { now: 1000 };
  const server = new FakeServer();
  const client = await server.client({}, () => clock.now);
  const first = await answered(server, client.models.list({ provider_id: "acme", model_id: "m" }));
  first.models.length = 0;
  clock.now = 1500;
  const resolved = await client.models.resolve({ model_id: "m", provider_id: "acme" });
  await answered(server, client.models.list());
  clock.now = 1501;
  await answered(server, client.models.list({ provider_id: "acme", model_id: "m" }));

  assert.deepEqual(resolved, { model: MODEL });
  assert.equal(server.received.length, 3);
});

test(`a server that does not say how long is believed for five minutes ${req("MK-TSSDK-007")}`, async () => {
  const clock = { now: 1000 };
  const server = new FakeServer();
  const client = await server.client({}, () => clock.now);
  const answer = await answered(server, client.models.list(), { models: [], fetched_at_ms: 1000 });
  clock.now = 301_000;
  await client.models.list();
  clock.now = 301_001;
  await answered(server, client.models.list());

  assert.deepEqual(answer, { models: [], fetched_at_ms: 1000, cache_max_age_ms: 300_000 });
  assert.equal(server.received.length, 2);
});

test("a server without model lists says so, and refusals are not kept", async () => {
  const server = new FakeServer();
  const client = await server.client();
  for (let attempt = 0; attempt < 2; attempt += 1) {
    const failure = failureOf(client.models.list());
    server.nack(await server.next("models_request"), "not_implemented", "no models here");

    assert.equal(facts(await failure)["code"], "not_implemented");
  }
});

test("the cache is bounded", async () => {
  const server = new FakeServer();
  const client = await server.client({}, () => 1000);
  for (let index = 0; index <= 64; index += 1) await answered(server, client.models.list({ provider_id: `p${index}` }));
  await client.models.list({ provider_id: "p64" });
  await answered(server, client.models.list({ provider_id: "p0" }));

  assert.equal(server.received.length, 66);
});
