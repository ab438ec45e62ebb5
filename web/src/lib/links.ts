// Web addresses inside plain text. Only http and https become links, and what a link shows is the address itself.

export interface TextPart {
  text: string;
  /** Where it leads; absent for words. */
  href?: string;
}

const ADDRESS = /\bhttps?:\/\/[^\s<>"'`|\\^{}\u0000-\u001f\u007f-\u009f]{1,2000}/gi;
const CLOSING: Record<string, string> = { ")": "(", "]": "[" };

/** The text in order, cut where an address begins and ends. */
export function linkParts(text: string): TextPart[] {
  const parts: TextPart[] = [];
  let from = 0;
  for (const match of text.matchAll(ADDRESS)) {
    const address = withoutPunctuation(match[0]);
    if (!URL.canParse(address)) continue;
    if (match.index > from) parts.push({ text: text.slice(from, match.index) });
    parts.push({ text: address, href: address });
    from = match.index + address.length;
  }
  if (from < text.length || !parts.length) parts.push({ text: text.slice(from) });
  return parts;
}

/** A full stop or a bracket at the end belongs to the sentence, unless the bracket was opened inside the address. */
function withoutPunctuation(address: string): string {
  const extra: Record<string, number> = {};
  for (const [closing, opening] of Object.entries(CLOSING))
    extra[closing] = address.split(closing).length - address.split(opening).length;
  let end = address.length;
  for (; end > 0; end--) {
    const last = address[end - 1] ?? "";
    const tooMany = extra[last];
    if (tooMany === undefined ? !".,;:!?*_…".includes(last) : tooMany <= 0) break;
    if (tooMany !== undefined) extra[last] = tooMany - 1;
  }
  return address.slice(0, end);
}
