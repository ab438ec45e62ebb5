/**
 * The real makai server, as a process: over stdio, or listening for WebSockets.
 *
 * In: the Python to run it with, from MAKAI_TEST_PYTHON (default: python3; it must be able to import makai). Out:
 * options for `createMakaiClient`. Every server has a home directory of its own.
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { MakaiClientOptions } from "../../src/index.js";

const NAMED = process.env["MAKAI_TEST_PYTHON"];
export const PYTHON = NAMED ?? "python3";

/** Why the tests against the real server do not run, or false when they do. A Python that was named has to work. */
export const skipReal: string | false =
  NAMED !== undefined || spawnSync(PYTHON, ["-c", "import makai.server.stdio"]).status === 0
    ? false
    : `${PYTHON} cannot import makai`;

export const SCENARIO = `
say: Hello there.
usage: input=3 output=2
---
when: weather
think: The user wants the weather.
signature: proof
say: Let me look.
tool: get_weather {"city": "Paris"}
usage: input=12 output=34 cache_read=5
stop: tool_use
---
when: quota
say: Well,
fail: rate_limited retry_after=2s Slow down, please.
---
when: without end
say: It begins
stall
---
when: a lot
repeat: 20000 word
---
when: look
say: Looking.
tool: look {"at": "sea"}
usage: input=10 output=5 cache_read=2
---
when: serve
tool: desk__watch {"at": "sea"}
---
when: write
tool: write {"path": "a.txt", "content": "A"}
---
when: trip
say: To Rome.
usage: input=3 output=1
---
when: Answer again
say: {"city": "Rome", "days": 2}
usage: input=4 output=2
---
when: forbidden
say: So far
fail: invalid_request No.
`;
export const MODEL_REF = "scripted/scripted@scenario";

export interface Ended {
  after(end: () => unknown): void;
}

/** The environment of a server of its own. */
function environment(t: Ended, more: Record<string, string>): { MAKAI_HOME: string; MAKAI_SCENARIO: string; MAKAI_TEST_LOGIN: string } {
  const home = mkdtempSync(join(tmpdir(), "makai-sdk-"));
  t.after(() => rmSync(home, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }));
  const scenario = join(home, "scenario.txt");
  writeFileSync(scenario, SCENARIO);
  return { MAKAI_HOME: home, MAKAI_SCENARIO: scenario, MAKAI_TEST_LOGIN: "1", ...more };
}

/** Every client has a process of its own; those of one test share a home. */
export function overStdio(t: Ended, more: Record<string, string> = {}): MakaiClientOptions {
  return { command: PYTHON, args: ["-m", "makai", "--stdio"], env: environment(t, more) };
}

/** A listening server; it is stopped when the test ends. */
export async function overWebSocket(
  t: Ended,
  more: Record<string, string> = {},
): Promise<MakaiClientOptions & { process: ChildProcess }> {
  const env = environment(t, more);
  const server = spawn(PYTHON, ["-m", "makai", "serve", "--port", "0"], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.after(async () => {
    if (server.exitCode !== null || server.signalCode !== null) return;
    server.kill("SIGKILL");
    await once(server, "close");
  });
  let said = "";
  for await (const chunk of server.stdout) {
    said += String(chunk);
    if (said.includes("\n")) break;
  }
  const address = /http:\/\/(\S+)/.exec(said)?.[1];
  if (address === undefined) throw new Error(`the server did not say where it listens: ${said}`);
  const token = readFileSync(join(env.MAKAI_HOME, "server-token"), "utf8").trim();
  return { url: `ws://${address}/v1/makai`, token, process: server };
}
