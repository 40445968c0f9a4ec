/** Start of the page: load the service's info and methods, and open the link. */

import { askJson, Refused } from '../api.js';
import { cancel } from '../jobs.js';
import { followLook, holdAddress, readLink } from './link.js';
import { set, state, subscribe } from '../store.js';
import { listDatasets } from './data.js';
import { openLinked } from './open.js';

const RETRY = 3000; // milliseconds between retries while the service is down

/** Load the service's info and methods; retry while it is down. */
export async function boot() {
  try {
    const [info, methods, schemas] = await Promise.all([
      askJson('/v1/info'),
      askJson('/v1/methods'),
      askJson('/explorer/forms.json'),
    ]);
    set({ info, methods: methods.items, schemas, service: 'ready', problem: null });
    await listDatasets();
    const link = readLink();
    if (link) await openLinked(link);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (state.service === 'down') setTimeout(boot, RETRY);
    else set({ problem: error.problem, service: state.service === 'locked' ? 'locked' : 'ready' });
  }
}

let isMoved = false; // the address has changed during the work, and is not written until the work ends

/** Open the link of the address, after Back or a pasted one; running work is cancelled first. */
function goThere() {
  isMoved = Boolean(state.work);
  holdAddress(isMoved);
  if (isMoved) cancel();
  else if (state.info) openLinked(readLink());
}

/**
 * Poll a service that went down during the work until it is back; open a link that is pasted into this tab.
 */
export function watch() {
  subscribe((changes) => {
    if (!('work' in changes) || changes.work || !state.info) return;
    if (isMoved) goThere();
  });
  followLook();
  addEventListener('hashchange', goThere);
  setInterval(async () => {
    if (state.service !== 'down' || !state.info) return;
    try {
      await askJson('/livez');
      set({ service: 'ready', problem: null });
    } catch {
      // still down: the banner shows it
    }
  }, RETRY);
}
