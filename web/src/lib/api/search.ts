// Finding sessions and putting them away: the full-text search, titles and the archive.
import { addressPart, ask } from "./http";

/** A place in a session that has the words. `marks` are offsets into `text`, in UTF-16 code units. */
export interface SearchMatch {
  event_id: number;
  kind: "user" | "assistant" | "tool" | "title";
  text: string;
  marks: [number, number][];
}

export interface SearchHit {
  session_id: string;
  title: string;
  cwd: string | null;
  harness: string;
  model_ref: string;
  updated_ms: number;
  archived: boolean;
  matches: SearchMatch[];
}

export interface SearchAnswer {
  hits: SearchHit[];
  /** False while the server still reads sessions into its index. */
  complete: boolean;
}

/** How many sessions a search gives at most. */
export const MAX_HITS = 20;

export type ArchivedFilter = "without" | "only" | "with";

export const search = {
  find: (q: string, archived: ArchivedFilter) =>
    ask<SearchAnswer>("GET", `/api/search?q=${addressPart(q)}&limit=${MAX_HITS}&archived=${archived}`),
  archive: (sessionId: string, archived: boolean) =>
    ask<void>("POST", `/api/sessions/${addressPart(sessionId)}/archive`, { archived }),
  rename: (sessionId: string, title: string) =>
    ask<void>("POST", `/api/sessions/${addressPart(sessionId)}/title`, { title }),
};
