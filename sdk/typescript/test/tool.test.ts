/** Functions as tools: their types, schemas and checks, what they answer, and how they end. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { z } from "zod";
import { z as z3 } from "zod/v3";
import { z as zOld } from "zod3";

import { createMakaiClient, type Infer, type MakaiStreamError, type Schema, tool, type ToolArguments, withJsonSchema } from "../src/index.js";
import type { AgentTool, CompletionResponse } from "../src/index.js";
import { problemsOf } from "../src/json_schema.js";
import { callTools } from "../src/tool.js";
import { facts, FakeServer, failureOf } from "./support/fake_server.js";
import { MODEL_REF, overStdio, skipReal } from "./support/real_server.js";

interface Trip {
  city: string;
  days: number;
  by?: "train" | "ship" | undefined;
}
const JSON_TRIP = {
  type: "object",
  properties: { city: { type: "string", minLength: 1 }, days: { type: "integer" }, by: { enum: ["train", "ship"] } },
  required: ["city", "days"],
} as const;
const ZOD = z.object({ city: z.string().min(1), days: z.number().int().default(1), by: z.enum(["train", "ship"]).optional() });
const ZOD3 = z3.object({ city: z3.string().min(1), days: z3.number().int().default(1), by: z3.enum(["train", "ship"]).optional() });
const OLD = zOld.object({ city: zOld.string().min(1), days: zOld.number().int().default(1), by: zOld.enum(["train", "ship"]).optional() });
const KINDS: Record<string, Schema> = { "JSON Schema": JSON_TRIP, "zod 4": ZOD, "zod 3": ZOD3, "an old zod 3": OLD };

/** The compiler checks these. */
type Yes<Fact extends true> = Fact;
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
export type Inferred = [
  Yes<Same<Infer<typeof ZOD>, Trip>>,
  Yes<Same<Infer<typeof ZOD3>, Trip>>,
  Yes<Same<Infer<typeof OLD>, Trip>>,
  Yes<Same<Infer<typeof JSON_TRIP>, { city: string; days: number; by?: "train" | "ship" }>>,
  Yes<Same<Infer<{ type: "array"; items: { type: ["string", "null"] } }>, (string | null)[]>>,
  Yes<Same<Infer<{ anyOf: [{ const: 1 }, { type: "boolean" }] }>, boolean | 1>>,
  Yes<Same<ToolArguments<{ type: string }>, Record<string, any>>>,
];

export function typed(): AgentTool[] {
  const name = "trip";
  return [
    tool({ name, description: "", parameters: ZOD, run: ({ city, days }) => city.repeat(days) }),
    tool({ name, description: "", parameters: OLD, run: ({ city, by }) => city + (by ?? "") }),
    tool({
      name,
      description: "",
      parameters: { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } }, required: ["city"] },
      run: ({ city, days }) => city.repeat(days ?? 1),
    }),
    // @ts-expect-error: there is no such argument
    tool({ name, description: "", parameters: ZOD, run: ({ town }) => String(town) }),
    // @ts-expect-error: it is a number
    tool({ name, description: "", parameters: JSON_TRIP, run: ({ days }) => days.length }),
    // @ts-expect-error: there are no arguments
    tool({ name, description: "", run: ({ city }) => city }),
  ];
}

const context = (): { tool_call_id: string; signal: AbortSignal } => ({ tool_call_id: "c", signal: new AbortController().signal });

for (const [kind, parameters] of Object.entries(KINDS)) {
  test(`with ${kind} a function gets arguments that fit, and the model what does not`, async () => {
    const seen: unknown[] = [];
    const run = (args: unknown): string => (seen.push(args), "Booked.");
    const trip = tool({ name: "trip", description: "Book a trip", parameters, run });
    const schema = JSON.parse(trip.parameters_schema_json) as typeof JSON_TRIP;
    const wrong = (await trip.execute?.({ city: "", days: 1.5, by: "air" }, context())) as { content: string; is_error: boolean };

    assert.equal(await trip.execute?.({ city: "Rome", days: 2 }, context()), "Booked.");
    assert.deepEqual(seen, [{ city: "Rome", days: 2 }]);
    assert.equal(wrong.is_error, true);
    assert.match(wrong.content, /^The arguments do not fit trip:\n- at city: .+\n- at days: .+\n- at by: .+$/);
    assert.deepEqual([schema.type, schema.properties.city, "$schema" in schema], ["object", { type: "string", minLength: 1 }, false]);
    assert.deepEqual(schema.properties.by.enum, ["train", "ship"]);
  });
}

test("zod's defaults and conversions reach the function", async () => {
  const seen: unknown[] = [];
  for (const parameters of [ZOD, ZOD3, OLD] as Schema[]) {
    const run = (args: unknown): number => seen.push(args);
    await tool({ name: "trip", description: "", parameters, run }).execute?.({ city: "Rome", more: 1 }, context());
  }

  assert.deepEqual(seen, Array(3).fill({ city: "Rome", days: 1 }));
});

test("the JSON Schemas of zod 3 say what zod 4 says of the same types", () => {
  /** The two versions have the same names for these. */
  const shape = (zod: any): Schema =>
    zod.object({
      text: zod.string().min(2).max(5).describe("Some text"),
      code: zod.string().regex(/^a+$/),
      count: zod.number().gt(0).max(9).multipleOf(0.5),
      flag: zod.boolean().nullable(),
      one: zod.literal("x"),
      list: zod.array(zod.string()).min(1).max(3),
      pair: zod.tuple([zod.string(), zod.number()]),
      map: zod.record(zod.string(), zod.number()),
      either: zod.union([zod.string(), zod.null()]),
      both: zod.intersection(zod.object({ a: zod.string() }), zod.object({ b: zod.string() })),
      inner: zod.object({ a: zod.unknown() }).strict().readonly(),
      kind: zod.discriminatedUnion("t", [zod.object({ t: zod.literal("a") }), zod.object({ t: zod.literal("b") })]),
      trimmed: zod.string().transform((text: string) => text.trim()),
    });
  const made = (zod: unknown): any => JSON.parse(tool({ name: "t", description: "", parameters: shape(zod), run: String }).parameters_schema_json);
  const [newer, ...older] = [z, z3, zOld].map(made);
  const text = { type: "string" };
  const fits = { text: "abc", code: "aa", count: 0.5, flag: null, one: "x", list: ["a"], pair: ["a", 1], map: { a: 1 }, either: null, both: { a: "", b: "" }, inner: { a: 1 }, kind: { t: "b" }, trimmed: " a" };
  const wrong = { text: "a", code: "b", count: 0, flag: 1, one: "y", list: [], pair: ["a"], map: { a: "" }, either: 1, both: { a: "" }, inner: { a: 1, c: 1 }, kind: { t: "c" }, trimmed: 1 };

  assert.deepEqual(older[0], {
    type: "object",
    properties: {
      text: { type: "string", minLength: 2, maxLength: 5, description: "Some text" },
      code: { type: "string", pattern: "^a+$" },
      count: { type: "number", exclusiveMinimum: 0, maximum: 9, multipleOf: 0.5 },
      flag: { anyOf: [{ type: "boolean" }, { type: "null" }] },
      one: { const: "x" },
      list: { type: "array", items: text, minItems: 1, maxItems: 3 },
      pair: { type: "array", prefixItems: [text, { type: "number" }], minItems: 2, items: false },
      map: { type: "object", additionalProperties: { type: "number" } },
      either: { anyOf: [text, { type: "null" }] },
      both: { allOf: ["a", "b"].map((name) => ({ type: "object", properties: { [name]: text }, required: [name] })) },
      inner: { type: "object", properties: { a: {} }, additionalProperties: false },
      kind: { anyOf: ["a", "b"].map((value) => ({ type: "object", properties: { t: { const: value } }, required: ["t"] })) },
      trimmed: text,
    },
    required: Object.keys(fits),
  });
  assert.deepEqual(older[1], older[0]);
  for (const schema of [newer, older[0]]) {
    assert.deepEqual(problemsOf(schema, fits), []);
    for (const [name, value] of Object.entries(wrong)) assert.equal(problemsOf(schema, { ...fits, [name]: value }).length, 1, name);
  }
});

test("enumerations of zod 3 are their values, with numbers too", () => {
  enum Level {
    Low = 1,
    High = "high",
  }
  const made = tool({ name: "t", description: "", parameters: zOld.object({ level: zOld.nativeEnum(Level) }), run: String });

  assert.deepEqual(JSON.parse(made.parameters_schema_json).properties, { level: { enum: [1, "high"] } });
});

test("what cannot be a tool is refused when it is defined", () => {
  const refused: [object, RegExp][] = [
    [{ name: "no name" }, /"no name" is no name of a tool/],
    [{ name: undefined }, /"undefined" is no name of a tool/],
    [{ description: undefined }, /t has no description/],
    [{ run: undefined }, /t has no function: give one as `run`/],
    [{ parameters: 5 }, /the schema of t cannot be used: it is no schema/],
    [{ timeout_ms: 0 }, /timeout_ms is more than 0/],
    [{ parameters: { type: "string" } }, /parameters of t are not an object/],
    [{ parameters: z.string() }, /parameters of t are not an object/],
    [{ parameters: { type: "object", unevaluatedProperties: false } }, /the schema of t cannot be used: .*unevaluatedProperties/],
    [{ parameters: zOld.object({ day: zOld.date() }) }, /the schema\/day is a ZodDate.*withJsonSchema/],
    [{ parameters: z.object({ day: z.date() }) }, /the schema of t cannot be used: Date/],
    [{ parameters: { "~standard": { version: 1, vendor: "x", validate: () => ({ value: 1 }) } } }, /does not write JSON Schemas.*withJsonSchema/],
  ];

  for (const [more, said] of refused) {
    assert.throws(
      () => tool({ name: "t", description: "", run: () => "", ...more }),
      (error: MakaiStreamError) => said.test(error.message) && error.code === "invalid_request",
    );
  }
});

test("a schema may be given its JSON Schema, and still checks and converts by itself", async () => {
  const json = { type: "object", properties: { day: { type: "string" } }, required: ["day"] };
  const parameters = withJsonSchema(zOld.object({ day: zOld.coerce.date() }), json);
  const made = tool({ name: "t", description: "", parameters, run: ({ day }) => day.getUTCFullYear() });

  assert.deepEqual(JSON.parse(made.parameters_schema_json), json);
  assert.equal(await made.execute?.({ day: "2026-11-17" }, context()), 2026);
  assert.equal(((await made.execute?.({ day: "never" }, context())) as { is_error?: boolean }).is_error, true);
});

test("a call that takes too long fails, and its signal is aborted; one that is aborted ends at once", async () => {
  const signals: AbortSignal[] = [];
  const run = (_: object, { signal }: { signal: AbortSignal }): Promise<unknown> => {
    signals.push(signal);
    return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  };
  const slow = tool({ name: "slow", description: "", run, timeout_ms: 20 });
  const patient = tool({ name: "patient", description: "", run, timeout_ms: 60_000 });
  const controller = new AbortController();
  const waiting = failureOf(Promise.resolve(patient.execute?.({}, { tool_call_id: "c", signal: controller.signal })));
  await new Promise<void>((resolve) => setImmediate(resolve));
  controller.abort(new Error("stopped"));

  assert.equal(String(await waiting), "Error: stopped");
  assert.deepEqual(await slow.execute?.({}, context()), { content: "slow had no answer within 0.02 s.", is_error: true });
  assert.deepEqual(signals.map(({ aborted }) => aborted), [true, true]);
});

function answer(...calls: [name: string, arguments_json: string][]): CompletionResponse {
  const content = calls.map(([name, arguments_json], index) => ({ type: "tool_call" as const, tool_call_id: `c${index}`, name, arguments_json }));
  return { message: { role: "assistant", content: [{ type: "text", text: "Let me see." }, ...content] }, provider_id: "p", api: "a", model_id: "m" };
}

test("the calls of an answer become results for the next request, failures too", async () => {
  const trip = tool({ name: "trip", description: "", parameters: ZOD, run: ({ city, days }) => ({ city, days }) });
  const bare = { name: "bare", description: "", parameters_schema_json: '{"type":"object","required":["a"]}', execute: () => "\ud800" };
  const failing = tool({ name: "failing", description: "", run: () => Promise.reject(new RangeError("no")) });
  const calls = answer(["trip", '{"city":"Rome"}'], ["trip", '{"city":'], ["trip", "{}"], ["bare", "{}"], ["bare", '{"a":1}'], ["failing", ""], ["other", "{}"]);
  const messages = await callTools(calls, [trip, bare, failing]);
  const results = messages.map(({ role, content }) => {
    const [{ type, content: said, is_error = false, tool_call_id }] = content as any;
    return [role, type, tool_call_id, is_error, String(said).replace(/(not JSON|at city): .*/, "$1")];
  });

  assert.deepEqual(results, [
    ["tool", "tool_result", "c0", false, '{"city":"Rome","days":1}'],
    ["tool", "tool_result", "c1", true, "The arguments do not fit trip:\n- they are not JSON"],
    ["tool", "tool_result", "c2", true, "The arguments do not fit trip:\n- at city"],
    ["tool", "tool_result", "c3", true, 'The arguments do not fit bare:\n- "a" is missing'],
    ["tool", "tool_result", "c4", false, "\ufffd"],
    ["tool", "tool_result", "c5", true, "RangeError: no"],
    ["tool", "tool_result", "c6", true, 'Error: there is no function for the tool "other"'],
  ]);
});

test("aborting ends the calls of an answer", async () => {
  const controller = new AbortController();
  const run = (_: object, { signal }: { signal: AbortSignal }): Promise<never> => {
    controller.abort();
    assert.ok(signal.aborted);
    return new Promise(() => undefined);
  };
  const waits = tool({ name: "waits", description: "", run });

  assert.equal(facts(await failureOf(callTools(answer(["waits", "{}"]), [waits], controller.signal)))["kind"], "aborted");
});

test("a model gets the definition of a tool, and the server learns who decides about it", async () => {
  const server = new FakeServer();
  const client = await server.client();
  const trip = tool({ name: "trip", description: "Book", run: () => "", permission: "ask", read_only: true });
  const definition = { name: "trip", description: "Book", parameters_schema_json: '{"type":"object","properties":{}}' };
  const request = { model_ref: "m", messages: [{ role: "user" as const, content: "Hi" }], tools: [trip] };
  void failureOf(client.provider.complete(request));
  void failureOf(client.agent.run(request));

  assert.deepEqual(((await server.next("complete_request")).payload["context"] as any).tools, [definition]);
  assert.deepEqual((await server.next("agent_start")).payload["tools"], [{ ...definition, permission: "ask", read_only: true }]);
  await client.close();
});

describe("with the real server", { skip: skipReal, timeout: 60_000 }, () => {
  test("an agent and a program of its own loop carry out tools with zod", async (t) => {
    const client = await createMakaiClient(overStdio(t));
    t.after(() => client.close());
    const seen: string[] = [];
    const run = ({ at }: { at: string }): string => (seen.push(at), "Water.");
    const look = tool({ name: "look", description: "Look", parameters: z.object({ at: z.string() }), run });
    const messages = [{ role: "user" as const, content: "look" }];
    await client.agent.run({ model_ref: MODEL_REF, messages, tools: [look], options: { max_turns: 1 } });
    const response = await client.provider.complete({ model_ref: MODEL_REF, messages, tools: [look] });
    const results = await client.provider.call_tools(response, [look]);
    const next = await client.provider.complete({ model_ref: MODEL_REF, messages: [...messages, response.message, ...results], tools: [look] });

    assert.deepEqual(seen, ["sea", "sea"]);
    assert.deepEqual(results.map(({ role, content }) => [role, (content as any)[0].content]), [["tool", "Water."]]);
    assert.equal(next.message.role, "assistant");
  });

  test("arguments that do not fit are answered before the function runs", async (t) => {
    const client = await createMakaiClient(overStdio(t));
    t.after(() => client.close());
    const look = tool({ name: "look", description: "", parameters: z.object({ at: z.number() }), run: () => assert.fail("it ran") });
    const errors: unknown[] = [];
    const asked = { model_ref: MODEL_REF, messages: [{ role: "user" as const, content: "look" }], tools: [look], options: { max_turns: 1 } };
    for await (const event of client.agent.stream(asked)) if (event.type === "tool_execution_end") errors.push(event.is_error);

    assert.deepEqual(errors, [true]);
  });
});
