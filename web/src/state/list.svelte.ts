// What the list of sessions shows and what is done with many of them: filter, grouping, search, selection, archive.
import { api, type SessionRow } from "../lib/api";
import { ApiError } from "../lib/api/http";
import { search, type SearchHit } from "../lib/api/search";
import { fits, grouped, idsBetween, isWaiting, linesOf, type Filter, type Grouping, type Line } from "../lib/session_groups";
import { app } from "./app.svelte";
import { SessionPages } from "./pages.svelte";
import { toast } from "./toasts.svelte";

const DEBOUNCE_MS = 150;
/** While the server still builds its index, what is searched for may turn up later. */
const SEARCH_AGAIN_MS = 2000;
const ARCHIVE_POLL_MS = 4000;
/** How many requests of one action are on their way at once. */
const AT_ONCE = 4;

function remembered<Value extends string>(name: string, values: readonly Value[], otherwise: Value): Value {
  const kept = localStorage.getItem(name);
  return values.find((value) => value === kept) ?? otherwise;
}

function rememberedSet(name: string): ReadonlySet<string> {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(name) ?? "[]");
    return new Set(Array.isArray(kept) ? kept.filter((one) => typeof one === "string") : []);
  } catch {
    return new Set();
  }
}

/** What an action on a session needs to know of it. */
export type Subject = Pick<SessionRow, "session_id" | "title" | "archived">;

export const many = (count: number): string => (count === 1 ? "1 session" : `${count.toLocaleString("en")} sessions`);

class SessionListState {
  grouping: Grouping = $state(remembered("makai.grouping", ["day", "folder"], "day"));
  filter: Filter = $state("all");
  /** Any moment of the day that is today. */
  today = $state(Date.now());
  /** Headings that are folded and lines of runs that are open. */
  private toggled: ReadonlySet<string> = $state.raw(rememberedSet("makai.folded"));
  /** Sessions that wait for a decision and are older than what the list has loaded. */
  private waitingElsewhere: readonly SessionRow[] = $state.raw([]);
  private readonly archived = new SessionPages("only");

  selecting = $state(false);
  selected: ReadonlySet<string> = $state.raw(new Set());
  private anchor: string | null = null;
  /** The sessions that a dialog is about. */
  subjects: readonly Subject[] = $state.raw([]);

  /** What the server found for `app.query`; null while the first answer is awaited. */
  hits: readonly SearchHit[] | null = $state.raw(null);
  complete = $state(true);
  searchFailed = $state("");
  private searching: ReturnType<typeof setTimeout> | undefined;
  private polling: ReturnType<typeof setTimeout> | undefined;

  private readonly pages = $derived(this.filter === "archived" ? this.archived : app.sessions);
  // The open session is known better than the last poll knew it. Single values, so that not every word that streams in
  // makes the list new.
  private readonly open = $derived(app.session?.view.loaded ? app.session.id : null);
  private readonly openTitle = $derived(app.session?.view.title ?? "");
  private readonly openStatus = $derived(app.session?.view.run?.status ?? null);
  private readonly openApprovals = $derived(app.session?.view.approvals.length ?? 0);
  private readonly rows = $derived.by(() => {
    const known = this.pages.rows;
    const extra = this.filter === "waiting" ? this.waitingElsewhere : [];
    return [...known, ...extra].map((row) => this.current(row)).filter((row) => fits(row, this.filter));
  });
  readonly lines: readonly Line[] = $derived(
    linesOf(grouped(this.rows, this.grouping, this.today), this.toggled, app.session?.id ?? null),
  );
  readonly waiting = $derived(new Set(app.pending.map((one) => one.session_id)).size);

  private current(row: SessionRow): SessionRow {
    if (this.open !== row.session_id) return row;
    return {
      ...row,
      title: this.openTitle,
      status: this.openStatus ?? (row.status === "error" ? "error" : "idle"),
      pending_approvals: this.openApprovals,
    };
  }

  get loaded(): boolean {
    return this.pages.loaded;
  }

  /** How many sessions the filter lets through, of those that are loaded. */
  get count(): number {
    return this.rows.length;
  }

  get hasMore(): boolean {
    return this.pages.next !== null;
  }

  async more(): Promise<void> {
    try {
      await this.pages.more();
    } catch (error) {
      app.report(error);
    }
  }

  // ------------------------------------------------------------ what is shown

  setGrouping(grouping: Grouping): void {
    this.grouping = grouping;
    localStorage.setItem("makai.grouping", grouping);
  }

  setFilter(filter: Filter): void {
    this.stopSelecting();
    this.filter = filter;
    void this.pollArchive();
    void this.loadWaiting();
  }

  /** Folds or unfolds a group or its runs. */
  toggle(key: string): void {
    const next = new Set(this.toggled);
    if (!next.delete(key)) next.add(key);
    this.toggled = next;
    localStorage.setItem("makai.folded", JSON.stringify([...next].slice(-200)));
  }

  private async pollArchive(): Promise<void> {
    clearTimeout(this.polling);
    if (this.filter !== "archived") return;
    if (document.visibilityState === "visible") await this.lookForArchived();
    clearTimeout(this.polling);
    this.polling = setTimeout(() => void this.pollArchive(), ARCHIVE_POLL_MS);
  }

  /** Whether there are archived sessions, as far as it was asked for. */
  get hasArchived(): boolean {
    return this.archived.rows.length > 0;
  }

  /** Loads the newest archived sessions. An empty list asks, to say that all sessions are archived. */
  async lookForArchived(): Promise<void> {
    try {
      await this.archived.refresh();
    } catch (error) {
      // That the server is away is said elsewhere.
      if (!(error instanceof ApiError) || error.status !== 0) app.report(error);
    }
  }

  /** Brings the sessions that wait for a decision and lie beyond what the list has loaded. */
  async loadWaiting(): Promise<void> {
    if (this.filter !== "waiting") return;
    const known = new Set(app.rows.map((row) => row.session_id));
    const missing = [...new Set(app.pending.map((one) => one.session_id))].filter((id) => !known.has(id));
    const found = await Promise.all(missing.slice(0, 50).map((id) => api.session(id).catch(() => null)));
    this.waitingElsewhere = found.filter((row) => row !== null && isWaiting(row)) as SessionRow[];
  }

  // ------------------------------------------------------------ search

  search(query: string): void {
    app.query = query;
    clearTimeout(this.searching);
    if (!query.trim()) {
      this.hits = null;
      this.searchFailed = "";
      return;
    }
    this.stopSelecting();
    this.searching = setTimeout(() => void this.find(query), DEBOUNCE_MS);
  }

  private async find(query: string): Promise<void> {
    try {
      const found = await search.find(query.trim(), this.filter === "archived" ? "only" : "with");
      if (app.query !== query) return;
      this.hits = found.hits;
      this.complete = found.complete;
      this.searchFailed = "";
      if (!found.complete) this.searching = setTimeout(() => void this.find(query), SEARCH_AGAIN_MS);
    } catch (error) {
      if (app.query !== query) return;
      this.hits = [];
      this.searchFailed = (error as Error).message;
    }
  }

  // ------------------------------------------------------------ selection

  startSelecting(): void {
    this.selecting = true;
  }

  stopSelecting(): void {
    this.selecting = false;
    this.selected = new Set();
    this.anchor = null;
  }

  select(ids: readonly string[]): void {
    this.selecting = true;
    this.selected = new Set([...this.selected, ...ids]);
    this.anchor = ids.at(-1) ?? this.anchor;
  }

  toggleSelected(id: string): void {
    const next = new Set(this.selected);
    if (!next.delete(id)) next.add(id);
    this.selected = next;
    this.selecting = true;
    this.anchor = id;
  }

  /** Selects from what was last selected, or else from the open session, to this one. */
  selectTo(id: string): void {
    const from = this.anchor ?? app.session?.id ?? id;
    this.select(idsBetween(this.lines, from, id));
    this.anchor = from;
  }

  /** All sessions that have a line; those in folded groups are not seen, so they are not selected. */
  selectAll(): void {
    this.select(this.lines.flatMap((line) => (line.kind === "row" ? [line.row.session_id] : [])));
  }

  get selectedRows(): readonly SessionRow[] {
    return this.rows.filter((row) => this.selected.has(row.session_id));
  }

  // ------------------------------------------------------------ what is done with sessions

  ask(dialog: "rename" | "delete", rows: readonly Subject[]): void {
    this.subjects = rows;
    app.dialog = dialog;
  }

  async archive(ids: readonly string[], archived: boolean): Promise<void> {
    const done = await this.each(ids, (id) => search.archive(id, archived));
    if (!done.length) return;
    (archived ? app.sessions : this.archived).drop(new Set(done));
    this.changeHits(done, { archived });
    this.stopSelecting();
    await Promise.all([app.poll(), this.pollArchive()]);
    const [what, was, is] = done.length === 1 ? ["The session", "was", "is"] : [many(done.length), "were", "are"];
    toast("info", archived ? `${what} ${was} archived.` : `${what} ${is} back in the list.`, { label: "Undo", act: () => void this.archive(done, !archived) });
  }

  async remove(ids: readonly string[]): Promise<void> {
    const done = await this.each(ids, (id) => api.remove(id));
    if (!done.length) return;
    const gone = new Set(done);
    app.sessions.drop(gone);
    this.archived.drop(gone);
    this.hits = this.hits?.filter((hit) => !gone.has(hit.session_id)) ?? null;
    this.stopSelecting();
    if (app.session && gone.has(app.session.id)) app.open(null);
    toast("info", done.length === 1 ? "The session was deleted." : `${many(done.length)} were deleted.`);
  }

  async rename(id: string, title: string): Promise<void> {
    try {
      await search.rename(id, title);
      this.changeHits([id], { title });
      await Promise.all([app.poll(), this.pollArchive()]);
    } catch (error) {
      app.report(error);
    }
  }

  /** What the search found is not asked for again when one of its sessions changes. */
  private changeHits(ids: readonly string[], change: Partial<SearchHit>): void {
    this.hits = this.hits?.map((hit) => (ids.includes(hit.session_id) ? { ...hit, ...change } : hit)) ?? null;
  }

  /** Does something with each, a few at a time. Returns those that it worked for; says why others failed, once. */
  private async each(ids: readonly string[], act: (id: string) => Promise<void>): Promise<string[]> {
    const left = [...ids];
    const done: string[] = [];
    let failure: unknown;
    const work = async (): Promise<void> => {
      for (let id = left.shift(); id !== undefined; id = left.shift())
        try {
          await act(id);
          done.push(id);
        } catch (error) {
          failure = error;
        }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    if (failure && ids.length === 1) app.report(failure);
    else if (failure) toast("error", `${many(ids.length - done.length)} of ${ids.length} failed: ${(failure as Error).message}`);
    return done;
  }
}

export const list = new SessionListState();
