// Messages the server has not confirmed, and drafts. Both are kept in the browser, so that a reload loses nothing; a
// message keeps its client_msg_id and may be sent again at any time: the server takes it once.
import type { AttachedText, Delivery, PastedImage } from "./protocol";

export interface Outgoing {
  clientMsgId: string;
  text: string;
  images: PastedImage[];
  files?: AttachedText[];
  delivery: Delivery;
  /** Why the server refused it; null while it is on its way. */
  refused: string | null;
}

type Shelf = Pick<Storage, "getItem" | "setItem" | "removeItem">;

/** Longer ones (pictures) live as long as the tab; the browser would refuse to store them. */
const MAX_STORED = 1_000_000;

export class Outbox {
  constructor(
    private readonly sessionId: string,
    private readonly shelf: Shelf,
  ) {}

  load(): Outgoing[] {
    return (read<Outgoing[]>(this.shelf, `makai.outbox.${this.sessionId}`) ?? []).filter(
      (one) => typeof one.clientMsgId === "string" && typeof one.text === "string" && Array.isArray(one.images),
    );
  }

  save(messages: readonly Outgoing[]): void {
    write(this.shelf, `makai.outbox.${this.sessionId}`, messages.length ? messages : null);
  }
}

export function loadDraft(shelf: Shelf, sessionId: string): string {
  return read<string>(shelf, `makai.draft.${sessionId}`) ?? "";
}

export function saveDraft(shelf: Shelf, sessionId: string, text: string): void {
  write(shelf, `makai.draft.${sessionId}`, text || null);
}

/** What is left when the server has taken some: those it has are gone. */
export function unconfirmed(messages: readonly Outgoing[], taken: ReadonlySet<string>): readonly Outgoing[] {
  const left = messages.filter((message) => !taken.has(message.clientMsgId));
  return left.length === messages.length ? messages : left;
}

function read<Value>(shelf: Shelf, name: string): Value | null {
  try {
    return JSON.parse(shelf.getItem(name) ?? "null") as Value | null;
  } catch {
    return null;
  }
}

function write(shelf: Shelf, name: string, value: unknown): void {
  try {
    const text = value === null ? "" : JSON.stringify(value);
    if (value === null || text.length > MAX_STORED) shelf.removeItem(name);
    else shelf.setItem(name, text);
  } catch {
    // A full or forbidden storage costs the draft after a reload, nothing else.
  }
}
