// The files that the open session changed, as the server says. Asked for after every change, but not all the time: the
// server reads the whole log for it.
import { ApiError } from "../lib/api/http";
import { changesApi, type RestoreChoice } from "../lib/api/changes";
import { kept, lastChange } from "../lib/changes";
import type { FileDiff } from "../lib/protocol";
import type { Session } from "./session.svelte";

const EVERY_MS = 3000;
const EVERY_MS_SHOWN = 1000;

class Changes {
  files: readonly FileDiff[] = $state.raw([]);
  /** Why the list could not be loaded. */
  failure = $state("");
  loaded = $state(false);
  /** What the dialog that undoes is about; the field `restoreTo` of the page comes first. */
  choice: RestoreChoice | null = $state.raw(null);
  /** Whether the list is shown again when that dialog is closed. */
  reopens = $state(false);

  private sessionId = "";
  private known = "";
  private asked = 0;
  private waiting: ReturnType<typeof setTimeout> | undefined;

  /** Load the files of the session when they may have changed; `isShown`: a person looks at the list. */
  follow(session: Session, isShown: boolean): void {
    if (session.id !== this.sessionId) this.forget(session.id);
    if (!session.view.loaded) return;
    const change = lastChange(session.view.chunks);
    // What changed before the part that is loaded is not seen here, so the server is asked once.
    const isUnknown = !this.loaded && (isShown || session.view.before !== null);
    if (change === this.known && !isUnknown) return;
    this.known = change;
    clearTimeout(this.waiting);
    const early = (isShown ? EVERY_MS_SHOWN : EVERY_MS) - (performance.now() - this.asked);
    if (this.asked && early > 0) this.waiting = setTimeout(() => void this.load(), early);
    else void this.load();
  }

  private forget(sessionId: string): void {
    clearTimeout(this.waiting);
    this.sessionId = sessionId;
    this.files = [];
    this.loaded = false;
    this.failure = this.known = "";
    this.asked = 0;
  }

  async load(): Promise<void> {
    const { sessionId } = this;
    this.asked = performance.now();
    this.loaded = true;
    try {
      const { files } = await changesApi.diff(sessionId);
      if (sessionId !== this.sessionId) return;
      this.files = kept(this.files, files);
      this.failure = "";
    } catch (error) {
      if (sessionId === this.sessionId) this.failure = error instanceof ApiError ? error.message : "The changed files could not be loaded.";
    }
  }
}

export const changes = new Changes();
