// The page as a whole: where we are, which sessions there are, what is open on top, and whether the server is there.
import { api, type BranchPoint, type Harness, type Info, type Model, type NewSession, type PendingApproval, type Scope, type SessionRow } from "../lib/api";
import { addressOf, readAddress } from "../lib/address";
import { ApiError } from "../lib/api/http";
import { decodedPart } from "../lib/carried";
import type { Draft } from "../lib/attachments";
import { keepAttachments } from "../lib/kept_attachments";
import { saveDraft } from "../lib/outbox";
import { SessionPages } from "./pages.svelte";
import { composed } from "./sending";
import { Session } from "./session.svelte";
import { toast } from "./toasts.svelte";

export type Dialog =
  | "folder" | "agent" | "help" | "login" | "model" | "rename" | "delete" | "undo" | "redo" | "changes" | "terminal" | "usage" | null;
export type Access = "unknown" | "granted" | "refused" | "unreachable";
export type Theme = "system" | "light" | "dark";

/** What the demo begins with; it waits in the field until the user sends it. */
const DEMO_WORDS = "Show me what you can do.";
const POLL_MS = 4000;
const MAX_POLL_MS = 15_000;
const SCOPES: readonly Scope[] = ["observe", "prompt", "approve", "admin"];

class App {
  access: Access = $state("unknown");
  info: Info | null = $state.raw(null);
  /** All sessions but the archived ones. */
  readonly sessions = new SessionPages("without");
  /** What is searched for in all sessions; empty when nothing is. */
  query = $state("");
  pending: readonly PendingApproval[] = $state.raw([]);
  models: readonly Model[] | null = $state.raw(null);
  harnesses: readonly Harness[] = $state.raw([]);
  session: Session | null = $state.raw(null);
  /** The open section of the settings; null when they are not open, empty for their first section. */
  settings: string | null = $state(null);
  dialog: Dialog = $state(null);
  /** For the dialog that undoes: the event of the message to go back to; null: the last one that changed files. */
  restoreTo: number | null = $state(null);
  drawer = $state(false);
  theme: Theme = $state((localStorage.getItem("makai.theme") as Theme | null) ?? "system");
  /** For the model picker: called with what was picked. */
  onModel: ((modelRef: string) => void) | null = null;
  pickedModel = $state("");

  private failures = 0;
  private loadedFor: Info | null = null;
  private polling: ReturnType<typeof setTimeout> | undefined;

  get rows(): readonly SessionRow[] {
    return this.sessions.rows;
  }

  start(): void {
    this.showTheme();
    addEventListener("hashchange", () => void this.enter());
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") void this.poll();
    });
    void this.enter();
  }

  /** Whether the token of this page allows what needs this scope. The server decides; this is for what is shown. */
  may(needed: Scope): boolean {
    return this.info === null || SCOPES.indexOf(this.info.scope) >= SCOPES.indexOf(needed);
  }

  /** Why something is disabled, for a person; empty when it is not. */
  whyNot(needed: Scope): string {
    if (this.may(needed)) return "";
    const allowed = this.info?.scope === "observe" ? "lets you watch" : `has the scope ${this.info?.scope}`;
    return `Your link ${allowed}. This needs one with the scope ${needed}: makai tokens link --scope ${needed}`;
  }

  /** An agent's name for a person. One that this server does not offer is shown by its id. */
  agentTitle(harness: string): string {
    return this.harnesses.find((one) => one.name === harness)?.title ?? harness.replace(/^acp:/, "");
  }

  // ------------------------------------------------------------ where we are

  /** Reads the address: a token is traded for the cookie and leaves the address bar; else it says what to show. */
  private async enter(): Promise<void> {
    const token = /^#token=(.+)$/.exec(location.hash)?.[1];
    if (token !== undefined) {
      // A session that was shown stays shown.
      const back = this.session ? addressOf(this.session.id) : "";
      history.replaceState(null, "", location.pathname + location.search + back);
      await this.trade(decodedPart(token));
    }
    this.settings = /^#\/settings(?:\/(\w*))?$/.exec(location.hash)?.slice(1).join("") ?? null;
    const { sessionId: id, eventId } = readAddress(location.hash);
    if (id !== (this.session?.id ?? null)) this.show(id);
    else this.session?.retryNow();
    if (eventId !== null) this.session?.seek(eventId);
    await this.poll();
  }

  private async trade(token: string): Promise<void> {
    try {
      await api.cookie(token);
      this.info = null; // another token may allow other things
    } catch (error) {
      this.noteFailure(error);
      toast("error", "The token in this address is not valid. Open the address that makai serve prints.");
    }
  }

  private show(id: string | null): void {
    this.session?.stop();
    this.session = id === null ? null : new Session(id);
    this.session?.start();
    this.drawer = false;
    this.dialog = null;
  }

  open(id: string | null): void {
    location.hash = id === null ? "#/" : addressOf(id);
    this.drawer = false;
  }

  async create(wanted: NewSession, first?: Draft): Promise<boolean> {
    try {
      const { session_id } = await api.create(wanted);
      if (wanted.demo) saveDraft(localStorage, session_id, DEMO_WORDS);
      const message = first ? await this.firstMessage(session_id, first) : null;
      this.open(session_id);
      // The address changes asynchronously; the message must not wait for that.
      this.show(session_id);
      if (message) this.session?.send(message.text, message.images, "queue", message.files);
      void this.poll();
      return true;
    } catch (error) {
      this.report(error);
      return false;
    }
  }

  /** The first message; one that the server cannot compose stays in the field of the new session. */
  private async firstMessage(sessionId: string, first: Draft): Promise<Draft | null> {
    try {
      return await composed(sessionId, first);
    } catch (error) {
      saveDraft(localStorage, sessionId, first.text);
      await keepAttachments(sessionId, first);
      this.report(error);
      return null;
    }
  }

  /** Branch a session and show the branch; `first` is sent there, as it is when the server composed it before. */
  async fork(id: string, point: BranchPoint = {}, first?: Draft, isComposed = false): Promise<boolean> {
    try {
      const { session_id } = await api.fork(id, point);
      const message = first && !isComposed ? await this.firstMessage(session_id, first) : first;
      this.open(session_id);
      this.show(session_id);
      if (message) this.session?.send(message.text, message.images, "queue", message.files);
      void this.poll();
      return true;
    } catch (error) {
      this.report(error);
      return false;
    }
  }

  // ------------------------------------------------------------ what there is

  /** Polls lists and counts while the page is visible. */
  async poll(): Promise<void> {
    clearTimeout(this.polling);
    try {
      // What the token allows comes first: the list must not offer more for a moment.
      const info = (this.info ??= await api.info());
      await this.sessions.refresh();
      this.pending = (await api.approvals()).pending;
      this.failures = 0;
      this.access = "granted";
      if (this.loadedFor !== info) await this.loadOnce(info);
    } catch (error) {
      this.noteFailure(error);
    }
    // Without permission asking again changes nothing; a new address does.
    if (document.visibilityState !== "visible" || this.access === "refused") return;
    this.polling = setTimeout(() => void this.poll(), Math.min(POLL_MS + this.failures * 2000, MAX_POLL_MS));
  }

  async loadModels(): Promise<void> {
    try {
      this.models = (await api.models()).models;
    } catch (error) {
      // That the server is away is said elsewhere.
      if (!(error instanceof ApiError) || error.status !== 0) this.report(error);
    }
  }

  /** What changes only with the token. */
  private async loadOnce(info: Info): Promise<void> {
    this.harnesses = (await api.harnesses().catch(() => ({ harnesses: [] }))).harnesses;
    this.loadedFor = info;
    if (info.session_id !== null && this.session === null) this.open(info.session_id);
    if (!this.pickedModel) this.pickedModel = localStorage.getItem("makai.model") ?? info.default_model_ref ?? "";
    void this.loadModels();
  }

  private noteFailure(error: unknown): void {
    const status = error instanceof ApiError ? error.status : 0;
    this.failures++;
    const forbidden = error instanceof ApiError && error.code === "forbidden";
    this.access = status === 401 || (status === 403 && !forbidden) ? "refused" : status === 0 ? "unreachable" : this.access;
  }

  report(error: unknown): void {
    const hint = error instanceof ApiError && error.hint ? ` ${error.hint}` : "";
    toast("error", `${(error as Error).message}${hint}`);
  }

  // ------------------------------------------------------------ looks

  setTheme(theme: Theme): void {
    this.theme = theme;
    localStorage.setItem("makai.theme", theme);
    this.showTheme();
  }

  private showTheme(): void {
    document.documentElement.dataset["theme"] = this.theme;
  }

  pickModel(current: string, then: (modelRef: string) => void): void {
    this.pickedModel = current;
    this.onModel = then;
    this.dialog = "model";
    void this.loadModels();
  }
}

export const app = new App();
