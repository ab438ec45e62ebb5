// Sessions as the server lists them, newest first: the newest page is asked for again and again, older ones once.
import { api, type SessionRow } from "../lib/api";
import type { ArchivedFilter } from "../lib/api/search";

const NEWEST = 100;
/** The most the server gives at once: a list of 10,000 is complete after twenty requests. */
const OLDER = 500;

export class SessionPages {
  rows: readonly SessionRow[] = $state.raw([]);
  /** Where older sessions begin that are not here; null when all are. */
  next: number | null = $state(null);
  loaded = $state(false);
  loadingMore = $state(false);

  constructor(private readonly archived: ArchivedFilter) {}

  /** Reloads the newest page, and keeps the older ones that were loaded. */
  async refresh(): Promise<void> {
    const { sessions, next_before: next } = await api.sessions(this.archived, null, NEWEST);
    const known = new Set(sessions.map((row) => row.session_id));
    const older = next === null ? [] : this.rows.filter((row) => !known.has(row.session_id) && row.updated_ms <= next);
    if (!older.length) this.next = next;
    this.rows = [...sessions, ...older];
    this.loaded = true;
  }

  async more(): Promise<void> {
    const before = this.next;
    if (before === null || this.loadingMore) return;
    this.loadingMore = true;
    try {
      const page = await api.sessions(this.archived, before, OLDER);
      const known = new Set(this.rows.map((row) => row.session_id));
      this.rows = [...this.rows, ...page.sessions.filter((row) => !known.has(row.session_id))];
      if (this.next === before) this.next = page.next_before;
    } finally {
      this.loadingMore = false;
    }
  }

  /** Takes out what was just deleted or put away, before the next poll says so. */
  drop(ids: ReadonlySet<string>): void {
    this.rows = this.rows.filter((row) => !ids.has(row.session_id));
  }
}
