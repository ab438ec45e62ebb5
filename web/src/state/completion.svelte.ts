// What the message field offers while a command or a file is typed. Asked of the server after a short pause, and only
// what was asked last is shown.
import { completion, type Place } from "../lib/api/completion";
import { mention, pathBeingTyped } from "../lib/mentions";
import { isComplete, matching, nameBeingTyped, offered, type Command } from "../lib/slash";

export interface Choice {
  /** What replaces the typed part. */
  insert: string;
  label: string;
  detail: string;
  /** Choosing it with Enter sends the message. */
  sends: boolean;
}

const PAUSE_MS = 80;
const AGAIN_MS = 400;
const MAX_SHOWN = 50;
/** Commands are files: they are looked up again after this time. */
const FRESH_MS = 10_000;

export class Completion {
  choices: readonly Choice[] = $state.raw([]);
  at = $state(0);
  /** Characters before the cursor that a choice replaces. */
  length = 0;
  commands: readonly Command[] = $state.raw([]);

  private asked = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private loadedAt = -Infinity;
  private loadedFor = "";
  private loading: Promise<void> = Promise.resolve();

  constructor(private readonly place: () => Place) {}

  get open(): boolean {
    return this.choices.length > 0;
  }

  /** What stands before the cursor has changed. */
  update(before: string): void {
    clearTimeout(this.timer);
    this.asked++;
    const name = nameBeingTyped(before);
    if (name !== null) return void this.offerCommands(name, this.asked, before.length);
    const typed = pathBeingTyped(before);
    if (!typed) return this.close();
    const asked = this.asked;
    this.timer = setTimeout(() => void this.offerFiles(typed.path, typed.length, asked), PAUSE_MS);
  }

  close(): void {
    clearTimeout(this.timer);
    this.asked++;
    this.choices = [];
    this.at = 0;
  }

  move(by: number): void {
    this.at = (this.at + by + this.choices.length) % this.choices.length;
  }

  /** Loads the commands that can be given here; also waits for a request that is under way. */
  private load(): Promise<void> {
    const place = this.place();
    const key = "folder" in place ? `f ${place.folder}` : `s ${place.sessionId}`;
    if (key === this.loadedFor && performance.now() - this.loadedAt < FRESH_MS) return this.loading;
    if (key !== this.loadedFor) this.commands = offered("folder" in place, []);
    this.loadedFor = key;
    this.loadedAt = performance.now();
    this.loading = this.loadFor(place, key);
    return this.loading;
  }

  private async loadFor(place: Place, key: string): Promise<void> {
    try {
      const { commands } = await completion.commands(place);
      if (this.loadedFor === key) this.commands = offered("folder" in place, commands);
    } catch {
      this.loadedAt = -Infinity; // the page's own commands are there
    }
  }

  private async offerCommands(begun: string, asked: number, length: number): Promise<void> {
    const loading = this.load();
    this.show(this.found(begun), length);
    await loading;
    if (asked === this.asked) this.show(this.found(begun), length);
  }

  private found(begun: string): Choice[] {
    return matching(begun, this.commands).map((one) => ({
      insert: isComplete(one) ? `/${one.name}` : `/${one.name} `,
      label: `/${one.name} ${one.argument}`.trim(),
      detail: one.description,
      sends: isComplete(one),
    }));
  }

  private async offerFiles(prefix: string, length: number, asked: number): Promise<void> {
    try {
      const found = await completion.files(this.place(), prefix);
      if (asked !== this.asked) return;
      this.show(
        found.paths.map((path) => ({ insert: mention(path), label: path, detail: path.endsWith("/") ? "folder" : "", sends: false })),
        length,
      );
      if (!found.is_complete) this.timer = setTimeout(() => void this.offerFiles(prefix, length, asked), AGAIN_MS);
    } catch {
      if (asked === this.asked) this.close();
    }
  }

  private show(choices: Choice[], length: number): void {
    const kept = this.choices[this.at]?.label;
    this.choices = choices.slice(0, MAX_SHOWN);
    this.length = length;
    this.at = Math.max(0, this.choices.findIndex((one) => one.label === kept));
  }
}
