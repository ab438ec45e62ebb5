// Tables. They are split into rows here and not by the parser, which reads every cell at once in time that grows faster
// than the table: a row is read when it is drawn, and while a table streams in only its new rows are.
import { escapeHtml } from "./safe";

export interface Table {
  header: string[];
  align: Align[];
  /** Rows as they were written, without the header. */
  rows: string[];
}
export type Align = "" | "left" | "center" | "right";
/** Reads the marks of one cell. */
export type ReadCell = (source: string) => string;

/** More columns than this are no table for people. */
export const MAX_COLUMNS = 64;
const MAX_ROW = 16_384;
const DELIMITER_ROW = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*\n?$/;
const BEGINS_ROW = /^ {0,3}\|/;
/** What ends a table without a blank line, unless it begins with a bar. */
const OTHER_BLOCK =
  /^(?: {0,3}(?:>|#{1,6}(?:\s|$)|`{3}|~{3}|(?:[*+-]|1[.)])[ \t]|(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$|<)| {4}|\t)/;
/** A cell without any of these is only text. */
const MARKED = /[*_~[\]<`\\&@$]|:\/\/|www\./i;

/** The lines of a text, each with its break. */
export function linesOf(text: string): string[] {
  const lines: string[] = [];
  for (let start = 0; start < text.length; ) {
    const end = text.indexOf("\n", start);
    const next = end < 0 ? text.length : end + 1;
    lines.push(text.slice(start, next));
    start = next;
  }
  return lines;
}

/** How many of `lines`, from `at` on, are one table; 0 if none begins there. */
export function tableLines(lines: readonly string[], at: number): number {
  const header = lines[at] ?? "";
  const delimiters = lines[at + 1] ?? "";
  if (!beginsTable(header, delimiters)) return 0;
  let end = at + 2;
  while (end < lines.length && isRow(lines[end] ?? "")) end += 1;
  return end - at;
}

function isRow(line: string): boolean {
  return line.trim() !== "" && line.length <= MAX_ROW && (BEGINS_ROW.test(line) || !OTHER_BLOCK.test(line));
}

function beginsTable(header: string, delimiters: string): boolean {
  if (!header.includes("|") || !/[:|]/.test(delimiters) || !isRow(header) || delimiters.length > MAX_ROW) return false;
  if (!DELIMITER_ROW.test(delimiters)) return false;
  const columns = cellsOf(delimiters).length;
  return columns <= MAX_COLUMNS && cellsOf(header).length === columns;
}

export function tableOf(source: string): Table {
  const [header = "", delimiters = "", ...rows] = source.replace(/\n+$/, "").split("\n");
  return { header: cellsOf(header), align: cellsOf(delimiters).map(alignOf), rows };
}

function alignOf(delimiter: string): Align {
  const [left, right] = [delimiter.startsWith(":"), delimiter.endsWith(":")];
  return left && right ? "center" : right ? "right" : left ? "left" : "";
}

/** The cells of a row as they were written. `\|` is a bar inside a cell, also in code. */
export function cellsOf(row: string): string[] {
  const inner = row.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

export function headerHtml(table: Table, read: ReadCell): string {
  // A header without words is no header.
  const cells = table.header.map((cell, at) =>
    cell ? `<th${alignAttribute(table, at)}>${cellHtml(cell, read)}</th>` : "<td></td>",
  );
  return `<tr>${cells.join("")}</tr>`;
}

/** Some rows as markup. Cells beyond the header are shown, too; missing ones are empty. */
export function rowsHtml(table: Table, from: number, to: number, read: ReadCell): string {
  let html = "";
  for (const row of table.rows.slice(from, to)) {
    const cells = cellsOf(row);
    html += "<tr>";
    for (let at = 0; at < Math.max(cells.length, table.header.length); at += 1) {
      html += `<td${alignAttribute(table, at)}>${cellHtml(cells[at] ?? "", read)}</td>`;
    }
    html += "</tr>";
  }
  return html;
}

const cellHtml = (cell: string, read: ReadCell): string => (MARKED.test(cell) ? read(cell) : escapeHtml(cell));

function alignAttribute(table: Table, at: number): string {
  const align = table.align[at];
  return align ? ` align="${align}"` : "";
}

/** The longest cell of each column in some rows, in characters as they are shown, roughly. Cells beyond the header count, too. */
export function columnLengths(rows: readonly string[][]): number[] {
  const longest: number[] = [];
  for (const cells of rows) {
    for (const [at, cell] of cells.entries()) longest[at] = Math.max(longest[at] ?? 0, shownLength(cell));
  }
  return longest;
}

/** An ideograph is as wide as two letters; marks and the targets of links are not shown. */
function shownLength(cell: string): number {
  const text = MARKED.test(cell) ? cell.replace(/\]\([^)]*\)|[*~`[\]\\]/g, "") : cell;
  return text.length + (text.match(/[\u2e80-\uffff]/g)?.length ?? 0);
}

/** The table for a spreadsheet. `plain` is the text of a cell without its marks. */
export function csvOf(table: Table, plain: (cell: string) => string): string {
  const lines = [table.header, ...table.rows.map(cellsOf)];
  return lines.map((cells) => cells.map((cell) => csvCell(plain(cell))).join(",")).join("\r\n") + "\r\n";
}

/** A cell that a spreadsheet would run as a formula is made text; a number with a sign is no formula. */
function csvCell(text: string): string {
  const isFormula = /^[=@\t\r]|^[+-](?![\d.,\s]*%?$)/.test(text);
  const safe = isFormula ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
