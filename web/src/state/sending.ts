// Sends a message of the field: one that names files or a command is composed by the server first. The order of messages
// stays, also when an earlier one takes longer.
import { completion } from "../lib/api/completion";
import type { Draft } from "../lib/attachments";
import { MAX_IMAGES } from "../lib/images";
import { namesFiles } from "../lib/mentions";
import type { Delivery } from "../lib/protocol";
import { parseCommand } from "../lib/slash";
import type { Session } from "./session.svelte";
import { toast } from "./toasts.svelte";

const underWay = new WeakMap<Session, Promise<unknown>>();

/** Raises an ApiError when the server cannot compose the message; then nothing was sent. */
export async function sendDraft(session: Session, draft: Draft, delivery: Delivery): Promise<void> {
  const before = underWay.get(session);
  const isPlain = !namesFiles(draft.text) && parseCommand(draft.text) === null;
  if (isPlain && !before) return session.send(draft.text, draft.images, delivery, draft.files);
  const composing = isPlain ? null : completion.compose(session.id, draft.text);
  const turn = Promise.allSettled([before, composing]);
  underWay.set(session, turn);
  await turn;
  if (underWay.get(session) === turn) underWay.delete(session);
  const composed = await composing;
  for (const notice of composed?.notices ?? []) toast("info", notice);
  const images = [...draft.images, ...(composed?.images ?? [])].slice(0, MAX_IMAGES);
  session.send(composed?.text ?? draft.text, images, delivery, [...draft.files, ...(composed?.files ?? [])]);
}
