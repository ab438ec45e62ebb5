// Attachments of drafts, kept in the browser's database: pictures are too large for the storage that holds the words.
// Without a database they live as long as the field; nothing else depends on them.
import type { Draft } from "./attachments";

export type Attached = Omit<Draft, "text">;

const STORE = "attachments";
/** Attachments of more drafts than this are forgotten, the oldest first. */
export const MAX_KEPT = 20;

interface Kept extends Attached {
  key: string;
  savedAt: number;
}

let database: Promise<IDBDatabase> | null = null;

function opened(): Promise<IDBDatabase> {
  database ??= new Promise<IDBDatabase>((resolve, reject) => {
    const request = indexedDB.open("makai-drafts", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "key" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("The browser keeps no database."));
  });
  return database;
}

/** Carries out one transaction; null when the browser cannot. */
async function within<T>(mode: IDBTransactionMode, act: (store: IDBObjectStore) => IDBRequest<T>): Promise<T | null> {
  try {
    const store = (await opened()).transaction(STORE, mode).objectStore(STORE);
    return await new Promise((resolve, reject) => {
      const request = act(store);
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error ?? new Error("The browser did not answer."));
    });
  } catch {
    return null;
  }
}

/** What is attached to a draft from now on; nothing removes it. */
export async function keepAttachments(key: string, { images, files }: Attached): Promise<void> {
  if (!images.length && !files.length) return void (await within("readwrite", (store) => store.delete(key)));
  const kept: Kept = { key, images, files, savedAt: Date.now() };
  await within("readwrite", (store) => store.put(kept));
  const all = (await within<Kept[]>("readonly", (store) => store.getAll())) ?? [];
  for (const old of surplus(all)) await within("readwrite", (store) => store.delete(old));
}

export async function keptAttachments(key: string): Promise<Attached> {
  const found = await within<Kept | undefined>("readonly", (store) => store.get(key));
  return { images: found?.images ?? [], files: found?.files ?? [] };
}

/** The keys of the oldest drafts above the limit. */
export function surplus(all: readonly Pick<Kept, "key" | "savedAt">[]): string[] {
  return [...all].sort((one, other) => other.savedAt - one.savedAt).slice(MAX_KEPT).map((one) => one.key);
}
