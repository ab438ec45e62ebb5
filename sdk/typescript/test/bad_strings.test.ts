/** A bad call is one failed call: whatever a caller or a tool says, the next good call of the client succeeds. */

import assert from "node:assert/strict";
import { after, describe, test } from "node:test";

import { createMakaiClient, type MakaiClient, type MakaiClientOptions } from "../src/index.js";
import { encodeRequest, newId, sanitize } from "../src/envelope.js";
import { facts, failureOf } from "./support/fake_server.js";
import { type Ended, MODEL_REF, overStdio, overWebSocket, skipReal } from "./support/real_server.js";

const TRANSPORTS: Record<string, (t: Ended) => MakaiClientOptions | Promise<MakaiClientOptions>> = {
  stdio: overStdio,
  WebSocket: overWebSocket,
};

function deep(levels: number): unknown {
  let value: unknown = "end";
  for (let level = 0; level < levels; level += 1) value = [value];
  return value;
}

const circular: unknown[] = [];
circular.push(circular);
/** What no server reads. */
const BAD: Record<string, unknown> = {
  NUL: "a\u0000b",
  "a high surrogate": "a\ud800b",
  "a low surrogate": "\udfff",
  "a backslash and a NUL": "\\\u0000",
  "deeper than 128": deep(200),
  "no JSON at all": 10n,
  "a circle": circular,
};
/** What looks like it and is fine. */
const GOOD = ["\u{1F600}", "\\u0000", "\\\\u0000", "\\ud800", "\u0001", "\ufffd", "[".repeat(200)];

type Call = (client: MakaiClient, bad: never) => Promise<unknown>;
const user = (content: never) => [{ role: "user" as const, content }];
const HI = user("Hi" as never);

const CALLS: Record<string, Call> = {
  "a message": (client, bad) => client.provider.complete({ model_ref: MODEL_REF, messages: user(bad) }),
  "a model": (client, bad) => client.provider.complete({ model_ref: bad, messages: HI }),
  "a tool": (client, bad) =>
    client.provider.complete({
      model_ref: MODEL_REF,
      messages: HI,
      tools: [{ name: bad, description: "", parameters_schema_json: "{}" }],
    }),
  "an option": (client, bad) =>
    client.provider.complete({ model_ref: MODEL_REF, messages: HI, options: { metadata: bad } as never }),
  "a stream": async (client, bad) => {
    for await (const _ of client.provider.stream({ model_ref: MODEL_REF, messages: user(bad) }));
  },
  "a listing": (client, bad) => client.models.list({ provider_id: bad }),
  "a login": (client, bad) => client.auth.login(bad),
  "a prompt": (client, bad) => client.auth.login("test-fixture", { onPrompt: () => bad }),
  "a run": (client, bad) => client.agent.run({ model_ref: MODEL_REF, messages: user(bad) }),
  "a system prompt": (client, bad) =>
    client.agent.run({ model_ref: MODEL_REF, messages: HI, system_prompt: bad } as never),
  "a reason": (client, bad) => client.agent.stop(newId(), { reason: bad } as never),
};

for (const [transport, options] of Object.entries(TRANSPORTS)) {
  describe(`over ${transport}`, { skip: skipReal, timeout: 120_000 }, () => {
    let opened: Promise<MakaiClient> | undefined;
    const client = (): Promise<MakaiClient> =>
      (opened ??= (async () => createMakaiClient(await options({ after: (end) => ends.push(end) })))());
    const ends: (() => unknown)[] = [];
    after(async () => {
      await (await opened)?.close();
      for (const end of ends) await end();
    });

    for (const [where, call] of Object.entries(CALLS)) {
      test(`a bad call and then a good one: ${where}`, async () => {
        for (const [what, bad] of Object.entries(BAD)) {
          const failure = await call(await client(), bad as never).then(() => undefined, facts);
          assert.notEqual(failure?.["kind"], "transport_error", `${what}: ${String(failure?.["message"])}`);
          const { message } = await (await client()).provider.complete({ model_ref: MODEL_REF, messages: HI });
          assert.deepEqual(message.content, [{ type: "text", text: "Hello there." }], what);
        }
      });
    }

    test("a session continues after a message that was refused", async () => {
      const session_id = newId();
      const said = (content: unknown) =>
        client().then((made) =>
          made.agent.run({ model_ref: MODEL_REF, messages: user(content as never), options: { session_id } }),
        );
      await said("Hi");
      for (const bad of Object.values(BAD)) {
        const failure = facts(await failureOf(said(bad)));
        assert.equal(failure["code"], "invalid_request");
        await said("Hi");
      }
    });

    test("a tool may answer with any text", async () => {
      for (const answer of [...Object.values(BAD), ...GOOD]) {
        const look = { name: "look", description: "", parameters_schema_json: "{}", execute: () => answer as string };
        const stream = (await client()).agent.stream({ model_ref: MODEL_REF, messages: user("look" as never), tools: [look] });
        const events = [];
        for await (const event of stream) {
          events.push(event);
          if (event.type === "tool_execution_end") break;
        }
        assert.equal(events.at(-1)?.type, "tool_execution_end");
      }
    });
  });
}

const envelope = (payload: Record<string, unknown>) =>
  encodeRequest({
    type: "ping",
    scopeKind: "stream_id",
    scopeId: newId(),
    messageId: newId(),
    sequence: 1,
    timestamp: 0,
    payload,
  });

test("what no server reads is refused before it is sent", () => {
  for (const [what, bad] of Object.entries(BAD)) {
    assert.throws(() => envelope({ bad }), { name: "MakaiStreamError", code: "invalid_request" }, what);
    assert.throws(() => envelope({ deeper: [{ bad }] }), { code: "invalid_request" }, what);
  }
  for (const good of GOOD) assert.equal(JSON.parse(envelope({ good })).payload.good, good);
  assert.ok(envelope({ list: deep(126) }));
});

test("what cannot be carried is replaced, and nothing else", () => {
  const half = { "a\u0000": ["\ud83d\ude00", "\\\u0000\ud83d", { x: "\\\\ud800" }] };
  assert.deepEqual(sanitize(half), { "a\ufffd": ["\ud83d\ude00", "\\\ufffd\ufffd", { x: "\\\\ud800" }] });
  for (let seed = 1; seed < 2000; seed += 1) {
    const text = Array.from({ length: 6 }, (_, at) => CHARACTERS[(seed * (at * 7 + 3)) % CHARACTERS.length]).join("");
    const wellFormed = new TextDecoder().decode(new TextEncoder().encode(text));
    const expected = wellFormed.replaceAll("\u0000", "\ufffd");
    assert.equal(sanitize(text), expected);
    assert.ok(envelope({ text: sanitize(text) }));
  }
});
const CHARACTERS = ["\u0000", "\ud800", "\udc00", "\\", "u0000", "ud800", '"', "a", "\u{1F600}", "\n", "\u2028"];
