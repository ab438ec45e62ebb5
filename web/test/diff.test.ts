import { describe, expect, test } from "vitest";
import { cpuMs } from "./cpu";
import { changedWords, diffLines, diffRows, type DiffLine } from "../src/lib/diff";

const NONE = new Set<number>();
const marked = (line: DiffLine | null): string => (line ? { same: " ", added: "+", removed: "-" }[line.kind] + line.text : "");

/** The rows of a diff as text. */
const shown = (before: string | null, after: string, split = false, opened: ReadonlySet<number> = NONE): string[] =>
  diffRows(diffLines(before, after).lines, split, opened).map((row) => {
    if (row.kind === "gap") return `@@ ${row.at} ${row.count}`;
    return row.kind === "line" ? marked(row.line) : `${marked(row.left)} | ${marked(row.right)}`;
  });

describe("a diff", () => {
  test("shows changed lines with three lines around them", () => {
    expect(shown("1\n2\na\nb\nc\nd\ne\nf\ng\nh\n", "1\n2\na\nb\nc\nd\nE\nf\ng\nh\n")).toEqual(
      ["@@ 0 3", " b", " c", " d", "-e", "+E", " f", " g", " h"],
    );
  });

  test("folds what did not change for long, until it is opened", () => {
    const lines = Array.from({ length: 14 }, (_, at) => `${at}`);
    const changed = lines.map((line, at) => (at === 1 || at === 12 ? `${line}!` : line));
    const [before, after] = [lines.join("\n"), changed.join("\n")];
    const end = [" 9", " 10", " 11", "-12", "+12!", " 13"];
    expect(diffLines(before, after)).toMatchObject({ added: 2, removed: 2 });
    expect(shown(before, after)).toEqual([" 0", "-1", "+1!", " 2", " 3", " 4", "@@ 6 4", ...end]);
    expect(shown(before, after, false, new Set([6]))).toEqual(
      [" 0", "-1", "+1!", " 2", " 3", " 4", " 5", " 6", " 7", " 8", ...end],
    );
  });

  test("puts a line beside the one that replaces it", () => {
    expect(shown("a\nb\nc\nd\n", "a\nB\nC\nx\nd\n", true)).toEqual(
      [" a |  a", "-b | +B", "-c | +C", " | +x", " d |  d"],
    );
  });

  test("names the words that changed, unless the lines have little in common", () => {
    expect(changedWords("let total = price * 2;", "let total = cost * 3;")).toEqual([[[12, 17], [20, 21]], [[12, 16], [19, 20]]]);
    expect(changedWords("return a", "return a + b")).toEqual([[], [[8, 12]]]);
    expect(changedWords("import os", "while True:")).toBeNull();
    expect(changedWords("x".repeat(700), "x".repeat(701))).toBeNull();
  });

  test("keeps what stayed of a long text that was changed everywhere", () => {
    const lines = Array.from({ length: 10_000 }, (_, at) => `line ${at}`);
    const changed = lines.map((line, at) => (at % 10 === 5 ? `${line} changed` : line));
    const start = cpuMs();
    expect(diffLines(lines.join("\n"), changed.join("\n"))).toMatchObject({ added: 1000, removed: 1000 });
    expect(cpuMs() - start).toBeLessThan(1000);
  }, 30_000);

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
      const lines = diffLines(before.join("\n"), after.join("\n")).lines;
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
