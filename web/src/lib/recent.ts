// What was used lately: folders from the sessions, models from this browser. Pure but for the shelf that is given.
export const MAX_RECENT = 5;

/** The folders of these sessions, newest first, each once. */
export function recentFolders(rows: readonly { cwd: string | null }[], limit = MAX_RECENT): string[] {
  const found = new Set(rows.flatMap((row) => (row.cwd && !/\/demo-[a-z0-9_]{8}$/.test(row.cwd) ? [row.cwd] : [])));
  return [...found].slice(0, limit);
}

type Shelf = Pick<Storage, "getItem" | "setItem">;

export function recentModels(shelf: Shelf): string[] {
  try {
    const found: unknown = JSON.parse(shelf.getItem("makai.models.recent") ?? "[]");
    return Array.isArray(found) ? found.filter((one): one is string => typeof one === "string").slice(0, MAX_RECENT) : [];
  } catch {
    return [];
  }
}

export function noteModel(shelf: Shelf, modelRef: string): void {
  try {
    shelf.setItem("makai.models.recent", JSON.stringify([modelRef, ...recentModels(shelf).filter((one) => one !== modelRef)].slice(0, MAX_RECENT)));
  } catch {
    // A full or forbidden storage forgets what was used, nothing else.
  }
}

/** The last part of a path, for a narrow place. */
export const folderName = (path: string): string => path.replace(/\/+$/, "").split("/").pop() || "/";
