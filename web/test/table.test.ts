import { describe, expect, test } from "vitest";
import { GrowingMarkdown, renderMarkdown } from "../src/lib/markdown/blocks";
import { columnLengths, csvOf, tableOf } from "../src/lib/markdown/table";
import { cpuMs } from "./cpu";
import { elementOf, markupOf } from "./shown";

const tableIn = (text: string): Element | null =>
  renderMarkdown(text).map(elementOf).find((element) => element.querySelector("table")) ?? null;
const cells = (text: string): string[][] =>
  [...(tableIn(text)?.querySelectorAll("tr") ?? [])].map((row) => [...row.children].map((cell) => cell.textContent ?? ""));

describe("a table", () => {
  test.each([
    ["|a|b|\n|-|-|\n|1|2|", [["a", "b"], ["1", "2"]]],
    ["a | b\n:-: | --\n1 | 2\n", [["a", "b"], ["1", "2"]]],
    ["words before it\n|a|b|\n|-|-|\n|1|2|\n# heading", [["a", "b"], ["1", "2"]]],
    ["|a|b|\n|-|-|\n|`x \\| y`|**2**|\n", [["a", "b"], ["x | y", "2"]]],
    ["|a|b|\n|-|-|\n|1|\n|1|2|3|\n", [["a", "b"], ["1", ""], ["1", "2", "3"]]],
    ["- item\n  |a|b|\n  |-|-|\n  |1|2|\n", [["a", "b"], ["1", "2"]]],
    ["> |a|b|\n> |-|-|\n> |1|2|\n", [["a", "b"], ["1", "2"]]],
    ["|a|b|\n|-|\n|1|2|", []],
    ["a\n-\nb", []],
    ["```\n|a|b|\n|-|-|\n```", []],
  ])("is read as others read it: %j", (text, rows) => {
    expect(cells(text)).toEqual(rows);
  });

  test("of 50 kB full of links, code and bold marks is read in a fraction of a second", () => {
    const row = (at: number): string => `| **b ${at}** | \`code\` | [link](https://example.org/${at}) | *x* ~~y~~ $z$ |\n`;
    const rows = Array.from({ length: 750 }, (_, at) => row(at)).join("");
    const text = `| a | b | c | d |\n|---|---|---|---|\n${rows}`;
    markupOf(renderMarkdown(text)[0]!); // the first time is not typical
    const start = cpuMs();
    const html = renderMarkdown(text).map(markupOf).join("");
    expect(cpuMs() - start).toBeLessThan(400);
    expect(html.match(/<a href/g)).toHaveLength(750);
  });

  test("that grows is the same as the whole, and costs little for each row", () => {
    const text = `Intro:\n\n|a|b|\n|-|-|\n${"| **x** | [l](https://e.example) |\n".repeat(1_500)}\nend`;
    const growing = new GrowingMarkdown();
    let blocks = growing.update("");
    const start = cpuMs();
    for (let at = 100; at < text.length + 100; at += 100) blocks = growing.update(text.slice(0, at));
    expect(cpuMs() - start).toBeLessThan(3_000);
    expect(blocks).toEqual(renderMarkdown(text));
  });

  test("has columns as long as what is shown of their longest cell", () => {
    expect(columnLengths([["a", "漢字", ""], ["**bold** [link](https://example.org)", "x", "", "beyond"]])).toEqual([9, 4, 0, 6]);
  });

  test("becomes text for a spreadsheet in which nothing is run", () => {
    const table = tableOf('|a|b,c|\n|-|-|\n|=1+1|say "hi"|\n|-5|+x|\n|@f|-1.5 %|');
    expect(csvOf(table, (cell) => cell)).toBe('a,"b,c"\r\n\'=1+1,"say ""hi"""\r\n-5,\'+x\r\n\'@f,-1.5 %\r\n');
  });
});
