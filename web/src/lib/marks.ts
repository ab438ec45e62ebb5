// A text with marked places, as pieces in order. Marks that overlap, are reversed or lie outside cannot lose any text.

export interface Piece {
  text: string;
  marked: boolean;
}

export function pieces(text: string, marks: readonly (readonly [number, number])[]): Piece[] {
  const found: Piece[] = [];
  let at = 0;
  for (const [start, end] of [...marks].sort((one, other) => one[0] - other[0])) {
    const from = Math.max(at, start);
    if (!(end > from) || from >= text.length) continue;
    if (from > at) found.push({ text: text.slice(at, from), marked: false });
    at = Math.min(end, text.length);
    found.push({ text: text.slice(from, at), marked: true });
  }
  if (at < text.length) found.push({ text: text.slice(at), marked: false });
  return found;
}
