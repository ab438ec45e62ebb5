/** The README's examples, run as they are printed. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";

import { packageFile } from "./support/package_files.js";
import { PYTHON, skipReal } from "./support/real_server.js";

const EXAMPLES = [...readFileSync(packageFile("README.md"), "utf8").matchAll(/```ts\n([\s\S]*?)```/g)];
const [ANSWER = "", AGENT = ""] = EXAMPLES.map(([, program]) => program);
const HOME = process.env["MAKAI_HOME"] ?? join(homedir(), ".makai");
const WEIGHTS = join(HOME, "models", "SmolLM2-135M-Instruct.Q4_1.gguf");

const folder = mkdtempSync(join(tmpdir(), "makai-readme-"));
/** In the package's folder, where "makai" means this package. */
const script = packageFile("build/readme_example.mjs");
after(() => (rmSync(folder, { recursive: true, force: true }), rmSync(script, { force: true })));

/** What a program prints with these arguments, with `makai` being the one of the Python under test. */
async function printed(program: string, home: string, ...args: string[]): Promise<{ stdout: string; stderr: string }> {
  const command = join(folder, "makai");
  writeFileSync(command, `#!/bin/sh\nexec "${PYTHON}" -m makai "$@"\n`);
  chmodSync(command, 0o755);
  writeFileSync(script, program);
  return promisify(execFile)(process.execPath, [script, ...args], {
    timeout: 110_000, // a program that outlives its test would keep the whole run waiting
    env: { ...process.env, MAKAI_COMMAND: command, MAKAI_HOME: home, MAKAI_SCENARIO: join(folder, "scenario.txt") },
  });
}

test("the README's example is short and streams an answer", { skip: skipReal, timeout: 60_000 }, async () => {
  const { stdout, stderr } = await printed(ANSWER, folder, "scripted", "echo");

  assert.ok(ANSWER.trim().split("\n").length <= 15);
  assert.deepEqual({ stdout, stderr }, { stdout: "Say hello in five words.", stderr: "" });
});

test("the README's agent is short and uses its tool", { skip: skipReal, timeout: 60_000 }, async () => {
  writeFileSync(join(folder, "scenario.txt"), "tool: clock {}\n---\nsay: Noon.\n");
  const { stdout, stderr } = await printed(AGENT, folder, "scripted/scripted@scenario");

  assert.ok(AGENT.trim().split("\n").length <= 15);
  assert.deepEqual({ stdout, stderr }, { stdout: "Noon.", stderr: "" });
});

const skipLocal =
  skipReal || (existsSync(WEIGHTS) ? false : "the local model is not pulled: makai models pull smollm2");
test("the README's example streams from the local model", { skip: skipLocal, timeout: 120_000 }, async () => {
  // So small a model sometimes repeats itself until its context is full.
  const bounded = ANSWER.replace("five words.\" }],", "$& options: { max_tokens: 40, temperature: 0 },");
  assert.notEqual(bounded, ANSWER);
  const { stdout, stderr } = await printed(bounded, HOME);

  assert.match(stdout, /\w+/);
  assert.equal(stderr, "");
});
