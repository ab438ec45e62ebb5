/**
 * The types of undo, redo and diff: file changes that tools of a session made.
 */

/** A file before and after; a new file has no `old_text`, and an empty `new_text` may be a removed one. */
export interface FileChange {
  path: string;
  old_text?: string;
  new_text: string;
}

export interface RestoreOptions {
  /** How many messages with file changes, from the last one back; 1 when it is not given. */
  count?: number;
  /** The event of a message: everything since then, in place of `count`. */
  to?: number;
  /** Only these files, absolute or below the session's folder; the others stay as they are. */
  paths?: string[];
  /** Of a preview: nothing is done when the plan is another one by now. */
  plan_id?: string;
  /** Only say what would be done. */
  preview?: boolean;
}

/** What becomes of one file. */
export interface FileRestore {
  path: string;
  kind: "create" | "change" | "remove" | "keep" | string;
  /** Lines. */
  added?: number;
  removed?: number;
  /** Why it cannot be restored; then nothing is. */
  refusal?: string;
}

/** What was undone or redone, or with `restored` false what would be. */
export interface AgentRestoreResult {
  restored: boolean;
  direction: "undo" | "redo";
  /** The event of the message whose changes, and those after it, are undone. */
  message: number;
  /** The beginning of the message. */
  text: string;
  files: FileRestore[];
  /** What is not undone, such as the changes of commands. */
  notes?: string[];
  /** Given with a later call, exactly this is done. */
  plan_id: string;
}

export interface MakaiUndoApi {
  /** Put files back as they were before the last messages in which tools changed any: all of them or none. */
  undo(session_id: string, options?: RestoreOptions): Promise<AgentRestoreResult>;
  /** Take back an `undo`. */
  redo(session_id: string, options?: RestoreOptions): Promise<AgentRestoreResult>;
  /** The files that tools of a session changed, each from before its first change to after its last. */
  diff(session_id: string): Promise<FileChange[]>;
}
