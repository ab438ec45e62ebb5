/** The built package, as a program that installed it sees it. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { test } from "node:test";

import { packageFile } from "./support/package_files.js";
import { req } from "./support/req.js";

const NAMES = ["MakaiAuthError", "MakaiStreamError", "ModelRefError", "createMakaiClient", "parseModelRef", "tool", "withJsonSchema"];

test("it can be imported and required by its name", async () => {
  const name = "makai";
  const imported = (await import(name)) as object;
  const required = createRequire(import.meta.url)(name) as object;

  assert.deepEqual(Object.keys(imported).sort(), NAMES);
  assert.deepEqual(
    Object.keys(required)
      .filter((key) => key !== "__esModule")
      .sort(),
    NAMES,
  );
});

test("every file that package.json names exists, and it has no runtime dependency", () => {
  const { exports, browser, dependencies } = JSON.parse(readFileSync(packageFile("package.json"), "utf8"));
  const named = [
    ...Object.values(exports["."]).flatMap((entry) => Object.values(entry as object)),
    ...Object.keys(browser),
  ];

  for (const path of named) assert.ok(readFileSync(packageFile(path)).length > 0);
  assert.equal(dependencies, undefined);
});

/** All modules that are loaded with `entry`: static imports only. */
function loadedWith(entry: string, seen = new Set<string>()): Set<string> {
  if (seen.has(entry)) return seen;
  seen.add(entry);
  for (const [, target = ""] of readFileSync(entry, "utf8").matchAll(/^(?:import|export) .*?from "([^"]+)";$/gm)) {
    if (target.startsWith(".")) loadedWith(join(dirname(entry), target), seen);
    else seen.add(target);
  }
  return seen;
}

test("nothing of Node is loaded until a transport needs it, so a browser can load the package", () => {
  const root = packageFile("dist/esm");
  const loaded = [...loadedWith(join(root, "index.js"))].map((path) =>
    path.startsWith(root) ? relative(root, path) : path,
  );

  assert.ok(loaded.includes("transports/websocket.js"));
  assert.deepEqual(
    loaded.filter((path) => path.startsWith("node:") || /stdio|node_websocket/.test(path)),
    [],
  );
});

test(`only the stdio transport starts a program, and no file is ever read ${req("MK-TSSDK-009")}`, () => {
  const sources = readdirSync(packageFile("src"), { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".ts"),
  );
  const users = (pattern: RegExp): string[] =>
    sources.filter((name) => pattern.test(readFileSync(packageFile(join("src", name)), "utf8")));

  assert.ok(sources.length > 15);
  assert.deepEqual(users(/child_process|\bspawn\(|\bexec(File|Sync|FileSync)?\(/), ["transports/stdio.ts"]);
  assert.deepEqual(users(/node:fs|auth\.json|\.makai\//), []);
  assert.deepEqual(users(/["']auth["']/), []);
});
