// Lines of code as pieces to draw, each with the names of its classes: colours of the language, words that changed, and
// characters that would deceive a reader spelled out. No HTML leaves this file: what the highlighter returns is read back
// into pieces, and used only when its text is the text of the line.
import type { Range } from "./diff";
import { segments } from "./escape";
import { highlight } from "./highlight";

export interface Piece {
  text: string;
  /** Space-separated classes; empty for plain text. */
  style: string;
}

/** Longer texts stay plain: colours may not keep the page from answering. */
export const MAX_COLOURED = 150_000;

const ENTITIES: Record<string, string> = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#x27;": "'" };
const TAG = /<span class="([\w\- ]*)">|<\/span>|\n|[^<\n]+/gu;

/** The lines of a text in the colours of its language; null when it stays plain. */
export async function colouredLines(text: string, path: string): Promise<Piece[][] | null> {
  const html = await highlight(text, languageOf(path), MAX_COLOURED);
  return html === null ? null : piecesOf(html);
}

/** The language of a file by its name, as `highlight` knows it. */
export function languageOf(path: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1).toLowerCase();
  return name.includes(".") ? name.slice(name.lastIndexOf(".") + 1) : name;
}

/** The HTML of the highlighter as lines of pieces. */
export function piecesOf(html: string): Piece[][] {
  const lines: Piece[][] = [[]];
  const open: string[] = [];
  for (const [found, style] of html.matchAll(TAG)) {
    if (found === "\n") lines.push([]);
    else if (found === "</span>") open.pop();
    else if (style !== undefined) open.push(style);
    else lines.at(-1)?.push({ text: found.replace(/&(?:amp|lt|gt|quot|#x27);/gu, (name) => ENTITIES[name] ?? name), style: open.join(" ") });
  }
  return lines;
}

/** One line to draw: coloured if the colours are of exactly this text, with marks on the parts that changed. */
export function linePieces(text: string, coloured: readonly Piece[] | undefined, changed: readonly Range[]): Piece[] {
  const fits = coloured !== undefined && coloured.map((piece) => piece.text).join("") === text;
  const found: Piece[] = [];
  let at = 0;
  for (const piece of fits ? coloured : [{ text, style: "" }]) {
    for (const part of cut(piece.text, at, changed)) {
      const style = [piece.style, part.isChanged ? "word" : ""].filter(Boolean).join(" ");
      for (const segment of segments(part.text))
        found.push({ text: segment.text, style: segment.escaped ? "hidden-character" : style });
    }
    at += piece.text.length;
  }
  return found;
}

function cut(text: string, start: number, changed: readonly Range[]): { text: string; isChanged: boolean }[] {
  const parts: { text: string; isChanged: boolean }[] = [];
  let at = 0;
  const push = (to: number, isChanged: boolean): void => {
    if (to > at) parts.push({ text: text.slice(at, to), isChanged });
    at = Math.max(at, to);
  };
  for (const [from, to] of changed) {
    push(Math.min(from - start, text.length), false);
    push(Math.min(to - start, text.length), true);
  }
  push(text.length, false);
  return parts;
}
