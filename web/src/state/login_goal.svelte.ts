// Why the login dialog was opened: which provider to log in to at once, and the model that was wanted.
class LoginGoal {
  provider = $state("");
  modelRef = "";

  set(provider: string, modelRef: string): void {
    this.provider = provider;
    this.modelRef = modelRef;
  }

  /** The goal, once: the next time the dialog is opened it has none. */
  take(): { provider: string; modelRef: string } {
    const goal = { provider: this.provider, modelRef: this.modelRef };
    this.set("", "");
    return goal;
  }
}

export const loginGoal = new LoginGoal();
