// The keys that answer an approval, the same as in the terminal (src/makai/cli/approval_keys.py), and when a key counts.
//
// A question may appear while the user types. A letter is an answer only when the question was readable for a moment,
// nothing was typed shortly before, the letter is not an auto-repeat, and no other key follows at once: "also look at
// that" begins with an "a" and is no permission.
import type { GrantScope, OfferedGrant } from "./protocol";

export type Answer = GrantScope | "deny";

export const ANSWER_KEYS: Record<string, Answer> = {
  y: "once",
  s: "session",
  a: "always",
  n: "deny",
};

/** How long a question must have been on the screen before a key answers it. */
export const READ_MS = 500;
/** How long a key must stay alone to be an answer; typing is faster. */
export const ALONE_MS = 300;
/** Text that was typed this recently means that the user is still typing. */
export const TYPING_MS = 1000;

/** The answer that a key gives to a question; undefined when the question does not offer it. */
export function answerOf(key: string, width: OfferedGrant | undefined, agentWider = ""): Answer | undefined {
  const answer = ANSWER_KEYS[key];
  if (answer === "session") return width || agentWider ? answer : undefined;
  return answer === "always" && (!width || width.session_only) ? undefined : answer;
}
