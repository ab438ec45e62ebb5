/**
 * What a caller gives is what the vendor's server receives: every field, over both transports, in every dialect.
 *
 * In: the requests and what the vendor must receive of them, shared with the tests of the Python SDK
 * (tests/fixtures, tests/support/whole_requests.py).
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";

import { createMakaiClient, type AgentRunRequest, type ProviderCompleteRequest } from "../src/index.js";
import { collect } from "./support/fake_server.js";
import { type Ended, overStdio, overWebSocket, skipReal } from "./support/real_server.js";
import { req } from "./support/req.js";

type Recorded = Record<string, Record<string, unknown>>;
interface Asked {
  environ: Record<string, string>;
  answer: string;
  requests: Record<string, ProviderCompleteRequest & AgentRunRequest>;
}

const FIXTURES = fileURLToPath(new URL("../../../../tests/fixtures/", import.meta.url));
const SESSION = "11111111-2222-4333-8444-555555555555";
const NOT_COMPARED = ["host", "content-length", "user-agent", "accept-encoding", "connection"];

function read<T>(...path: string[]): T {
  return JSON.parse(readFileSync(join(FIXTURES, ...path), "utf8")) as T;
}

/** Every vendor at one address: it answers as the dialect that is asked next, and keeps what it received. */
async function vendor(t: Ended) {
  const received: unknown[] = [];
  const state = { answer: "", session: SESSION, url: "", received };
  const server = createServer((request: IncomingMessage, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (chunk: string) => (body += chunk));
    request.on("end", () => {
      const headers = Object.entries(request.headers).filter(([name]) => !NOT_COMPARED.includes(name));
      received.push({ method: request.method, path: request.url, headers: Object.fromEntries(headers), body });
      response.writeHead(200, { "Content-Type": "text/event-stream" }).end(state.answer);
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => server.close());
  state.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return state;
}

function only(received: unknown[], session: string): unknown {
  assert.equal(received.length, 1);
  const { body, ...rest } = received.pop() as { body: string };
  return { ...rest, body: JSON.parse(body.replaceAll(session, SESSION)) };
}

describe("whole requests", { skip: skipReal, timeout: 120_000 }, () => {
  for (const transport of ["stdio", "WebSocket"])
    test(`what is asked over ${transport} reaches the vendor`, async (t) => {
      req("MK-PROV-004", "MK-PROV-005", "MK-PROV-007");
      const server = await vendor(t);
      const cases = Object.entries(read<Record<string, Asked>>("whole_requests.json"));
      const environ = Object.fromEntries(
        cases.flatMap(([, { environ }]) =>
          Object.entries(environ).map(([name, value]) => [name, /_(KEY|TOKEN)$/.test(name) ? value : server.url + value]),
        ),
      );
      const options = transport === "stdio" ? overStdio(t, environ) : await overWebSocket(t, environ);
      const client = await createMakaiClient(options);
      t.after(() => client.close());

      for (const [name, { answer, requests }] of cases) {
        const expected = read<Recorded>("vendor_requests", `${name}.json`);
        server.answer = answer;
        for (const [variant, request] of Object.entries(requests)) {
          const what = `${name}, ${variant}`;
          if (variant.startsWith("agent: ")) {
            const { session_id } = await client.agent.run(request);
            assert.deepEqual(only(server.received, session_id ?? ""), expected[variant], what);
            continue;
          }
          await client.provider.complete(request);
          assert.deepEqual(only(server.received, SESSION), expected[variant], what);
          await collect(client.provider.stream(request));
          assert.deepEqual(only(server.received, SESSION), expected[variant], `${what}, stream`);
        }
      }
    });
});
