/** The README's example, run as it is printed. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";

import { packageFile } from "./support/package_files.js";
import { PYTHON, skipReal } from "./support/real_server.js";

const EXAMPLE = /```ts\n([\s\S]*?)```/.exec(readFileSync(packageFile("README.md"), "utf8"))?.[1] ?? "";
const HOME = process.env["MAKAI_HOME"] ?? join(homedir(), ".makai");
const WEIGHTS = join(HOME, "models", "SmolLM2-135M-Instruct.Q4_1.gguf");

const folder = mkdtempSync(join(tmpdir(), "makai-readme-"));
/** In the package's folder, where "makai" means this package. */
const script = packageFile("build/readme_example.mjs");
after(() => (rmSync(folder, { recursive: true, force: true }), rmSync(script, { force: true })));

/** What the example prints with these arguments, with `makai` being the one of the Python under test. */
async function printed(home: string, ...args: string[]): Promise<{ stdout: string; stderr: string }> {
  const command = join(folder, "makai");
  writeFileSync(command, `#!/bin/sh\nexec "${PYTHON}" -m makai "$@"\n`);
  chmodSync(command, 0o755);
  writeFileSync(script, EXAMPLE);
  return promisify(execFile)(process.execPath, [script, ...args], {
    env: { ...process.env, MAKAI_COMMAND: command, MAKAI_HOME: home },
  });
}

test("the README's example is short and streams an answer", { skip: skipReal, timeout: 60_000 }, async () => {
  const { stdout, stderr } = await printed(folder, "scripted", "echo");

  assert.ok(EXAMPLE.trim().split("\n").length <= 15);
  assert.deepEqual({ stdout, stderr }, { stdout: "Say hello in five words.", stderr: "" });
});

const skipLocal =
  skipReal || (existsSync(WEIGHTS) ? false : "the local model is not pulled: makai models pull smollm2");
test("the README's example streams from the local model", { skip: skipLocal, timeout: 120_000 }, async () => {
  const { stdout, stderr } = await printed(HOME);

  assert.match(stdout, /\w+/);
  assert.equal(stderr, "");
});
