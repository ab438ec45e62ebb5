import { describe, expect, test } from "vitest";
import { addressOf, readAddress } from "../src/lib/address";
import type { SessionRow } from "../src/lib/api";
import { pieces } from "../src/lib/marks";
import {
  agentsOf,
  dayStart,
  fits,
  grouped,
  idsBetween,
  lineAt,
  linesOf,
  offsetsOf,
  shiftOf,
  shortNames,
  type Line,
} from "../src/lib/session_groups";
import type { Item } from "../src/lib/store/items";
import { placeOf } from "../src/lib/store/place";

const NOW = new Date(2026, 10, 18, 9, 30).getTime();
const HOUR = 3_600_000;
const HEIGHTS = { heading: 30, runs: 30, row: 40 };

const row = (session_id: string, more: Partial<SessionRow> = {}): SessionRow => ({
  ...{ session_id, title: session_id, model_ref: "", mode: "ask", harness: "native", cwd: null, status: "idle" },
  ...{ created_ms: 0, updated_ms: NOW, events: 1, usage: null, pending_approvals: 0, damaged: null },
  ...{ archived: false, made_by: "" },
  ...more,
});

/** Lines in short: "# label", "12 runs", or the id, indented inside open runs. */
const drawn = (lines: readonly Line[]): string[] =>
  lines.map((line) => {
    if (line.kind === "heading") return `${line.folded ? "+" : "#"} ${line.group.label}`;
    return line.kind === "runs" ? `${line.rows.length} runs` : `${line.inset ? "  " : ""}${line.row.session_id}`;
  });

describe("groups", () => {
  test("by day begin at local midnight, the newest first, without empty ones", () => {
    const rows = [
      row("older", { updated_ms: dayStart(NOW, 6) - 1 }),
      row("week", { updated_ms: dayStart(NOW, 6) }),
      row("late-yesterday", { updated_ms: dayStart(NOW) - 1 }),
      row("at-midnight", { updated_ms: dayStart(NOW) }),
      row("just-now"),
    ];
    expect(drawn(linesOf(grouped(rows, "day", NOW), new Set(), null))).toEqual([
      ...["# Today", "just-now", "at-midnight", "# Yesterday", "late-yesterday"],
      ...["# Last 7 days", "week", "# Older", "older"],
    ]);
    expect(grouped([], "day", NOW)).toEqual([]);
  });

  test("by folder have the short name, or two parts where one is not enough, and fold", () => {
    const rows = [
      row("a", { cwd: "/home/ada/shop/api" }),
      row("b", { cwd: "/home/ada/site/api", updated_ms: NOW - HOUR }),
      row("c", { cwd: "/home/ada/notes", updated_ms: NOW - 2 * HOUR }),
      row("d", { updated_ms: NOW - 3 * HOUR }),
      row("e", { cwd: "/home/ada/shop/api", updated_ms: NOW - 4 * HOUR }),
    ];
    const groups = grouped(rows, "folder", NOW);
    expect(groups.map((group) => group.title)).toEqual(["/home/ada/shop/api", "/home/ada/site/api", "/home/ada/notes", ""]);
    expect(drawn(linesOf(groups, new Set(["folder:/home/ada/shop/api"]), null))).toEqual([
      ...["+ shop/api", "# site/api", "b", "# notes", "c", "# No folder", "d"],
    ]);
    expect([...shortNames(["/", "C:\\work\\api"]).values()]).toEqual(["/", "api"]);
  });

  test("show finished runs as one line that opens in place, and never hide one that needs a person", () => {
    const rows = [
      row("mine"),
      row("run1", { made_by: "run", updated_ms: NOW - 1 }),
      row("asks", { made_by: "run", updated_ms: NOW - 2, status: "awaiting_approval", pending_approvals: 1 }),
      row("works", { made_by: "run", updated_ms: NOW - 3, status: "running" }),
      row("run2", { made_by: "run", updated_ms: NOW - 4 }),
      row("run3", { made_by: "run", updated_ms: NOW - 5 }),
    ];
    const groups = grouped(rows, "day", NOW);
    expect(drawn(linesOf(groups, new Set(), null))).toEqual(["# Today", "mine", "3 runs", "asks", "works"]);
    // The open session is seen in any case, but does not jump out of runs that are open.
    expect(drawn(linesOf(groups, new Set(), "run2"))).toEqual(["# Today", "mine", "2 runs", "asks", "works", "run2"]);
    expect(drawn(linesOf(groups, new Set(["runs:day:today"]), "run2"))).toEqual([
      ...["# Today", "mine", "3 runs", "  run1", "  run2", "  run3", "asks", "works"],
    ]);
    const alone = grouped([row("mine"), row("run1", { made_by: "run" })], "day", NOW);
    expect(drawn(linesOf(alone, new Set(), null))).toEqual(["# Today", "mine", "run1"]);
  });
});

test("filters let through what they name", () => {
  const rows = [
    row("idle"),
    row("runs", { status: "running" }),
    row("asks", { status: "awaiting_approval", pending_approvals: 1 }),
    row("other", { harness: "acp:claude" }),
  ];
  const through = (filter: Parameters<typeof fits>[1]): string[] =>
    rows.filter((one) => fits(one, filter)).map((one) => one.session_id);
  expect(through("all")).toEqual(["idle", "runs", "asks", "other"]);
  expect(through("waiting")).toEqual(["asks"]);
  expect(through("running")).toEqual(["runs", "asks"]);
  expect(through("agent:acp:claude")).toEqual(["other"]);
  expect(agentsOf(rows)).toEqual(["acp:claude", "native"]);
});

describe("the part on the screen", () => {
  const many = Array.from({ length: 10_000 }, (_, at) => row(`s${at}`, { updated_ms: NOW - at }));
  const lines = linesOf(grouped(many, "day", NOW), new Set(), null);
  const offsets = offsetsOf(lines, HEIGHTS);

  test("is found at every height", () => {
    expect([-50, 0, 29, 30, 69, 70, 1e9].map((y) => lineAt(offsets, y))).toEqual([0, 0, 0, 1, 1, 2, 10_000]);
    expect(offsets.at(-1)).toBe(30 + 10_000 * 40);
  });

  test("stays where it is when sessions come, go, and one of those seen moves to the top", () => {
    const seen = lines.slice(101, 111).map((line, at) => ({ key: line.key, top: offsets[101 + at] ?? 0 }));
    const later = [row("new1", { updated_ms: NOW + 3 }), row("new2", { updated_ms: NOW + 2 }), row("s107", { updated_ms: NOW + 1 })];
    const changed = [...later, ...many.filter((one) => one.session_id !== "s107" && one.session_id !== "s3")];
    const after = linesOf(grouped(changed, "day", NOW), new Set(), null);
    // Two came and one moved above, one went: two rows more above most of what is seen.
    expect(shiftOf(seen, after, offsetsOf(after, HEIGHTS))).toBe(2 * 40);
    expect(shiftOf(seen, [], [0])).toBe(0);
  });

  test("a range is selected in both directions, over headings, and is one session without a beginning", () => {
    expect(idsBetween(lines, "s3", "s1")).toEqual(["s1", "s2", "s3"]);
    expect(idsBetween(lines, "day:today", "s1")).toEqual(["s0", "s1"]);
    expect(idsBetween(lines, "gone", "s1")).toEqual(["s1"]);
    expect(idsBetween(lines, "s1", "gone")).toEqual([]);
  });
});

test("marks cut a text into pieces and lose nothing of it, whatever they are", () => {
  expect(pieces("a word here", [[2, 6]])).toEqual([
    { text: "a ", marked: false },
    { text: "word", marked: true },
    { text: " here", marked: false },
  ]);
  const text = "héllo 👋 wörld";
  for (const marks of [[], [[9, 2]], [[0, 99]], [[3, 6], [1, 4]], [[-5, 2], [50, 60]], [[NaN, 3]]] as [number, number][][])
    expect(pieces(text, marks).map((piece) => piece.text).join("")).toBe(text);
});

test("an address names a session and a place in it, and nonsense names nothing", () => {
  for (const [id, at] of [["s1", null], ["a/b?c#d é", 12]] as [string, number | null][])
    expect(readAddress(addressOf(id, at))).toEqual({ sessionId: id, eventId: at });
  expect(readAddress("#/s/s1?at=x")).toEqual({ sessionId: "s1", eventId: null });
  expect(readAddress("#/")).toEqual({ sessionId: null, eventId: null });
  expect(readAddress("#/s/%zz")).toEqual({ sessionId: "%zz", eventId: null });
});

test("an event is shown by the item that it belongs to", () => {
  const item = (eventId: number, more: object = {}): Item =>
    ({ key: `e${eventId}`, eventId, ts: null, kind: "user", text: "", images: [], ...more }) as Item;
  const plan = item(9, { kind: "tool", name: "plan", status: "done" });
  const chunks = [
    { id: "c1", items: [item(3), item(5), item(0, { key: "u1" })] },
    { id: "c2", items: [plan, item(12)] },
  ];
  const found = (eventId: number): string | undefined => placeOf(chunks, eventId)?.item.key;
  expect([1, 3, 4, 5, 9, 11, 12, 99].map(found)).toEqual(["e3", "e3", "e3", "e5", "e5", "e5", "e12", "e12"]);
  expect(placeOf(chunks, 12)?.chunk).toBe("c2");
  expect(placeOf([], 1)).toBeNull();
});
