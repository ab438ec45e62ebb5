import type { Block } from "../src/lib/markdown/blocks";
import { cellMarks } from "../src/lib/markdown/parser";
import { elementsOf } from "../src/lib/markdown/safe";
import { headerHtml, rowsHtml } from "../src/lib/markdown/table";

/** The markup of a block as the page draws it, a table with all its rows; code and plain text by their kind. */
export function markupOf(block: Block): string {
  if (block.kind === "html") return block.html;
  if (block.kind !== "table") return `[${block.kind}]`;
  const { table } = block;
  const rows = rowsHtml(table, 0, table.rows.length, cellMarks);
  return `<table><thead>${headerHtml(table, cellMarks)}</thead><tbody>${rows}</tbody></table>`;
}

/** The elements of a block, judged as the page judges them. */
export function elementOf(block: Block): HTMLElement {
  const element = document.createElement("div");
  element.append(elementsOf(markupOf(block)));
  return element;
}
