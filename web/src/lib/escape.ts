// Makes text that could deceive a reader visible: control, bidi, zero-width and look-alike space characters are shown
// as escapes such as \u202e. In: any text. Out: segments for the page to draw; nothing here knows HTML.

export interface Segment {
  text: string;
  /** Whether this stands for a character that would not be seen, or would change how its neighbours are seen. */
  escaped: boolean;
}

// Controls except newline and tab; soft hyphen; odd spaces; zero-width and bidi; fillers; tags; lone surrogates.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc]|[\u{16fe4}\u{1d159}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]|\p{Surrogate}/gu;

function spelled(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, "0")}`;
  return `\\u{${code.toString(16)}}`;
}

/** The text in pieces, with what is hidden spelled out. Newlines and tabs stay: a `pre` shows them as they are. */
export function segments(text: string): Segment[] {
  const found: Segment[] = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > from) found.push({ text: text.slice(from, match.index), escaped: false });
    const last = found.at(-1);
    if (last?.escaped) last.text += spelled(match[0]);
    else found.push({ text: spelled(match[0]), escaped: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) found.push({ text: text.slice(from), escaped: false });
  return found;
}

/** The same as one string. */
export function visible(text: string): string {
  return text.replace(HIDDEN, spelled);
}

export function hasHidden(text: string): boolean {
  return text.search(HIDDEN) >= 0;
}
