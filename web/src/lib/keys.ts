// All keys of the page, for the sheet and for the settings.

export interface KeyGroup {
  name: string;
  keys: readonly (readonly [combination: readonly string[], meaning: string])[];
}

export const KEY_GROUPS: readonly KeyGroup[] = [
  {
    name: "Writing",
    keys: [
      [["Enter"], "send; during a run: queue"],
      [["Ctrl", "Enter"], "steer: the agent reads it between two steps"],
      [["Shift", "Enter"], "new line"],
      [["/"], "commands, at the beginning"],
      [["@"], "attach a file of the folder"],
      [["Up"], "earlier messages, in an empty field"],
      [["Esc"], "stop the run"],
    ],
  },
  {
    name: "Approvals",
    keys: [
      [["y"], "allow once"],
      [["s"], "allow for this session"],
      [["a"], "allow always"],
      [["n"], "deny"],
      [["Shift", "n"], "deny, and tell the agent why"],
      [["Esc"], "deny and stop the run"],
      [["Alt", "y"], "allow once, also while you are writing"],
      [["Alt", "n"], "deny, also while you are writing"],
    ],
  },
  {
    name: "List of sessions",
    keys: [
      [["/"], "search in all sessions; Esc leaves the search"],
      [["j"], "go to the list, and down in it; k goes up"],
      [["Enter"], "open"],
      [["x"], "select; Shift or Ctrl and a click as well"],
      [["Shift", "F10"], "actions of a session"],
    ],
  },
  {
    name: "Everywhere else",
    keys: [
      [["c"], "new chat"],
      [["i"], "write"],
      [["m"], "pick a model"],
      [["r"], "rename the session"],
      [["o"], "open or fold all tool calls"],
      [["t"], "open or fold all reasoning"],
      [["f"], "show the files that the session changed"],
      [["v"], "show the running command large"],
      [["g"], "go to the newest message"],
      [[","], "settings"],
      [["?"], "all keys"],
    ],
  },
];
