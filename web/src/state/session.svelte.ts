// One open session: its connection, its view, what was sent and not yet confirmed. Frames are folded once per animation
// frame, however many arrive. Everything the page shows about the session is read from here.
import { api } from "../lib/api";
import type { RestoreChoice, RestoreDirection } from "../lib/api/changes";
import { newLink, type Link } from "../lib/connection";
import { newId } from "../lib/ids";
import { Outbox, unconfirmed, type Outgoing } from "../lib/outbox";
import type { Draft } from "../lib/attachments";
import type {
  AttachedText,
  ClientMessage,
  Delivery,
  ErrorFrame,
  GrantScope,
  OfferedGrant,
  PastedImage,
  PermissionMode,
  ServerMessage,
} from "../lib/protocol";
import { SessionSocket } from "../lib/socket";
import { fold, prepend } from "../lib/store/fold";
import type { Approval } from "../lib/store/items";
import { countItems, MAX_ITEMS } from "../lib/store/transcript";
import { emptyView, isBusy, type SessionView } from "../lib/store/view";
import { toast } from "./toasts.svelte";

/** `accepted` follows the commit; a message of an old visit may lie before what the page has loaded. */
const CONFIRMED_MS = 3000;
/** A hidden tab has no animation frames. */
const HIDDEN_FLUSH_MS = 250;
/** The most items that the server gives at once. */
const LARGEST_PAGE = 2000;

type Command = "send" | "withdraw" | "decide" | "abort" | "other";

export interface EditedMessage extends Draft {
  /** The event of the original message. */
  eventId: number;
}

export class Session {
  view: SessionView = $state.raw(emptyView(""));
  link: Link = $state.raw(newLink(""));
  outbox: readonly Outgoing[] = $state.raw([]);
  /** Calls whose decision is on its way, and which one. */
  deciding: ReadonlyMap<string, "approve" | "deny"> = $state.raw(new Map());
  /** Calls for whose question another rule than the one by default was chosen, and which. */
  private chosen: ReadonlyMap<string, string> = $state.raw(new Map());
  loadingOlder = $state(false);
  /** The event that the address asks for; a new value each time, also for the same event. */
  sought: { eventId: number } | null = $state.raw(null);
  /** The message that is being edited in place. Kept here, because its element goes when it is scrolled far away. */
  edited: EditedMessage | null = $state(null);
  /** The call whose denial is being explained, by its id. */
  explaining = $state("");
  /** When anything was last heard of the run, for "no news since". */
  newsAt = $state(0);

  private readonly socket: SessionSocket;
  private readonly stored: Outbox;
  /** Messages to be edited once they are out of the queue, by their input ids. */
  private readonly editing = new Map<string, () => void>();
  private readonly asked = new Map<string, { command: Command; about: string }>();
  private older: Promise<void> | null = null;
  private unread: ServerMessage[] = [];
  private scheduled = false;
  private stopped = false;

  constructor(readonly id: string) {
    this.view = emptyView(id);
    this.link = newLink(id);
    this.stored = new Outbox(id, localStorage);
    this.outbox = this.stored.load();
    this.socket = new SessionSocket(id, {
      changed: (link) => (this.link = link),
      received: (frame) => this.receive(frame),
      cursor: () => {
        this.flush();
        return this.view.lastEventId;
      },
    });
  }

  start(): void {
    this.socket.start();
  }

  stop(): void {
    this.stopped = true;
    this.socket.stop();
  }

  retryNow(): void {
    this.socket.retryNow();
  }

  get live(): boolean {
    return this.link.phase.name === "live";
  }

  get busy(): boolean {
    return isBusy(this.view);
  }

  // ------------------------------------------------------------ what a user does

  send(text: string, images: PastedImage[], delivery: Delivery, files: AttachedText[] = []): void {
    const message: Outgoing = { clientMsgId: newId(), text, images, ...(files.length ? { files } : {}), delivery, refused: null };
    this.keep([...this.outbox, message]);
    this.transmit(message);
  }

  resend(message: Outgoing): void {
    const again = { ...message, refused: null };
    this.keep(this.outbox.map((one) => (one === message ? again : one)));
    this.transmit(again);
  }

  discard(message: Outgoing): void {
    this.keep(this.outbox.filter((one) => one !== message));
  }

  /** Take a message out of the queue; `edit` is called when it is out. */
  withdraw(input_id: string, edit?: () => void): void {
    if (this.ask({ type: "withdraw", input_id }, "withdraw", input_id) && edit) this.editing.set(input_id, edit);
  }

  /** The rule that a wider scope sets for this question: the chosen one, or the one it has by default. */
  widthOf(approval: Approval): OfferedGrant | undefined {
    const rule = this.chosen.get(approval.callId) ?? approval.grant;
    return approval.grants.find((grant) => grant.rule === rule) ?? (rule ? { rule, label: "" } : undefined);
  }

  choose(approval: Approval, rule: string): void {
    this.chosen = new Map(this.chosen).set(approval.callId, rule);
  }

  decide(approval: Approval, decision: "approve" | "deny", scope: GrantScope = "once", reason = ""): void {
    if (this.deciding.has(approval.callId)) return;
    const grant = scope === "once" ? undefined : this.widthOf(approval)?.rule;
    const message: ClientMessage = {
      type: decision,
      call_id: approval.callId,
      scope,
      ...(reason ? { reason } : {}),
      ...(grant && grant !== approval.grant ? { grant } : {}),
      ...(decision === "approve" && approval.digest !== null ? { digest: approval.digest } : {}),
    };
    if (this.ask(message, "decide", approval.callId))
      this.deciding = new Map(this.deciding).set(approval.callId, decision);
  }

  abort(): void {
    if (this.view.run && this.view.run.status !== "aborting")
      this.ask({ type: "abort", run_id: this.view.run.runId }, "abort");
  }

  /** Ask the model again after this run failed, without a second copy of the message. */
  retry(run_id: string): void {
    this.ask({ type: "retry", run_id });
  }

  setMode(mode: PermissionMode): void {
    this.ask({ type: "set_mode", mode });
  }

  setModel(model_ref: string): void {
    this.ask({ type: "set_model", model_ref });
  }

  setAgent(agent: string, model_ref?: string): void {
    this.ask({ type: "set_agent", agent, ...(model_ref === undefined ? {} : { model_ref }) });
  }

  setTitle(title: string): void {
    this.ask({ type: "set_title", title });
  }

  /** Restore the files that the preview of this id and choice showed. */
  restore(direction: RestoreDirection, plan_id: string, { count, to, paths }: RestoreChoice): void {
    this.ask({
      type: direction,
      plan_id,
      ...(count === undefined ? {} : { count }),
      ...(to === undefined ? {} : { to }),
      ...(paths === undefined ? {} : { paths: [...paths] }),
    });
  }

  compact(): void {
    this.ask({ type: "compact" });
  }

  seek(eventId: number): void {
    this.sought = { eventId };
  }

  /** Loads back to an event, in the largest pages there are. False when it is too far back for this page to hold. */
  async loadBackTo(eventId: number): Promise<boolean> {
    for (;;) {
      const { before, chunks } = this.view;
      if (before === null || before <= eventId) return true;
      if (countItems(chunks) > MAX_ITEMS - LARGEST_PAGE) return false;
      await this.loadOlder(LARGEST_PAGE);
      if (this.view.before === before) return false;
    }
  }

  /** Loads one page at a time: a call during another one waits for the same page. */
  loadOlder(limit?: number): Promise<void> {
    this.older ??= this.fetchOlder(limit).finally(() => (this.older = null));
    return this.older;
  }

  private async fetchOlder(limit?: number): Promise<void> {
    const { before } = this.view;
    if (before === null) return;
    this.loadingOlder = true;
    try {
      const page = await api.older(this.id, before, limit);
      // A snapshot may have come meanwhile: then this page fits no more.
      if (this.view.before === before) this.view = prepend(this.view, page.items, page.before);
    } catch (error) {
      toast("error", `Older messages could not be loaded: ${(error as Error).message}`);
    } finally {
      this.loadingOlder = false;
    }
  }

  // ------------------------------------------------------------ what the server says

  private receive(frame: ServerMessage): void {
    if (frame.type === "accepted") return this.accepted(frame.req_id);
    if (frame.type === "error" && frame.event_id === undefined) return this.refused(frame);
    if (frame.type === "input_withdrawn") this.edit(frame.input_id);
    if (frame.type === "run_resumed") toast("info", "The server was restarted; the run continues.");
    this.unread.push(frame);
    if (frame.type === "welcome") queueMicrotask(() => this.transmitAll());
    this.schedule();
  }

  /** At the event and not at `accepted`, which a connection that breaks may lose: the text must not be lost with it. */
  private edit(inputId: string): void {
    this.editing.get(inputId)?.();
    this.editing.delete(inputId);
  }

  private schedule(): void {
    if (this.scheduled || this.stopped) return;
    this.scheduled = true;
    if (document.visibilityState === "visible") requestAnimationFrame(() => this.flush());
    // Also when visible: an occluded window may get no frames for long.
    setTimeout(() => this.flush(), HIDDEN_FLUSH_MS);
  }

  private flush(): void {
    this.scheduled = false;
    if (!this.unread.length) return;
    const frames = this.unread;
    this.unread = [];
    this.view = fold(this.view, frames);
    this.newsAt = Date.now();
    const left = unconfirmed(this.outbox, this.view.taken);
    if (left !== this.outbox) this.keep(left);
    const open = new Set(this.view.approvals.map((approval) => approval.callId));
    if ([...this.deciding.keys()].some((callId) => !open.has(callId)))
      this.deciding = new Map([...this.deciding].filter(([callId]) => open.has(callId)));
  }

  private accepted(reqId: string | undefined): void {
    const about = reqId === undefined ? undefined : this.asked.get(reqId);
    if (reqId !== undefined) this.asked.delete(reqId);
    if (about?.command === "send")
      setTimeout(() => this.keep(this.outbox.filter((one) => one.clientMsgId !== about.about)), CONFIRMED_MS);
  }

  private refused(frame: ErrorFrame): void {
    const about = frame.req_id === undefined ? undefined : this.asked.get(frame.req_id);
    if (frame.req_id !== undefined) this.asked.delete(frame.req_id);
    if (about?.command === "send")
      return this.keep(
        this.outbox.map((one) => (one.clientMsgId === about.about ? { ...one, refused: frame.message } : one)),
      );
    if (about?.command === "decide")
      this.deciding = new Map([...this.deciding].filter(([callId]) => callId !== about.about));
    if (about?.command === "withdraw") this.editing.delete(about.about);
    // The run ended at the same moment: nothing left to abort.
    if (about?.command === "abort" && (frame.code === "NOT_RUNNING" || frame.code === "STALE_RUN_ID")) return;
    if (frame.code === "APPROVAL_CONFLICT") toast("info", "Already decided in another window or client.");
    else if (frame.code === "STALE_RUN_ID") toast("info", "Already retried in another window or client.");
    else if (frame.code === "INPUT_NOT_WAITING") toast("info", frame.message);
    else {
      const hint = frame.details?.["hint"];
      toast("error", typeof hint === "string" ? `${frame.message} ${hint}` : frame.message);
    }
  }

  private ask(message: ClientMessage, command: Command = "other", about = ""): boolean {
    const req_id = newId();
    if (!this.socket.send({ ...message, req_id })) {
      toast("error", "Not connected: nothing was sent. Try again when the connection is back.");
      return false;
    }
    this.asked.set(req_id, { command, about });
    return true;
  }

  private transmitAll(): void {
    this.asked.clear();
    this.deciding = new Map();
    for (const message of this.outbox) if (message.refused === null) this.transmit(message);
  }

  private transmit(message: Outgoing): void {
    const req_id = newId();
    const sent = this.socket.send({
      type: "send",
      req_id,
      text: message.text,
      client_msg_id: message.clientMsgId,
      delivery: message.delivery,
      ...(message.images.length ? { images: message.images } : {}),
      ...(message.files?.length ? { files: message.files } : {}),
    });
    if (sent) this.asked.set(req_id, { command: "send", about: message.clientMsgId });
  }

  private keep(messages: readonly Outgoing[]): void {
    this.outbox = messages;
    this.stored.save(messages);
  }
}
