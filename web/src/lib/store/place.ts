// Where an event of the log is shown: an item holds all events from its first one up to the next item's first one.
import type { Item } from "./items";
import type { Chunks } from "./transcript";

export interface Place {
  chunk: string;
  item: Item;
}

/** A call that changed the plan is shown as the plan. */
export const isSaidElsewhere = (item: Item): boolean =>
  item.kind === "tool" && item.name === "plan" && item.status === "done";

/** The item that shows this event, or the first one when the event is older; null when there is none. */
export function placeOf(chunks: Chunks, eventId: number): Place | null {
  let found: Place | null = null;
  for (const chunk of chunks)
    for (const item of chunk.items) {
      if (item.eventId === 0 || isSaidElsewhere(item)) continue;
      if (found && item.eventId > eventId) return found;
      found = { chunk: chunk.id, item };
    }
  return found;
}
