/** The look of the shown map in step with the state. */

import { newest } from '../lib/background.js';
import { points } from '../lib/frames.js';
import { LOOK, sourceOf } from '../lib/look.js';
import { set, state, subscribe } from '../store.js';

const ask = newest('lookOf');
/** @type {Record<string, any>} */
let known = { dataset: null }; // what the look is made of
let made = Promise.resolve();

/** Make the look anew after each change of what it is made of. */
export const watchLook = () => subscribe((changes) =>
  ['dataset', 'reference', 'single', 'comparison', ...LOOK].some((name) => name in changes) && follow());

/** Wait until the look is the one of the state. */
export const lookMade = () => made;

function follow() {
  const { dataset, reference, single, comparison } = state;
  if (!dataset || !(reference || single || comparison)) {
    known = { dataset: null };
    return set({ look: null });
  }
  const source = { dataset: dataset.id, ...sourceOf(state, points()) };
  if (Object.keys(source).every((name) => source[name] === known[name])) return undefined;
  if (known.dataset !== source.dataset) set({ look: null });
  known = source;
  made = ask(source).then((look) => look && known === source && set({ look })).catch((error) => {
    if (known === source) known = { dataset: source.dataset }; // it is asked again
    throw error;
  });
  return undefined;
}
