// Branches of a conversation: an edited message, another answer, another way on. The log is never changed, so each of
// them is a session of its own that ends before the message in question, and the original stays as it is.
import { withoutFiles } from "../lib/attachments";
import type { TextItem, UserItem } from "../lib/store/items";
import { messagesAround } from "../lib/store/transcript";
import { app } from "./app.svelte";
import type { Session } from "./session.svelte";
import { toast } from "./toasts.svelte";

/** How many older pages are read to find the message that an answer belongs to. */
const MAX_PAGES = 5;

/** Whether the token of this page may branch sessions. */
export const mayBranch = (): boolean => app.may("prompt") && !app.info?.session_id;

/** Send the edited message in a branch. */
export async function sendEdited(session: Session): Promise<void> {
  const edited = session.edited;
  if (!edited || (!edited.text.trim() && !edited.images.length && !edited.files.length)) return;
  const { eventId, ...draft } = edited;
  if (await app.fork(session.id, { before: eventId }, draft)) session.edited = null;
}

/** A branch that continues after this answer. */
export async function branchAfter(session: Session, answer: TextItem): Promise<void> {
  const { after } = messagesAround(session.view.chunks, answer.key);
  await app.fork(session.id, after ? { before: after.eventId } : { at: session.view.lastEventId });
}

/** Another answer to the same message, in a branch; from another model where one is named. */
export async function regenerate(session: Session, answer: TextItem, modelRef?: string): Promise<void> {
  let { before } = messagesAround(session.view.chunks, answer.key);
  for (let pages = 0; !before && session.view.before !== null && pages < MAX_PAGES; pages++) {
    await session.loadOlder();
    ({ before } = messagesAround(session.view.chunks, answer.key));
  }
  if (!before) return toast("error", "The message of this answer was not found. Load older messages and try again.");
  await askAgain(session, before, modelRef);
}

/** The same message in a branch that ends before it. */
export async function askAgain(session: Session, message: UserItem, modelRef?: string): Promise<void> {
  const point = { before: message.eventId, ...(modelRef === undefined ? {} : { model_ref: modelRef }) };
  const { words, files } = withoutFiles(message.text);
  await app.fork(session.id, point, { text: words, images: message.images, files }, true);
}
