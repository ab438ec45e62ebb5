/** The checker of JSON Schemas: vectors that the server's checker agrees with, what it says, and what it refuses. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { problemsOf, refuseUnusable } from "../src/json_schema.js";
import { packageFile } from "./support/package_files.js";

const VECTORS = JSON.parse(readFileSync(packageFile("test/json_schema_vectors.json"), "utf8")) as [unknown, unknown, boolean][];

test("it agrees with the server's checker", () => {
  const found = VECTORS.map(([schema, value]) => {
    refuseUnusable(schema);
    return [schema, value, problemsOf(schema, value).length === 0];
  });

  assert.ok(VECTORS.length > 80);
  assert.deepEqual(found, VECTORS);
});

test("problems have their place, and there are at most five", () => {
  const schema = { type: "object", properties: { days: { type: "array", items: { minimum: 1, maximum: 9 } } }, required: ["city"], additionalProperties: false };

  assert.deepEqual(problemsOf(schema, { days: [0, 10], more: 1 }), [
    '"city" is missing',
    "at days/0: 0 is less than 1",
    "at days/1: 10 is more than 9",
    'there is no property "more"',
  ]);
  assert.equal(problemsOf({ items: { type: "string" } }, [1, 2, 3, 4, 5, 6, 7]).length, 5);
});

test("a schema that leads back to itself ends, and so does a value that is nested without end", () => {
  const schema = { properties: { next: { $ref: "#" } } };
  let value: object = {};
  for (let depth = 0; depth < 5_000; depth += 1) value = { next: value };

  assert.match(problemsOf({ $ref: "#" }, 1).join(), /nested too deeply/);
  assert.match(problemsOf(schema, value).join(), /nested too deeply/);
});

test("what cannot be checked is refused before any value is", () => {
  const refused: [unknown, RegExp][] = [
    ["text", /the schema is not a JSON Schema/],
    [{ items: [{}] }, /the schema\/items is not a JSON Schema/],
    [{ properties: { a: { unevaluatedProperties: false } } }, /the schema\/properties\/a has unevaluatedProperties/],
    [{ type: "text" }, /the type "text", which JSON does not have/],
    [{ $ref: "other.json#/a" }, /other.json#\/a leads nowhere/],
    [{ $ref: "#/$defs/a" }, /leads nowhere/],
    [{ pattern: "(" }, /Invalid regular expression/],
  ];

  for (const [schema, said] of refused) assert.throws(() => refuseUnusable(schema), said);
});
