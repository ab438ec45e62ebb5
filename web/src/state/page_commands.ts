// What the slash commands of the page do. The others are messages, which the server composes.
import { api, type Scope } from "../lib/api";
import { copyText } from "../lib/clipboard";
import { MODE_NAMES } from "../lib/format";
import type { PermissionMode } from "../lib/protocol";
import { app } from "./app.svelte";
import type { Session } from "./session.svelte";
import { starting } from "./starting.svelte";
import { toast } from "./toasts.svelte";

/** False when it cannot be done, which a message explains; the text stays in the field. */
export function carryOut(name: string, argument: string, session: Session | null): boolean {
  const act = (session ? IN_SESSION[name] : undefined) ?? ANYWHERE[name];
  if (!act) return refuse(`/${name} is for a session that has begun.`);
  const why = app.whyNot(NEEDED[name] ?? "prompt");
  return why ? refuse(why) : act(argument, session as Session);
}

const NEEDED: Record<string, Scope> = { undo: "approve", redo: "approve", login: "admin", export: "observe", copy: "observe", help: "observe", diff: "observe", context: "observe", cost: "observe", mcp: "approve", trust: "approve" };

function refuse(reason: string): false {
  toast("error", reason);
  return false;
}

const done = (act: () => unknown): true => {
  act();
  return true;
};

const ANYWHERE: Record<string, (argument: string) => boolean> = {
  model: () => done(() => app.pickModel(app.pickedModel, (ref) => starting.pickModel(ref))),
  folder: () => done(() => (app.dialog = "folder")),
  agent: () => done(() => (app.dialog = "agent")),
  login: () => done(() => (app.dialog = "login")),
  help: () => done(() => (app.dialog = "help")),
  cost: () => done(() => (location.hash = "#/settings/usage")),
  mcp: () => done(() => (location.hash = "#/settings/mcp")),
  trust: () => done(() => (location.hash = "#/settings/folders")),
};

const IN_SESSION: Record<string, (argument: string, session: Session) => boolean> = {
  model: (_, session) => done(() => app.pickModel(session.view.modelRef, (ref) => session.setModel(ref))),
  mode: (argument, session) => {
    const modes = Object.keys(MODE_NAMES);
    if (!modes.includes(argument)) return refuse(`Write /mode and one of ${modes.join(", ")}. It is ${session.view.mode} now.`);
    return done(() => session.setMode(argument as PermissionMode));
  },
  steer: (argument, session) => (argument ? done(() => session.send(argument, [], "steer")) : refuse("Write /steer and your message.")),
  compact: (_, session) => done(() => session.compact()),
  diff: () => done(() => (app.dialog = "changes")),
  context: () => done(() => (app.dialog = "usage")),
  cost: () => done(() => (app.dialog = "usage")),
  new: () => done(() => app.open(null)),
  fork: (_, session) => done(() => void app.fork(session.id)),
  undo: () => done(() => (app.dialog = "undo")),
  redo: () => done(() => (app.dialog = "redo")),
  title: (argument, session) => done(() => (argument ? session.setTitle(argument) : (app.dialog = "rename"))),
  export: (argument, session) => {
    if (!["", "md", "jsonl"].includes(argument)) return refuse("Write /export md or /export jsonl.");
    return done(() => {
      const link = document.createElement("a");
      link.href = api.exportAddress(session.id, argument === "jsonl" ? "jsonl" : "md");
      link.download = "";
      link.click();
    });
  },
  copy: (_, session) => {
    const items = session.view.chunks.flatMap((chunk) => chunk.items);
    const last = items.findLast((item) => item.kind === "text");
    if (last?.kind !== "text") return refuse("There is no answer yet.");
    void copyText(last.text).then((copied) => toast(copied ? "info" : "error", copied ? "The last answer is in the clipboard." : "The browser did not allow copying."));
    return true;
  },
};
