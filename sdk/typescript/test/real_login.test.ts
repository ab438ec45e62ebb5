/** Logging in at the real Python server, over both transports. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { createMakaiClient, type MakaiAuthEvent, type MakaiClient, type MakaiClientOptions } from "../src/index.js";
import { facts, failureOf } from "./support/fake_server.js";
import { type Ended, overStdio, overWebSocket, skipReal } from "./support/real_server.js";
import { req } from "./support/req.js";

const TRANSPORTS: Record<string, (t: Ended) => MakaiClientOptions | Promise<MakaiClientOptions>> = {
  stdio: overStdio,
  WebSocket: overWebSocket,
};
const PROVIDER = "test-fixture";
const ASKED = { model_ref: "test-fixture/scripted@fixture", messages: [{ role: "user" as const, content: "Hi" }] };
const ANSWER = [
  { type: "text", text: "You are logged in." },
  { type: "text", text: "Hi" },
];

async function statuses(client: MakaiClient): Promise<(string | undefined)[]> {
  const providers = await client.auth.listProviders();
  const { models } = await client.models.list({ provider_id: PROVIDER });
  return [providers.find(({ id }) => id === PROVIDER)?.auth_status, models[0]?.auth_status];
}

/** An event without the id that is new in every login. */
function known(event: MakaiAuthEvent): Record<string, unknown> {
  const { flow_id: _, ...rest } = event;
  return rest;
}

for (const [transport, options] of Object.entries(TRANSPORTS)) {
  const real = { skip: skipReal, timeout: 60_000 };

  test(`over ${transport} one login opens a provider ${req("MK-TSSDK-005")}`, real, async (t) => {
    const client = await createMakaiClient(await options(t));
    t.after(() => client.close());
    const events: MakaiAuthEvent[] = [];

    assert.deepEqual(await statuses(client), ["login_required", "login_required"]);
    const needed = facts(await failureOf(client.provider.complete(ASKED)));
    assert.deepEqual([needed["name"], needed["code"]], ["MakaiAuthError", "auth_required"]);
    assert.equal(needed["provider_id"], PROVIDER);

    const result = await client.auth.login(PROVIDER, {
      onEvent: (event) => events.push(event),
      onPrompt: async ({ message }) => (message.includes('"ok"') ? "ok" : "?"),
    });

    assert.deepEqual(result, { status: "success" });
    assert.deepEqual(events.map(known), [
      {
        type: "prompt",
        provider_id: PROVIDER,
        prompt_id: "prompt-1",
        message: 'Type "ok" to log in:',
        allow_empty: false,
      },
      { type: "success", provider_id: PROVIDER },
    ]);
    assert.deepEqual(await statuses(client), ["authenticated", "authenticated"]);
    assert.deepEqual((await client.provider.complete(ASKED)).message.content, ANSWER);
  });

  test(`over ${transport} auto_once logs in and asks again ${req("MK-TSSDK-006")}`, real, async (t) => {
    const client = await createMakaiClient({
      ...(await options(t)),
      auth: { auth_retry_policy: "auto_once", handlers: { onPrompt: () => "ok" } },
    });
    t.after(() => client.close());

    assert.deepEqual((await client.provider.complete(ASKED)).message.content, ANSWER);
  });

  test(`over ${transport} a login that fails or is given up says so`, real, async (t) => {
    const client = await createMakaiClient(await options(t));
    t.after(() => client.close());

    const wrong = facts(await failureOf(client.auth.login(PROVIDER, { onPrompt: () => "no" })));
    assert.deepEqual([wrong["kind"], wrong["code"]], ["provider_error", "auth_required"]);
    assert.match(String(wrong["message"]), /The answer was not "ok"/);
    assert.deepEqual(await statuses(client), ["failed", "failed"]);

    const controller = new AbortController();
    const onPrompt = (): Promise<string> => {
      controller.abort();
      return new Promise(() => {});
    };
    const stopped = await failureOf(client.auth.login(PROVIDER, { onPrompt }, { signal: controller.signal }));
    assert.equal(facts(stopped)["kind"], "cancelled");

    assert.deepEqual(await client.auth.login(PROVIDER, { onPrompt: () => "ok" }), { status: "success" });
  });
}
