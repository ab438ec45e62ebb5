import assert from "node:assert/strict";
import { test } from "node:test";

import type { Envelope, Payload } from "../src/envelope.js";
import type { MakaiAuthEvent, MakaiClientOptions } from "../src/types.js";
import { facts, failureOf, FakeServer } from "./support/fake_server.js";
import { req } from "./support/req.js";

const PROMPT = { prompt_id: "code", provider_id: "acme", message: "Code?" };

function say(server: FakeServer, login: Envelope, type: string, fields: Payload): void {
  server.reply(login, "auth_event", { [type]: { flow_id: login.scopeId, provider_id: "acme", ...fields } });
}

function result(server: FakeServer, login: Envelope, status: string): void {
  server.reply(login, "auth_login_result", { flow_id: login.scopeId, provider_id: "acme", status });
}

async function started(server: FakeServer): Promise<Envelope> {
  const login = await server.next("auth_login_start");
  server.ack(login);
  return login;
}

test("listProviders hands on the four documented fields and never anything else", async () => {
  const server = new FakeServer();
  const providers = (await server.client()).auth.listProviders();
  const request = await server.next("auth_providers_request");
  server.ack(request);
  server.reply(request, "auth_providers_response", {
    providers: [
      { id: "acme", name: "Acme", auth_status: "failed", last_error: "refused", access_token: "secret" },
      { id: "other", name: "Other", auth_status: "a new one", last_error: "" },
    ],
  });

  assert.deepEqual(request.payload, {});
  assert.deepEqual(await providers, [
    { id: "acme", name: "Acme", auth_status: "failed", last_error: "refused" },
    { id: "other", name: "Other", auth_status: "unknown" },
  ]);
});

test("a server without logins says so in a MakaiAuthError", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const list = failureOf(client.auth.listProviders());
  server.nack(await server.next("auth_providers_request"), "not_implemented", "no logins");
  const login = failureOf(client.auth.login("acme"));
  server.nack(await server.next("auth_login_start"), "not_implemented", "no logins");

  const expected = { name: "MakaiAuthError", kind: "unknown", code: "not_implemented", message: "no logins" };
  assert.deepEqual(facts(await list), { ...expected, provider_id: undefined });
  assert.deepEqual(facts(await login), { ...expected, provider_id: "acme" });
});

test(`a login's events arrive flattened and in order, its prompt is answered ${req("MK-TSSDK-005")}`, async () => {
  const server = new FakeServer();
  const events: MakaiAuthEvent[] = [];
  const prompts: MakaiAuthEvent[] = [];
  const outcome = (await server.client()).auth.login("acme", {
    onEvent: (event) => events.push(event),
    onPrompt: async (prompt) => {
      prompts.push(prompt);
      return "1234";
    },
  });
  const login = await started(server);
  const flow_id = login.scopeId;
  say(server, login, "auth_url", { url: "https://acme.test/", instructions: "Open it." });
  say(server, login, "prompt", PROMPT);
  const answer = await server.next("auth_prompt_response");
  server.ack(answer);
  server.reply(login, "auth_event", { telepathy: { flow_id } });
  say(server, login, "progress", { message: "checking" });
  say(server, login, "success", {});
  result(server, login, "success");

  assert.deepEqual(await outcome, { status: "success" });
  assert.deepEqual(login.payload, { provider_id: "acme" });
  assert.deepEqual([answer.scopeId, answer.sequence], [login.scopeId, 2]);
  assert.deepEqual(answer.payload, { flow_id, prompt_id: "code", answer: "1234" });
  const prompt = { type: "prompt", allow_empty: false, flow_id, ...PROMPT };
  assert.deepEqual(events, [
    { type: "auth_url", flow_id, provider_id: "acme", url: "https://acme.test/", instructions: "Open it." },
    prompt,
    { type: "progress", flow_id, provider_id: "acme", message: "checking" },
    { type: "success", flow_id, provider_id: "acme" },
  ]);
  assert.deepEqual(prompts, [prompt]);
});

test(`handlers of the call win over the client's, one by one ${req("MK-TSSDK-005")}`, async () => {
  const server = new FakeServer();
  const heard: string[] = [];
  const client = await server.client({
    auth: { handlers: { onEvent: () => heard.push("client"), onPrompt: () => "from the client" } },
  });
  const outcome = client.auth.login("acme", { onEvent: () => heard.push("call") });
  const login = await started(server);
  say(server, login, "prompt", PROMPT);
  const answer = await server.next("auth_prompt_response");
  result(server, login, "success");
  await outcome;

  assert.equal(answer.payload["answer"], "from the client");
  assert.deepEqual(heard, ["call"]);
});

test("a login that ends as cancelled or failed rejects with what is known of it", async () => {
  const client = (server: FakeServer): ReturnType<FakeServer["client"]> => server.client();
  const cancelled = new FakeServer();
  const first = failureOf((await client(cancelled)).auth.login("acme"));
  result(cancelled, await started(cancelled), "cancelled");
  const failed = new FakeServer();
  const second = failureOf((await client(failed)).auth.login("acme"));
  const login = await started(failed);
  say(failed, login, "error", { code: "access_denied", message: "You said no." });
  result(failed, login, "failed");

  const about = { name: "MakaiAuthError", provider_id: "acme" };
  assert.deepEqual(facts(await first), {
    ...about,
    kind: "cancelled",
    code: undefined,
    message: "the login was cancelled",
  });
  assert.deepEqual(facts(await second), {
    ...about,
    kind: "provider_error",
    code: "access_denied",
    message: "You said no.",
  });
});

test("a connection lost during a login is a MakaiAuthError", async () => {
  const server = new FakeServer();
  const failure = failureOf((await server.client()).auth.login("acme"));
  await started(server);
  server.drop();

  assert.deepEqual(facts(await failure), {
    name: "MakaiAuthError",
    kind: "transport_error",
    code: "transport_error",
    provider_id: "acme",
    message: "the fake server hung up",
  });
});

test("an optional prompt beside an open page needs no handler", async () => {
  const server = new FakeServer();
  const seen: string[] = [];
  const login = (await server.client()).auth.login("acme", { onEvent: (event) => seen.push(event.type) });
  const flow = await started(server);
  say(server, flow, "auth_url", { url: "https://acme.test/" });
  say(server, flow, "prompt", { ...PROMPT, allow_empty: true });
  say(server, flow, "success", {});
  result(server, flow, "success");

  assert.deepEqual(await login, { status: "success" });
  assert.deepEqual(seen, ["auth_url", "prompt", "success"]);
});

for (const [event, fields] of Object.entries({ prompt: PROMPT, auth_url: { url: "https://acme.test/" } })) {
  test(`a login without handlers that needs a person (${event}) is cancelled instead of hanging`, async () => {
    const server = new FakeServer();
    const failure = failureOf((await server.client()).auth.login("acme"));
    const login = await started(server);
    say(server, login, event, fields);
    const cancel = await server.next("auth_cancel");
    result(server, login, "cancelled");

    assert.deepEqual(cancel.payload, { flow_id: login.scopeId });
    assert.deepEqual(facts(await failure), {
      name: "MakaiAuthError",
      kind: "cancelled",
      code: "interaction_required",
      provider_id: "acme",
      message: "logging in to acme needs a person, but no handler was given",
    });
  });
}

test("a handler that throws cancels the login, and its error is the cause", async () => {
  const broken = new Error("broken");
  const fail = (): never => {
    throw broken;
  };
  for (const handlers of [{ onPrompt: fail }, { onEvent: fail, onPrompt: () => "x" }]) {
    const server = new FakeServer();
    const failure = failureOf((await server.client()).auth.login("acme", handlers));
    const login = await started(server);
    say(server, login, "prompt", PROMPT);
    await server.next("auth_cancel");
    result(server, login, "cancelled");
    const error = await failure;

    assert.equal(facts(error)["kind"], "cancelled");
    assert.equal((error as Error).cause, broken);
  }
});

test("an AbortSignal cancels the login; the late answer to its prompt is not sent", async () => {
  const server = new FakeServer();
  const controller = new AbortController();
  let answer = (_: string): void => undefined;
  const onPrompt = (): Promise<string> => new Promise((resolve) => (answer = resolve));
  const failure = failureOf((await server.client()).auth.login("acme", { onPrompt }, { signal: controller.signal }));
  const login = await started(server);
  say(server, login, "prompt", PROMPT);
  await new Promise(setImmediate);
  controller.abort();
  await server.next("auth_cancel");
  answer("too late");
  result(server, login, "cancelled");

  assert.equal(facts(await failure)["kind"], "cancelled");
  assert.deepEqual(
    server.received.map(({ type }) => type),
    ["auth_login_start", "auth_cancel"],
  );
});

test("a second login waits for the first", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const [first, second] = [client.auth.login("acme"), client.auth.login("other")];
  const login = await started(server);
  await new Promise(setImmediate);
  const before = server.received.map(({ payload }) => payload);
  result(server, login, "success");
  const next = await started(server);
  result(server, next, "success");
  await Promise.all([first, second]);

  assert.deepEqual(before, [{ provider_id: "acme" }]);
  assert.deepEqual(next.payload, { provider_id: "other" });
});

const REQUEST = { model_ref: "acme/chat@m", messages: [] };
const RESULT = { content: [], provider: "acme", api: "chat", model: "m", timestamp: 1, stop_reason: "end_turn" };
const NEEDED = {
  name: "MakaiAuthError",
  kind: "provider_error",
  code: "auth_required",
  provider_id: "acme",
  message: "log in",
};

function refuse(server: FakeServer, request: Envelope): void {
  server.nack(request, "auth_required", "log in", { provider_id: "acme" });
}

test(`"manual", the default, throws the typed error and starts no login ${req("MK-TSSDK-006")}`, async () => {
  for (const options of [{}, { auth: { auth_retry_policy: "auto_once" } }] satisfies MakaiClientOptions[]) {
    const server = new FakeServer();
    const client = await server.client(options);
    const failure = failureOf(
      client.provider.complete({ ...REQUEST, ...("auth" in options && { options: { auth_retry_policy: "manual" } }) }),
    );
    refuse(server, await server.next("complete_request"));

    assert.deepEqual(facts(await failure), NEEDED);
    assert.deepEqual(
      server.received.map(({ type }) => type),
      ["complete_request"],
    );
  }
});

test(`"auto_once" logs in with the client's handlers and tries once more ${req("MK-TSSDK-006")}`, async () => {
  const server = new FakeServer();
  const client = await server.client({
    auth: { auth_retry_policy: "auto_once", handlers: { onPrompt: () => "1234" } },
  });
  const answer = client.provider.complete(REQUEST);
  refuse(server, await server.next("complete_request"));
  const login = await started(server);
  say(server, login, "prompt", PROMPT);
  await server.next("auth_prompt_response");
  result(server, login, "success");
  const again = await server.next("complete_request");
  server.ack(again);
  server.reply(again, "result", RESULT);

  assert.equal((await answer).stop_reason, "end_turn");
});

test(`a second auth_required is final ${req("MK-TSSDK-006")}`, async () => {
  const server = new FakeServer();
  const client = await server.client({ auth: { auth_retry_policy: "auto_once" } });
  const failure = failureOf(client.provider.complete(REQUEST));
  refuse(server, await server.next("complete_request"));
  result(server, await started(server), "success");
  refuse(server, await server.next("complete_request"));

  assert.deepEqual(facts(await failure), NEEDED);
  assert.equal(server.received.length, 3);
});

test(`"auto_once" without handlers fails fast when a person is needed ${req("MK-TSSDK-006")}`, async () => {
  const server = new FakeServer();
  const client = await server.client();
  const failure = failureOf(client.provider.complete({ ...REQUEST, options: { auth_retry_policy: "auto_once" } }));
  refuse(server, await server.next("complete_request"));
  const login = await started(server);
  say(server, login, "auth_url", { url: "https://acme.test/" });
  await server.next("auth_cancel");
  result(server, login, "cancelled");

  assert.deepEqual(facts(await failure), NEEDED);
});

test(`"auto_once" leaves any other failure to the caller ${req("MK-TSSDK-006")}`, async () => {
  for (const code of ["auth_expired", "auth_refresh_failed", "rate_limited"]) {
    const server = new FakeServer();
    const client = await server.client({ auth: { auth_retry_policy: "auto_once" } });
    const failure = failureOf(client.provider.complete(REQUEST));
    server.nack(await server.next("complete_request"), code, "no", { provider_id: "acme" });

    assert.equal(facts(await failure)["code"], code);
    assert.equal(server.received.length, 1);
  }
});

test(`a stream that needs a login after it was accepted is tried again, with one message_start ${req("MK-TSSDK-006")}`, async () => {
  const server = new FakeServer();
  const client = await server.client({ auth: { auth_retry_policy: "auto_once" } });
  const events: string[] = [];
  const run = (async () => {
    for await (const event of client.provider.stream(REQUEST)) events.push(event.type);
  })();
  const request = await server.next("stream_request");
  server.ack(request);
  server.reply(request, "start");
  server.reply(request, "error", { reason: "error", error_code: "auth_required", error_message: "log in" });
  server.reply(request, "stream_error", { error_code: "auth_required", error_message: "log in", provider_id: "acme" });
  result(server, await started(server), "success");
  const again = await server.next("stream_request");
  server.ack(again);
  server.reply(again, "start");
  server.reply(again, "result", RESULT);
  await run;

  assert.deepEqual(events, ["message_start", "message_end"]);
});

test("a stream that needs a login after content was delivered is not repeated", async () => {
  const server = new FakeServer();
  const client = await server.client({ auth: { auth_retry_policy: "auto_once" } });
  const run = (async () => {
    for await (const _ of client.provider.stream(REQUEST));
  })();
  const failure = failureOf(run);
  const request = await server.next("stream_request");
  server.ack(request);
  server.reply(request, "text_delta", { delta: "x" });
  server.reply(request, "stream_error", { error_code: "auth_required", error_message: "log in", provider_id: "acme" });

  assert.deepEqual(facts(await failure), NEEDED);
});

test("requests that need the same login share it", async () => {
  const server = new FakeServer();
  const client = await server.client({ auth: { auth_retry_policy: "auto_once" } });
  const answers = [client.provider.complete(REQUEST), client.provider.complete(REQUEST)];
  const requests = [await server.next("complete_request"), await server.next("complete_request")];
  for (const request of requests) refuse(server, request);
  result(server, await started(server), "success");
  for (const _ of requests) {
    const again = await server.next("complete_request");
    server.ack(again);
    server.reply(again, "result", RESULT);
  }

  assert.equal((await Promise.all(answers)).length, 2);
});
