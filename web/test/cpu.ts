const node = globalThis as unknown as { process: { cpuUsage(): { user: number; system: number } } };

/** CPU time of this process in milliseconds: unlike a clock, it does not count time spent waiting for a busy core. */
export function cpuMs(): number {
  const { user, system } = node.process.cpuUsage();
  return (user + system) / 1000;
}
