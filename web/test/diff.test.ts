import { describe, expect, test } from "vitest";
import { cpuMs } from "./cpu";
import { diffLines } from "../src/lib/diff";

/** The new text, rebuilt from a diff of texts short enough to be one hunk. */
const shown = (before: string | null, after: string): string[] =>
  diffLines(before, after).hunks.flatMap((hunk, at) => [
    ...(at ? ["@@"] : []),
    ...hunk.map((line) => ({ same: " ", added: "+", removed: "-" })[line.kind] + line.text),
  ]);

describe("a diff", () => {
  test("shows changed lines with three lines around them", () => {
    expect(shown("a\nb\nc\nd\ne\nf\ng\nh\n", "a\nb\nc\nd\nE\nf\ng\nh\n")).toEqual(
      [" b", " c", " d", "-e", "+E", " f", " g", " h"],
    );
  });

  test("splits into hunks where nothing changed for long", () => {
    const lines = Array.from({ length: 30 }, (_, at) => `line ${at}`);
    const changed = lines.map((line, at) => (at === 2 || at === 25 ? line.toUpperCase() : line));
    const { hunks, added, removed } = diffLines(lines.join("\n"), changed.join("\n"));
    expect([hunks.length, added, removed]).toEqual([2, 2, 2]);
    expect(hunks[1]?.[0]).toEqual({ kind: "same", text: "line 22", old: 23, new: 23 });
  });

  test("shows a new file as added, and an emptied one as removed", () => {
    expect(shown(null, "x\ny\n")).toEqual(["+x", "+y"]);
    expect(shown("x\ny\n", "")).toEqual(["-x", "-y"]);
    expect(shown("same\n", "same\n")).toEqual([]);
  });

  test("always rebuilds both texts, for many random pairs", () => {
    let seed = 7;
    const random = (below: number): number => (seed = (seed * 16807) % 2147483647) % below;
    for (let round = 0; round < 300; round++) {
      const before = Array.from({ length: random(12) }, () => "abc"[random(3)] ?? "");
      const after = Array.from({ length: random(12) }, () => "abc"[random(3)] ?? "");
      const lines = diffLines(before.join("\n"), after.join("\n")).hunks.flat();
      const old = lines.filter((line) => line.kind !== "added");
      const now = lines.filter((line) => line.kind !== "removed");
      for (const line of old) expect(before[(line.old ?? 0) - 1]).toBe(line.text);
      for (const line of now) expect(after[(line.new ?? 0) - 1]).toBe(line.text);
      if (before.join("\n") !== after.join("\n")) {
        const kept = before.length - lines.filter((line) => line.kind === "removed").length;
        expect(kept).toBe(after.length - lines.filter((line) => line.kind === "added").length);
      }
    }
  });

  test("gives up in bounded time on texts that have nothing in common", () => {
    const before = Array.from({ length: 20_000 }, (_, at) => `old ${at}`).join("\n");
    const after = Array.from({ length: 20_000 }, (_, at) => `new ${at}`).join("\n");
    const start = cpuMs();
    expect(diffLines(before, after)).toMatchObject({ added: 20_000, removed: 20_000 });
    expect(cpuMs() - start).toBeLessThan(2000);
  });
});
