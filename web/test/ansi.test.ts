import { describe, expect, test } from "vitest";
import { parseAnsi, stripAnsi } from "../src/lib/ansi";
import { cpuMs } from "./cpu";

describe("terminal output", () => {
  test("keeps colours as class names", () => {
    expect(parseAnsi("\x1b[1;32mok\x1b[0m done\n\x1b[91mbad")).toEqual([
      [{ text: "ok", style: "fg-2 bold" }, { text: " done", style: "" }],
      [{ text: "bad", style: "fg-9" }],
    ]);
  });

  test("maps 256 and 24-bit colours to the nearest of sixteen", () => {
    expect(parseAnsi("\x1b[38;5;196mr\x1b[48;2;0;0;0mb\x1b[38;2;0;180;0mg")[0]).toEqual([
      { text: "r", style: "fg-9" },
      { text: "b", style: "fg-9 bg-0" },
      { text: "g", style: "fg-2 bg-0" },
    ]);
  });

  test("drops every other sequence, also links, titles and unfinished ones", () => {
    const text = "\x1b]8;;http://evil.example\x07link\x1b]8;;\x07 \x1b[2J\x1b[3;4Hx\x1b]0;title\x1b\\y\x1b(B\x1b[?25lz\x1b[";
    expect(stripAnsi(text)).toBe("link xyz");
    expect(parseAnsi(text)).toEqual([[{ text: "link xyz", style: "" }]]);
  });

  test("neither hides text in a colour of its own nor makes a line of many movements long", () => {
    expect(parseAnsi("\x1b[30;40mrm -rf\x1b[0m")).toEqual([[{ text: "rm -rf", style: "fg-0" }]]);
    expect(parseAnsi("\x1b[500Cb".repeat(100_000))[0]?.[0]?.text.length).toBeLessThan(110_000);
    expect(parseAnsi(`${"a".repeat(2_000)}\x1b[3Cb`)).toEqual([[{ text: `${"a".repeat(2_000)}b`, style: "" }]]);
  });

  test("shows what a progress bar left on the screen", () => {
    const lines = (text: string): string[] => parseAnsi(text).map((line) => line.map((run) => run.text).join(""));
    expect(lines("10%\r50%\r100%\r\nnext\b\b\bew")).toEqual(["100%", "newt"]);
    expect(lines("Loading 10%\r\x1b[K\x1b[32mdone\x1b[0m\r\n")).toEqual(["done", ""]);
    expect(lines("one 1%\ntwo 1%\n\x1b[2Aone 50%\n\x1b[2Ktwo ok\nend")).toEqual(["one 50%", "two ok", "end"]);
    expect(lines("a\nb\nc\x1b[1A\x1b[1G\x1b[0Jx\x1b[3Cy\x1b[2Dz")).toEqual(["a", "x  zy"]);
    expect(lines("\x1b[99999999Aup\x1b[999999999Cfar")[0]?.length).toBe(505);
  });

  test("keeps the colours around what is overwritten", () => {
    expect(parseAnsi("\x1b[31mred red\x1b[0m\x1b[5Dxx")[0]).toEqual([
      { text: "re", style: "fg-1" },
      { text: "xx", style: "" },
      { text: "red", style: "fg-1" },
    ]);
  });

  test("reads 100,000 lines in bounded time", () => {
    const text = Array.from({ length: 100_000 }, (_, at) => `\x1b[32mline\x1b[0m ${at}`).join("\n");
    const start = cpuMs();
    expect(parseAnsi(text).length).toBe(100_000);
    expect(cpuMs() - start).toBeLessThan(5000);
  }, 30_000);

  test("swaps colours for inverse", () => {
    expect(parseAnsi("\x1b[7mhot\x1b[27m")[0]).toEqual([{ text: "hot", style: "fg-inverse bg-inverse" }]);
  });
});
