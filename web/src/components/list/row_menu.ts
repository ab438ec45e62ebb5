// What can be done with a session from the list, whether it is open or not.
import { addressOf } from "../../lib/address";
import { api } from "../../lib/api";
import { app } from "../../state/app.svelte";
import { list, type Subject } from "../../state/list.svelte";
import type { MenuEntry } from "../MenuList.svelte";

export function rowEntries(subject: Subject): MenuEntry[] {
  const id = subject.session_id;
  const prompt = app.may("prompt");
  const all = prompt && !app.info?.session_id;
  return [
    { label: "Open in a new tab", href: addressOf(id), newTab: true },
    ...(prompt
      ? [
          { label: "Rename", act: () => list.ask("rename", [subject]) },
          subject.archived
            ? { label: "Move out of the archive", act: () => void list.archive([id], false) }
            : { label: "Archive", act: () => void list.archive([id], true) },
        ]
      : []),
    ...(all ? [{ label: "Branch", detail: "Continue in a new session", act: () => void app.fork(id) }] : []),
    { label: "Export as Markdown", href: api.exportAddress(id, "md") },
    { label: "Export as JSON lines", href: api.exportAddress(id, "jsonl") },
    ...(app.may("admin") ? [{ label: "Delete", danger: true, act: () => list.ask("delete", [subject]) }] : []),
  ];
}
