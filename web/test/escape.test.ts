import { describe, expect, test } from "vitest";
import { hasHidden, segments, visible } from "../src/lib/escape";

describe("text that could deceive", () => {
  test.each([
    ["rm \u202egpj.exe", "rm \\u202egpj.exe"],
    ["a\u2066b\u2069", "a\\u2066b\\u2069"],
    ["\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"],
    ["one\rtwo\x08\x07", "one\\x0dtwo\\x08\\x07"],
    ["zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"],
    ["no\u00a0break\u3000space", "no\\xa0break\\u3000space"],
    ["tag\u{e0041}", "tag\\u{e0041}"],
    ["lone \ud800 surrogate", "lone \\ud800 surrogate"],
    ["\u2028\u2029\u0085", "\\u2028\\u2029\\x85"],
  ])("is spelled out: %j", (text, shown) => {
    expect(visible(text)).toBe(shown);
    expect(hasHidden(text)).toBe(true);
    expect(segments(text).map((segment) => segment.text).join("")).toBe(shown);
  });

  test("leaves everything that can be seen, newlines and tabs alone", () => {
    const text = "echo 'päivää 日本語 שלום 🎉' \\\n\t| tee out";
    expect(segments(text)).toEqual([{ text, escaped: false }]);
    expect(hasHidden(text)).toBe(false);
  });

  test("marks exactly what was spelled out", () => {
    expect(segments("a\u202e\u202db")).toEqual([
      { text: "a", escaped: false },
      { text: "\\u202e\\u202d", escaped: true },
      { text: "b", escaped: false },
    ]);
  });
});
