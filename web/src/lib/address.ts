// What the address of the page names: a session, and an event in it where a search hit is.
import { decodedPart } from "./carried";

export interface Address {
  sessionId: string | null;
  eventId: number | null;
}

export const addressOf = (sessionId: string, eventId: number | null = null): string =>
  `#/s/${encodeURIComponent(sessionId)}${eventId === null ? "" : `?at=${eventId}`}`;

/** Reads the part of an address after and with its `#`. */
export function readAddress(hash: string): Address {
  const [, id, at] = /^#\/s\/([^?]+)(?:\?at=(\d{1,15})$)?/.exec(hash) ?? [];
  return { sessionId: id === undefined ? null : decodedPart(id), eventId: at === undefined ? null : Number(at) };
}
