// Calls the user back while no tab of the page is in sight. Of several tabs one, the holder of a lock, looks at the
// sessions and notifies; every tab tells it whether it is in sight, so that nothing is said to a person who looks.
import { api } from "../lib/api";
import { newId } from "../lib/ids";
import { noticesOf, type Look, type Notice, type NoticeKind } from "../lib/notices";
import { app } from "./app.svelte";

export const KINDS: readonly NoticeKind[] = ["approval", "finished", "failed"];
const STORED = "makai.notify";
const LOOK_MS = 4000;
const ROWS = 50;
const ICONS = { plain: "/icon.svg", waiting: "/icon-waiting.svg" };

type Told =
  | { type: "shows"; tab: string; visible: boolean }
  | { type: "gone"; tab: string }
  | { type: "who" }
  | { type: "look"; pending: Look["pending"] };

class Notifications {
  kinds: ReadonlySet<NoticeKind> = $state.raw(stored());
  permission: NotificationPermission | "unsupported" = $state("Notification" in globalThis ? Notification.permission : "unsupported");

  private readonly tab = newId();
  private readonly channel = "BroadcastChannel" in globalThis ? new BroadcastChannel("makai") : null;
  private readonly visible = new Map<string, boolean>();
  private last: Look | null = null;

  start(): void {
    this.channel?.addEventListener("message", ({ data }: MessageEvent<Told>) => this.heard(data));
    document.addEventListener("visibilitychange", () => this.tell());
    addEventListener("storage", (event) => {
      if (event.key === STORED) this.kinds = stored();
    });
    addEventListener("pagehide", () => this.channel?.postMessage({ type: "gone", tab: this.tab } satisfies Told));
    addEventListener("pageshow", () => this.tell());
    this.tell();
    // Held until this tab is closed; then the next one gets it.
    if ("locks" in navigator) void navigator.locks.request("makai.notifications", () => this.lead());
  }

  /** Turn a kind on or off. Turning one on asks the browser for permission, which needs the user's click. */
  async set(kind: NoticeKind, on: boolean): Promise<void> {
    if (on && this.permission === "default") this.permission = await Notification.requestPermission();
    const kinds = new Set(this.kinds);
    if (on && this.permission === "granted") kinds.add(kind);
    else kinds.delete(kind);
    this.kinds = kinds;
    localStorage.setItem(STORED, [...kinds].join(" "));
  }

  /** Show in the tab's icon whether something waits. */
  mark(waiting: boolean): void {
    document.querySelector<HTMLLinkElement>("link[rel=icon]")?.setAttribute("href", waiting ? ICONS.waiting : ICONS.plain);
  }

  private heard(told: Told): void {
    if (told.type === "who") this.tell();
    else if (told.type === "gone") this.visible.delete(told.tab);
    else if (told.type === "shows") this.visible.set(told.tab, told.visible);
    else if (document.visibilityState !== "visible") app.pending = told.pending;
  }

  private tell(): void {
    const visible = document.visibilityState === "visible";
    this.visible.set(this.tab, visible);
    this.channel?.postMessage({ type: "shows", tab: this.tab, visible } satisfies Told);
  }

  private async lead(): Promise<never> {
    this.channel?.postMessage({ type: "who" } satisfies Told);
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      await this.look();
    }
  }

  private async look(): Promise<void> {
    if (!this.kinds.size || app.access !== "granted") {
      this.last = null;
      return;
    }
    try {
      const [list, { pending }] = await Promise.all([api.sessions("without", null, ROWS), api.approvals()]);
      const now: Look = { rows: list.sessions, pending };
      if (this.last) for (const notice of noticesOf(this.last, now)) this.notify(notice);
      this.last = now;
      if (document.visibilityState !== "visible") app.pending = pending;
      this.channel?.postMessage({ type: "look", pending } satisfies Told);
    } catch {
      // Whether the server is there is said elsewhere; what happened meanwhile is found when it is back.
    }
  }

  private notify(notice: Notice): void {
    const seen = [...this.visible.values()].includes(true);
    if (seen || !this.kinds.has(notice.kind) || this.permission !== "granted") return;
    try {
      const shown = new Notification(notice.title, { body: notice.body, tag: notice.tag, icon: "/icon-192.png" });
      shown.onclick = () => {
        window.focus();
        app.open(notice.sessionId);
        shown.close();
      };
    } catch {
      // Phones show notifications only through the service worker, which opens the session when it is tapped.
      void navigator.serviceWorker?.ready.then((worker) =>
        worker.showNotification(notice.title, { body: notice.body, tag: notice.tag, icon: "/icon-192.png", data: notice.sessionId }),
      );
    }
  }
}

function stored(): ReadonlySet<NoticeKind> {
  const words = (localStorage.getItem(STORED) ?? "").split(" ");
  return new Set(KINDS.filter((kind) => words.includes(kind)));
}

export const notifications = new Notifications();
