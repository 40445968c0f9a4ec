/** The start: what the service is, what it offers, and what was asked for in the link. */

import { askJson, Refused } from '../api.js';
import { readLink } from './link.js';
import { set, state } from '../store.js';
import { listDatasets } from './data.js';
import { openLinked } from './fit.js';

const RETRY = 3000; // milliseconds between looks at a service that is down

/** Learn what the service offers; again and again while it is down. */
export async function boot() {
  try {
    const [info, methods, contract] = await Promise.all([
      askJson('/v1/info'),
      askJson('/v1/methods'),
      askJson('/openapi.json'),
    ]);
    set({ info, methods: methods.items, contract, service: 'ready', problem: null });
    await listDatasets();
    const link = readLink();
    if (link) await openLinked(link);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (state.service === 'down') setTimeout(boot, RETRY);
    else set({ problem: error.problem, service: state.service === 'locked' ? 'locked' : 'ready' });
  }
}

/** Look whether a service that went away during the work is back. */
export function watch() {
  setInterval(async () => {
    if (state.service !== 'down' || !state.info) return;
    try {
      await askJson('/livez');
      set({ service: 'ready', problem: null });
    } catch {
      // still down: the banner says so
    }
  }, RETRY);
}
