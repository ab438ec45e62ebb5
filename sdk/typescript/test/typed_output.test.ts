/** Answers that are values of a schema: word by word, and with the real server. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { z } from "zod";
import { z as zOld } from "zod3";

import type { Envelope } from "../src/envelope.js";
import { createMakaiClient, type MakaiClient, type Schema } from "../src/index.js";
import { Limits } from "../src/typed_output.js";
import { facts, FakeServer, failureOf } from "./support/fake_server.js";
import { MODEL_REF, overStdio, skipReal } from "./support/real_server.js";

const TRIP = z.object({ city: z.string(), days: z.number().default(1) });
const JSON_TRIP = { type: "object", properties: { city: { type: "string" } }, required: ["city"] } as const;
const ASKED = { model_ref: "m", messages: [{ role: "user" as const, content: "Where to?" }] };

/** The compiler checks these. */
export async function typed(client: MakaiClient): Promise<[number, string, string | undefined]> {
  const { output } = await client.agent.run({ ...ASKED, output: TRIP });
  const { output: plain } = await client.provider.complete({ ...ASKED, output: JSON_TRIP });
  const { output: inline } = await client.agent.run({ ...ASKED, output: { type: "object", properties: { by: { type: "string" } } } });
  // @ts-expect-error: it is a string
  plain.city satisfies number;
  // @ts-expect-error: without a schema there is no output
  (await client.agent.run(ASKED)).output;
  // @ts-expect-error: a stream has no output
  client.agent.stream({ ...ASKED, output: TRIP });
  return [output.days, plain.city, inline.by];
}

function says(server: FakeServer, request: Envelope, text: string): void {
  server.ack(request);
  const content = [{ type: "text", text }];
  server.reply(request, "result", { content, stop_reason: "end_turn", usage: { input: 1, output: 2, cache_read: 3 }, provider: "p", api: "a", model: "m" });
}

test("the schema is asked for, and an answer that does not fit is asked for again", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const asking = client.provider.complete({ ...ASKED, output: TRIP });
  const first = await server.next("complete_request");
  says(server, first, 'It is {"town": "Rome"}.');
  const second = await server.next("complete_request");
  says(server, second, 'Sure:\n```json\n{"city": "Rome"}\n```\n');
  const { output, usage } = await asking;
  const { context, options } = first.payload as any;

  assert.deepEqual([output, usage], [{ city: "Rome", days: 1 }, { input: 2, output: 4, cache_read: 6 }]);
  assert.deepEqual(Object.keys(JSON.parse(options.json_schema).properties), ["city", "days"]);
  assert.match(context.messages[0].content, /^Where to\?\n\nAnswer with one JSON value .*no code fence\.\n\n\{"type":"object"/s);
  assert.deepEqual((second.payload as any).context.messages.map(({ role }: any) => role), ["user", "assistant", "user"]);
  assert.match((second.payload as any).context.messages[2].content, /^The answer does not follow the schema: at city: .* Answer again with the corrected JSON value only\.$/);
});

test("an answer that never fits is a failure, and requests that cannot have an output are refused", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const asking = failureOf(client.provider.complete({ ...ASKED, output: JSON_TRIP, output_repairs: 0 }));
  says(server, await server.next("complete_request"), "I do not know.");
  const tools = [{ name: "t", description: "", parameters_schema_json: "{}" }];
  const refused = [
    client.provider.complete({ ...ASKED, tools, output: JSON_TRIP }),
    client.provider.complete({ ...ASKED, output: JSON_TRIP, output_repairs: 11 }),
    client.agent.run({ ...ASKED, output: { type: "text" } }),
  ];

  assert.deepEqual(facts(await asking), {
    name: "MakaiStreamError",
    kind: "provider_error",
    code: "invalid_output",
    provider_id: undefined,
    message: "The answer holds no JSON value.",
  });
  for (const request of refused) assert.equal(facts(await failureOf(request))["code"], "invalid_request");
  assert.throws(() => client.agent.stream({ ...ASKED, output: TRIP } as typeof ASKED), /a stream has no output/);
  assert.throws(() => client.provider.stream({ ...ASKED, output: TRIP } as typeof ASKED), /a stream has no output/);
});

test("a corrected answer has what is left of the limits", () => {
  const limits = new Limits({ max_turns: 3, max_output_tokens: 10, temperature: 0 });
  limits.turns = 2;

  assert.deepEqual(limits.left({ input: 1, output: 4 }), { max_turns: 1, max_output_tokens: 6, temperature: 0 });
  assert.equal(limits.left({ input: 1, output: 10 }), undefined);
  assert.equal(new Limits({ max_usd: 1 }).left(undefined), undefined);
});

describe("with the real server", { skip: skipReal, timeout: 60_000 }, () => {
  for (const [kind, output] of Object.entries({ "zod 4": TRIP, "zod 3": zOld.object({ city: zOld.string(), days: zOld.number() }), JSON: JSON_TRIP } as Record<string, Schema>)) {
    test(`a run with ${kind} gives a value after one correction, in one session`, async (t) => {
      const client = await createMakaiClient(overStdio(t));
      t.after(() => client.close());
      const messages = [{ role: "user" as const, content: "trip" }];
      const response = await client.agent.run({ model_ref: MODEL_REF, messages, output });

      assert.deepEqual(response.output, { city: "Rome", days: 2 });
      assert.deepEqual(response.usage, { input: 7, output: 3 });
      assert.equal((await client.agent.status(response.session_id ?? "")).status, "idle");
    });
  }
});
