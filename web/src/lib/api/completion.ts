// What the message field completes: files after an `@`, slash commands, and the message that such a text stands for.
import type { AttachedText, PastedImage } from "../protocol";
import type { Command } from "../slash";
import { addressPart, ask } from "./http";

export interface FoundFiles {
  /** From the session's folder; folders end in a slash. */
  paths: string[];
  is_complete: boolean;
}

export interface ComposedMessage {
  text: string;
  files: AttachedText[];
  images: PastedImage[];
  /** What the user should know about the files. */
  notices: string[];
}

/** Where files and commands are looked up: in a session, or in the folder of one that does not exist yet. */
export type Place = { sessionId: string } | { folder: string };

const address = (place: Place, what: string): string =>
  "sessionId" in place ? `/api/sessions/${addressPart(place.sessionId)}/${what}?` : `/api/${what}?folder=${addressPart(place.folder)}&`;

export const completion = {
  files: (place: Place, prefix: string) => ask<FoundFiles>("GET", `${address(place, "files")}prefix=${addressPart(prefix)}`),
  commands: (place: Place) => ask<{ commands: Command[] }>("GET", address(place, "commands").slice(0, -1)),
  compose: (sessionId: string, text: string) =>
    ask<ComposedMessage>("POST", `/api/sessions/${addressPart(sessionId)}/compose`, { text }),
};
