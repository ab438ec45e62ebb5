import katex from "katex";
import { describe, expect, test } from "vitest";
import { formulaOf, type Katex } from "../src/lib/markdown/math";
import { cpuMs } from "./cpu";

const library = katex as unknown as Katex;
const nested = (times: number): string => `${"\\frac{1}{".repeat(times)}x${"}".repeat(times)}`;

describe("a formula", () => {
  test.each([nested(20), "\\newcommand{\\vv}{\\mathbf{v}} \\vv \\to \\vv", "a \\ne b \\dots \\pmod{3}"])("is set: %s", (source) => {
    expect((formulaOf(library, source, true) as Element).className).toContain("katex");
  });

  test("of parts in parts without end is not laid out: it crashes browsers", () => {
    expect(() => formulaOf(library, nested(300), true)).toThrow("nested too deeply");
  });

  test.each([
    `\\def\\a{${"x".repeat(1_900)}}${"\\a ".repeat(500)}`,
    `\\newcommand\\a{${"\\frac12".repeat(280)}}${"\\a".repeat(450)}`,
    `\\def\\a{${"x".repeat(120)}}${"\\a ".repeat(50)}`,
    `\\let\\b=x\\gdef\\a{\\a\\a}\\a`,
  ])("that multiplies itself is refused at once: %s", (source) => {
    const before = cpuMs();
    expect(() => formulaOf(library, source, true)).toThrow();
    expect(cpuMs() - before).toBeLessThan(500);
  });

  test.each(["\\href{javascript:alert(1)}{x}", "\\url{https://evil.invalid}", "\\includegraphics{https://evil.invalid/x.png}", "\\htmlData{a=b}{x}", "\\htmlStyle{position:fixed}{x}"])(
    "leads nowhere and loads nothing: %s",
    (source) => {
      const page = document.createElement("div");
      try {
        page.append(formulaOf(library, source, true));
      } catch {
        // shown as it was written
      }
      expect(page.querySelector("a, img, [href], [src], [style*=fixed], [data-a]")).toBe(null);
    },
  );
});
