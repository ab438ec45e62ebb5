import { describe, expect, test } from "vitest";
import { parseAnsi, stripAnsi } from "../src/lib/ansi";

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

  test("shows what a progress bar left on the screen", () => {
    expect(parseAnsi("10%\r50%\r100%\r\nnext\b\b\bew")).toEqual([
      [{ text: "100%", style: "" }],
      [{ text: "new", style: "" }],
    ]);
  });

  test("swaps colours for inverse", () => {
    expect(parseAnsi("\x1b[7mhot\x1b[27m")[0]).toEqual([{ text: "hot", style: "fg-inverse bg-inverse" }]);
  });
});
