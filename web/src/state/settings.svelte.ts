// What the settings show: answers of the server that are loaded when a section opens, and what this browser remembers.
import { ApiError } from "../lib/api/http";

/** One answer of the server, with why it is missing. */
export class Loaded<T> {
  value: T | null = $state.raw(null);
  problem = $state("");
  busy = $state(false);

  constructor(private readonly ask: () => Promise<T>) {
    void this.load();
  }

  async load(): Promise<void> {
    await this.take(this.ask());
  }

  /** Show another answer of the same kind, such as the one to a change; whether it came. */
  async take(answer: Promise<T>): Promise<boolean> {
    this.busy = true;
    try {
      this.value = await answer;
      this.problem = "";
      return true;
    } catch (error) {
      this.problem = inWords(error);
      return false;
    } finally {
      this.busy = false;
    }
  }
}

export function inWords(error: unknown): string {
  const hint = error instanceof ApiError && error.hint ? ` ${error.hint}` : "";
  return `${(error as Error).message}${hint}`;
}

/** Instructions that are being written (null when nothing was changed), and the version of the text that was there when
 * that began. They survive a look at another section. */
export const instructions: { draft: string | null; version: string } = $state({ draft: null, version: "" });

export type Density = "comfortable" | "compact";
export type TextSize = "small" | "normal" | "large" | "larger";
export type Motion = "system" | "reduced";

const DENSITIES: readonly Density[] = ["comfortable", "compact"];
const SIZES: readonly TextSize[] = ["small", "normal", "large", "larger"];
const MOTIONS: readonly Motion[] = ["system", "reduced"];

/** How the page looks in this browser. `show` puts it where the styles see it. */
class Appearance {
  density: Density = $state(remembered("makai.density", DENSITIES, "comfortable"));
  size: TextSize = $state(remembered("makai.text-size", SIZES, "normal"));
  motion: Motion = $state(remembered("makai.motion", MOTIONS, "system"));

  show(): void {
    const { dataset } = document.documentElement;
    dataset["density"] = this.density;
    dataset["textSize"] = this.size;
    dataset["motion"] = this.motion;
  }

  set(change: { density?: Density; size?: TextSize; motion?: Motion }): void {
    Object.assign(this, change);
    localStorage.setItem("makai.density", this.density);
    localStorage.setItem("makai.text-size", this.size);
    localStorage.setItem("makai.motion", this.motion);
    this.show();
  }
}

function remembered<T extends string>(name: string, known: readonly T[], otherwise: T): T {
  const value = localStorage.getItem(name) as T | null;
  return value !== null && known.includes(value) ? value : otherwise;
}

export const appearance = new Appearance();
