import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { type ModelRef, ModelRefError, parseModelRef } from "../src/index.js";
import { packageFile } from "./support/package_files.js";
import { req } from "./support/req.js";

interface Vectors {
  valid: (ModelRef & { ref: string })[];
  invalid: { ref: string; kind: string }[];
}
/** The server's own tests read the same file. */
const { valid, invalid } = JSON.parse(readFileSync(packageFile("test/model_ref_vectors.json"), "utf8")) as Vectors;

test(`every valid ref is read as the server reads it ${req("MK-TSSDK-003")}`, () => {
  assert.ok(valid.length >= 10);
  assert.deepEqual(
    valid.map(({ ref }) => ({ ref, ...parseModelRef(ref) })),
    valid,
  );
});

test(`every invalid ref is refused for the server's reason ${req("MK-TSSDK-003")}`, () => {
  const reasons = invalid.map(({ ref }) => {
    try {
      return { ref, kind: `accepted as ${JSON.stringify(parseModelRef(ref))}` };
    } catch (error) {
      assert.ok(error instanceof ModelRefError);
      return { ref, kind: error.kind };
    }
  });

  assert.ok(invalid.length >= 30);
  assert.deepEqual(reasons, invalid);
});
