// The pure parts of the settings: usage, notifications and command lines.
import { expect, test } from "vitest";
import type { UsageRow } from "../src/lib/api/usage";
import { pairsOf, wordsOf } from "../src/lib/command_line";
import { left } from "../src/lib/format";
import { noticesOf, type Look } from "../src/lib/notices";
import { csvOf, lastDays, localDay, totalOf, totalsBy } from "../src/lib/usage";

const row = (change: Partial<UsageRow>): UsageRow => ({
  day: "2026-11-17", model_ref: "v/a@m", harness: "native", cwd: "/p", runs: 1, input: 10, output: 2, cache_read: 3, cache_write: 4, cost_usd: 0.5, ...change,
});

test("totals add up, and runs without a price are counted apart", () => {
  const rows = [row({}), row({ runs: 3, cost_usd: null })];
  expect(totalOf(rows)).toEqual({ key: "", runs: 4, input: 20, output: 4, cacheRead: 6, cacheWrite: 8, cost: 0.5, unpriced: 3 });
});

test("groups are the most expensive first, and days in their order", () => {
  const rows = [row({ model_ref: "cheap", cost_usd: 0.1 }), row({ model_ref: "dear", day: "2026-11-16", cost_usd: 2 })];
  expect(totalsBy(rows, "model_ref").map(({ key }) => key)).toEqual(["dear", "cheap"]);
  expect(totalsBy(rows, "day").map(({ key }) => key)).toEqual(["2026-11-16", "2026-11-17"]);
});

test("days on which nothing happened are there, also over the end of a month", () => {
  const days = lastDays([row({ day: "2026-03-01" })], 3, "2026-03-01");
  expect(days.map(({ key, runs }) => [key, runs])).toEqual([["2026-02-27", 0], ["2026-02-28", 0], ["2026-03-01", 1]]);
});

test("today is the reader's own day", () => {
  const evening = new Date(2026, 10, 17, 23, 30);
  expect(localDay(evening)).toBe("2026-11-17");
});

test("a file for a spreadsheet quotes what must be quoted and calculates nothing", () => {
  const [head, one, two, end] = csvOf([row({ cwd: 'a "b", c', cost_usd: null }), row({ cwd: "=1+1" })]).split("\r\n");
  expect(head).toBe("day,model_ref,harness,cwd,runs,input,output,cache_read,cache_write,cost_usd");
  expect(one).toBe('2026-11-17,v/a@m,native,"a ""b"", c",1,10,2,3,4,');
  expect(two).toBe("2026-11-17,v/a@m,native,'=1+1,1,10,2,3,4,0.5");
  expect(end).toBe("");
});

const look = (status: string, ...calls: string[]): Look => ({
  rows: [{ session_id: "s", title: "Fix it", status, updated_ms: 7 }],
  pending: calls.map((call_id) => ({ session_id: "s", call_id, title: "make test", tool_key: "shell", event_id: 1, ts: 0 })),
});

test("a new question, an end and a failure are each said once", () => {
  const said = (before: Look, after: Look): string[] => noticesOf(before, after).map(({ kind, title, body }) => `${kind}: ${title}: ${body}`);
  expect(said(look("running"), look("awaiting_approval", "c1"))).toEqual(["approval: Fix it waits for you: make test"]);
  expect(said(look("awaiting_approval", "c1"), look("awaiting_approval", "c1"))).toEqual([]);
  expect(said(look("awaiting_approval", "c1"), look("idle"))).toEqual(["finished: Fix it: The run has ended."]);
  expect(said(look("running"), look("error"))).toEqual(["failed: Fix it: The run failed. Open it to see why."]);
  expect(said(look("idle"), look("idle"))).toEqual([]);
});

test("a session that is seen for the first time is no news", () => {
  expect(noticesOf({ rows: [], pending: [] }, look("idle"))).toEqual([]);
});

test("a command line becomes words, without a shell", () => {
  expect(wordsOf(`npx -y "my server" 'it''s' a\\ b $HOME ""`)).toEqual(["npx", "-y", "my server", "its", "a b", "$HOME", ""]);
  expect(wordsOf(`"say \\"hi\\" \\n"`)).toEqual([`say "hi" \\n`]);
  expect(wordsOf("   ")).toEqual([]);
  expect(wordsOf(`a "b`)).toBeNull();
});

test("variables are lines of NAME=VALUE, and a wrong line is named", () => {
  expect(pairsOf("A=1\n\n B = x=y ")).toEqual({ pairs: { A: "1", B: "x=y" }, wrong: null });
  expect(pairsOf("A=1\nnothing")).toEqual({ pairs: { A: "1" }, wrong: "nothing" });
});

test("a time that is left is rounded to its largest unit", () => {
  const hour = 3_600_000;
  expect([1, hour / 2, 8 * hour, 47 * hour, 720 * hour].map(left)).toEqual(["1 min", "30 min", "8 h", "47 h", "30 days"]);
});
