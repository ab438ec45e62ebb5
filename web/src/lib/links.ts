// Web addresses in plain text. Only printable ASCII belongs to one, so what a link shows is where it leads.

export interface TextPiece {
  text: string;
  /** Where a click leads; null for text that is no address. */
  href: string | null;
}

const ADDRESS = /\bhttps?:\/\/[\x21-\x7e]{1,2000}/gi;
/** Marks at the end belong to the sentence around the address. */
const AFTER = /[.,;:!?'"`*_~>|\\]+$/;
const HOST_ONLY = /^https?:\/\/[^/?#]*$/i;
/** A name that continues with letters of other scripts, or with hidden characters, is not the name it seems to be. */
const CONTINUES = /^(?!\p{Script=Han})[\p{L}\p{Cf}]/u;

export function textPieces(text: string): TextPiece[] {
  const pieces: TextPiece[] = [];
  let read = 0;
  for (const found of text.matchAll(ADDRESS)) {
    const href = addressOf(found[0]);
    const next = text.slice(found.index + found[0].length, found.index + found[0].length + 2);
    if (!URL.canParse(href) || (HOST_ONLY.test(found[0]) && CONTINUES.test(next))) continue;
    if (found.index > read) pieces.push({ text: text.slice(read, found.index), href: null });
    pieces.push({ text: href, href });
    read = found.index + href.length;
  }
  if (read < text.length) pieces.push({ text: text.slice(read), href: null });
  return pieces;
}

/** An address ends before a quote or an angle bracket, and before a closing bracket that it did not open. */
function addressOf(found: string): string {
  let href = (/^[^"<>`]*/.exec(found)?.[0] ?? "").replace(AFTER, "");
  for (const [open, close] of ["()", "[]", "{}"] as const) {
    while (href.endsWith(close ?? "") && count(href, close) > count(href, open)) href = href.slice(0, -1).replace(AFTER, "");
  }
  return href;
}

const count = (text: string, character: string | undefined): number => text.split(character ?? "").length - 1;
