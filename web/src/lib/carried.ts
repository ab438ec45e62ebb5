// Text as the server accepts it: NUL and lone surrogates, which a paste or an input method can bring along, become
// U+FFFD. The server refuses a message that has them as a whole.
const NOT_CARRIED = /[\0\p{Surrogate}]/gu;

export function carriedText(text: string): string {
  return text.replace(NOT_CARRIED, "\uFFFD");
}

/** JSON of which every text can be carried. */
export function carriedJson(value: unknown): string {
  return JSON.stringify(value, (_, each: unknown) => (typeof each === "string" ? carriedText(each) : each));
}

/** A percent-encoded part of an address; as it is when it cannot be decoded. */
export function decodedPart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
