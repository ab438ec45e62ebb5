/**
 * Builds `dist` from `src`. npm runs it with `--prepare` when this folder is installed by its path: it then builds only
 * what changed since the last build, and installs the compiler of the lock file if it is missing, because npm does
 * not install the development packages of a folder that it links.
 */

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const DIST = join(ROOT, "dist");
const COMPILER = join(ROOT, "node_modules", "typescript", "bin", "tsc");
const STAMP = "source.sha256";
const INSTALL_MS = 300_000;
const COMPILE_MS = 120_000;

/** Names the sources and settings of a build. */
function sourceDigest() {
  const settings = ["esm.json", "cjs.json", "json"].map((name) => `tsconfig.${name}`);
  const sources = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" }).map((name) => join("src", name));
  const hash = createHash("sha256");
  for (const name of [...sources.filter((name) => name.endsWith(".ts")).sort(), ...settings, "package-lock.json"])
    hash.update(`${name}\0`).update(readFileSync(join(ROOT, name))).update("\0");
  return hash.digest("hex");
}

function isBuilt(digest) {
  const stamp = join(DIST, STAMP);
  return existsSync(stamp) && readFileSync(stamp, "utf8") === digest;
}

/** Runs a program in the package's folder; throws `failure` with its output unless it succeeds. */
function run(command, args, timeout, failure) {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd: ROOT, encoding: "utf8", timeout });
  if (error === undefined && status === 0) return;
  throw new Error([failure, error?.message, stdout, stderr].filter(Boolean).join("\n").trim());
}

/** The settings of the outer npm are in the environment; those that would change this installation are overruled. */
function installCompiler() {
  const npm = process.env.npm_execpath;
  const [command, ...first] = npm === undefined ? ["npm"] : [process.execPath, npm];
  const settings = ["--ignore-scripts", "--include=dev", "--no-global", "--no-dry-run", "--no-audit", "--no-fund", "--loglevel=error"];
  const failure = "the compiler could not be installed. With a connection to your registry, run `npm ci && npm run build` in its folder:";
  run(command, [...first, "ci", ...settings], INSTALL_MS, `${failure} ${ROOT}`);
}

function build(digest) {
  if (!existsSync(COMPILER)) throw new Error("the compiler is not installed: run `npm ci` first");
  const made = join(ROOT, `.dist-${process.pid}`);
  mkdirSync(made);
  try {
    for (const format of ["esm", "cjs"]) {
      const args = [COMPILER, "-p", `tsconfig.${format}.json`, "--outDir", join(made, format)];
      run(process.execPath, args, COMPILE_MS, `the ${format} build failed`);
    }
    writeFileSync(join(made, "cjs", "package.json"), JSON.stringify({ type: "commonjs" }));
    writeFileSync(join(made, STAMP), digest);
    rmSync(DIST, { recursive: true, force: true });
    renameSync(made, DIST);
  } finally {
    rmSync(made, { recursive: true, force: true });
  }
}

try {
  const digest = sourceDigest();
  const prepares = process.argv.includes("--prepare");
  if (prepares && !existsSync(COMPILER) && !isBuilt(digest)) installCompiler();
  if (!prepares || !isBuilt(digest)) build(digest);
} catch (error) {
  console.error(`makai: ${error.message}`);
  process.exitCode = 1;
}
