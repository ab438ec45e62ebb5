// What a first visit loads, compressed: the page's scripts (with what they import statically) and styles.
// Fails above the budget, so that a build that is too big never ships. `--all` lists every file.
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const BUDGET_KB = 150;
const out = join(dirname(fileURLToPath(import.meta.url)), "../src/makai/server/page");
const html = readFileSync(join(out, "index.html"), "utf8");
const first = [...html.matchAll(/(?:src|href)="\/?(assets\/[^"]+)"/g)].map((match) => match[1]);
const seen = new Set();

function follow(name) {
  if (seen.has(name)) return;
  seen.add(name);
  if (!name.endsWith(".js")) return;
  const code = readFileSync(join(out, name), "utf8");
  for (const match of code.matchAll(/(?:from|import)\s*"\.\/([^"]+\.js)"/g)) follow(`assets/${match[1]}`);
}

first.forEach(follow);
const kb = (names) => names.reduce((sum, name) => sum + gzipSync(readFileSync(join(out, name))).length, 0) / 1024;
const scripts = kb([...seen].filter((name) => name.endsWith(".js")));
const styles = kb([...seen].filter((name) => name.endsWith(".css")));
const sizes = readdirSync(join(out, "assets")).map((name) => [kb([`assets/${name}`]), name]);
if (process.argv.includes("--all")) {
  for (const [size, name] of sizes.sort(([a], [b]) => b - a)) console.log(`${size.toFixed(1).padStart(8)} KB  ${name}`);
}
console.log(
  `first load: ${scripts.toFixed(1)} KB of JavaScript (at most ${BUDGET_KB}), ${styles.toFixed(1)} KB of CSS; ` +
    `with everything loaded later ${sizes.reduce((sum, [size]) => sum + size, 0).toFixed(1)} KB (gzip)`,
);
if (scripts > BUDGET_KB) {
  console.error(`The page's first load is above ${BUDGET_KB} KB of JavaScript.`);
  process.exit(1);
}
