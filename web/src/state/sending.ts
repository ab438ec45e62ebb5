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

const isPlain = (draft: Draft): boolean => !namesFiles(draft.text) && parseCommand(draft.text) === null;

/** The message that the text stands for, with the files that it names. Raises an ApiError when there is none. */
export async function composed(sessionId: string, draft: Draft): Promise<Draft> {
  if (isPlain(draft)) return draft;
  const { text, images, files, notices } = await completion.compose(sessionId, draft.text);
  for (const notice of notices) toast("info", notice);
  return { text, images: [...draft.images, ...images].slice(0, MAX_IMAGES), files: [...draft.files, ...files] };
}

/** Raises an ApiError when the server cannot compose the message; then nothing was sent. */
export async function sendDraft(session: Session, draft: Draft, delivery: Delivery): Promise<void> {
  const before = underWay.get(session);
  if (isPlain(draft) && !before) return session.send(draft.text, draft.images, delivery, draft.files);
  const composing = composed(session.id, draft);
  const turn = Promise.allSettled([before, composing]);
  underWay.set(session, turn);
  await turn;
  if (underWay.get(session) === turn) underWay.delete(session);
  const { text, images, files } = await composing;
  session.send(text, images, delivery, files);
}
