// Cuts a text where a block surely begins, into parts that the parser can take: it needs quadratic time for many shapes
// of text, so it never sees much at once. What cannot be cut is shown as it was written, and so are lines beyond the
// limits below. Tables are parts of their own, however long.
import { linesOf, tableLines } from "./table";

/** A line this long is no prose; parsing its inline marks could freeze the page. */
const MAX_LINE = 16_384;
/** Quotes and lists nested this deep, and runs of marks this long, are no prose either: parsing them is quadratic. */
const TOO_DEEP = /^(?:[ \t]*(?:>|[-*+]|\d{1,9}[.)])){24}|^[ \t]{96,}(?:>|[-*+]|\d{1,9}[.)])|([*_~[\](!<`\\])\1{199}/;
/** Too short to be any of that. */
const SHORT_TEXT = 24;
/** What the parser is given at a time. A list, quote or paragraph that is longer is shown as it was written. */
const MAX_PART = 16_384;
const MAX_PART_LINES = 500;
const MAY_CONTINUE_A_LIST = /^(?:\s|[-*+](?:\s|$)|\d{1,9}[.)](?:\s|$))/;
const LIST_QUOTE_OR_INDENT = /^(?:[ \t]*(?:[-*+]|\d{1,9}[.)])(?:\s|$)|[ \t]*>| {4}|\t)/;

export interface Part {
  kind: "prose" | "plain" | "table";
  text: string;
}

/** Cuts a text into parts that the parser can take. Lines that would take it too long stand alone, unless they are code. */
export function partsOf(text: string): Part[] {
  if (text.length <= SHORT_TEXT) return [{ kind: "prose", text }];
  const parts: Part[] = [];
  let lines: string[] = [];
  let length = 0;
  /** Where in `lines` a block surely begins; everything before it is complete. */
  let safe = 0;
  /** Whether what begins at `safe` may be a list, a quote or indented code: a table in there is for the parser. */
  let nested = false;
  let fence = "";
  let wasBlank = true;
  /** Beyond the limits without a place to cut: shown as written until one comes. */
  let overflown = false;

  const flush = (upTo: number, plain = overflown): void => {
    const cut = lines.splice(0, upTo).join("");
    if (cut) push(parts, plain ? "plain" : "prose", cut);
    length -= cut.length;
    safe = 0;
    overflown = false;
    if (!lines.length) nested = false;
  };

  const all = linesOf(text);
  for (let at = 0; at < all.length; at += 1) {
    const line = all[at] ?? "";
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    const opens = !fence && mark !== "";
    const tooHard = !fence && !opens && (line.length > MAX_LINE || TOO_DEEP.test(line));
    if (tooHard) {
      flush(lines.length);
      push(parts, "plain", line);
      wasBlank = true;
      continue;
    }
    if (!fence && wasBlank && !MAY_CONTINUE_A_LIST.test(line)) {
      if (overflown) flush(lines.length);
      safe = lines.length;
      nested = false;
    }
    const rows = !fence && !nested && line.includes("|") ? tableLines(all, at) : 0;
    if (rows) {
      flush(lines.length);
      push(parts, "table", all.slice(at, at + rows).join(""));
      at += rows - 1;
      wasBlank = true;
      continue;
    }
    lines.push(line);
    length += line.length;
    nested ||= LIST_QUOTE_OR_INDENT.test(line);
    if (fence ? mark.startsWith(fence) && line.trim() === mark : opens) {
      const closes = fence !== "";
      fence = closes ? "" : mark;
      // Code at the top is a part of its own, however long.
      if (closes && safe < lines.length && isCode(lines[safe])) {
        if (safe) flush(safe);
        flush(lines.length, false);
        wasBlank = true;
        continue;
      }
    }
    wasBlank = !fence && !line.trim();
    if (!fence && (length > MAX_PART || lines.length > MAX_PART_LINES)) {
      if (safe) flush(safe);
      if (length > MAX_PART || lines.length > MAX_PART_LINES) overflown = true;
    }
  }
  if (fence && isCode(lines[safe])) {
    if (safe) flush(safe);
    flush(lines.length, false);
  }
  flush(lines.length);
  return parts;
}

const isCode = (line: string | undefined): boolean => /^ {0,3}(?:`{3,}|~{3,})/.test(line ?? "");

function push(parts: Part[], kind: Part["kind"], text: string): void {
  const last = parts.at(-1);
  if (kind === "plain" && last?.kind === "plain") last.text += text;
  else parts.push({ kind, text });
}
