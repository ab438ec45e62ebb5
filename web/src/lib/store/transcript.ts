// The list of items, in chunks: a change copies one chunk, not 5,000 items, and the page draws only the chunks that
// are near the screen. Every change makes a new value; values are never modified.
import type { Item, UserItem } from "./items";

export const CHUNK = 40;
/** A chunk also ends when it holds this much: a few long answers are more than many short ones. */
export const CHUNK_CHARACTERS = 20_000;
/** Beyond this the oldest chunks are let go; the server has them, and scrolling up brings them back. */
export const MAX_ITEMS = 12_000;
export const MAX_CHARACTERS = 32_000_000;

export interface Chunk {
  id: string;
  items: readonly Item[];
}

export type Chunks = readonly Chunk[];

export function chunked(items: readonly Item[]): Chunk[] {
  const chunks: { id: string; items: Item[] }[] = [];
  let held = Infinity;
  for (const item of items) {
    const last = chunks.at(-1);
    if (last && last.items.length < CHUNK && held < CHUNK_CHARACTERS) last.items.push(item);
    else {
      chunks.push({ id: `c${item.key}`, items: [item] });
      held = 0;
    }
    held += weight(item);
  }
  return chunks;
}

export function append(chunks: Chunks, item: Item): Chunks {
  const last = chunks.at(-1);
  if (!last || isFull(last)) return [...chunks, { id: `c${item.key}`, items: [item] }];
  return [...chunks.slice(0, -1), { ...last, items: [...last.items, item] }];
}

function isFull(chunk: Chunk): boolean {
  return chunk.items.length >= CHUNK || held(chunk) >= CHUNK_CHARACTERS;
}

function held(chunk: Chunk): number {
  return chunk.items.reduce((sum, item) => sum + weight(item), 0);
}

/** The newest item that fits, looked for from the end; null when there is none. */
export function findLast<Found extends Item>(
  chunks: Chunks,
  fits: (item: Item) => item is Found,
  within = Infinity,
): Found | null {
  let left = within;
  for (let at = chunks.length - 1; at >= 0; at--) {
    const items = chunks[at]?.items ?? [];
    for (let inner = items.length - 1; inner >= 0; inner--) {
      if (left-- <= 0) return null;
      const item = items[inner] as Item;
      if (fits(item)) return item;
    }
  }
  return null;
}

/** The message that the item answers, and the first one after it; null where there is none in the list. */
export function messagesAround(chunks: Chunks, key: string): { before: UserItem | null; after: UserItem | null } {
  let before: UserItem | null = null;
  let isAfter = false;
  for (const chunk of chunks) {
    for (const item of chunk.items) {
      if (item.key === key) isAfter = true;
      else if (item.kind === "user" && isAfter) return { before, after: item };
      else if (item.kind === "user") before = item;
    }
  }
  return { before, after: null };
}

/** The same list with this item in place of the one of its key. */
export function replace(chunks: Chunks, item: Item): Chunks {
  for (let at = chunks.length - 1; at >= 0; at--) {
    const chunk = chunks[at] as Chunk;
    const inner = chunk.items.findLastIndex((one) => one.key === item.key);
    if (inner >= 0) return chunks.with(at, { ...chunk, items: chunk.items.with(inner, item) });
  }
  return chunks;
}

export function without(chunks: Chunks, key: string): Chunks {
  return chunks
    .map((chunk) =>
      chunk.items.some((item) => item.key === key)
        ? { ...chunk, items: chunk.items.filter((item) => item.key !== key) }
        : chunk,
    )
    .filter((chunk) => chunk.items.length);
}

/** The list with every item changed that the function changes; chunks without a change stay the same objects. */
export function mapLast(chunks: Chunks, count: number, change: (item: Item) => Item): Chunks {
  const from = Math.max(0, chunks.length - count);
  return chunks.map((chunk, at) => {
    if (at < from) return chunk;
    const items = chunk.items.map(change);
    return items.some((item, inner) => item !== chunk.items[inner]) ? { ...chunk, items } : chunk;
  });
}

export function countItems(chunks: Chunks): number {
  return chunks.reduce((sum, chunk) => sum + chunk.items.length, 0);
}

/** How much an item holds, roughly. */
export function weight(item: Item): number {
  switch (item.kind) {
    case "user":
      return item.text.length + item.images.reduce((sum, image) => sum + image.data.length, 0);
    case "text":
    case "reasoning":
      return item.text.length;
    case "tool":
      return (
        (item.output?.length ?? 0) +
        item.progress.length +
        item.images.reduce((sum, image) => sum + image.data.length, 0) +
        item.diffs.reduce((sum, diff) => sum + (diff.old_text?.length ?? 0) + diff.new_text.length, 0)
      );
    default:
      return 100;
  }
}

/** Without the oldest chunks, when there is too much to hold. Returns how the list now begins, or null if unchanged. */
export function trimmed(chunks: Chunks): Chunks | null {
  let items = 0;
  let characters = 0;
  for (let at = chunks.length - 1; at >= 0; at--) {
    const chunk = chunks[at] as Chunk;
    items += chunk.items.length;
    characters += held(chunk);
    if ((items > MAX_ITEMS || characters > MAX_CHARACTERS) && at < chunks.length - 1) return chunks.slice(at + 1);
  }
  return null;
}
