/** State transitions that several actions share. */

import { Cancelled, Refused } from '../api.js';
import { set, state } from '../store.js';

/** @type {Partial<import('../store.js').State>} */
const NO_RESULTS = {
  job: null,
  posterior: null,
  reference: null,
  neighbors: null,
  draws: null,
  summary: null,
  single: null,
  audit: null,
  isAudited: false,
  frame: -1,
  playing: false,
  hover: -1,
  selection: null,
  hidden: null,
  axes: [0, 1],
  turn: null,
  shape: 'none',
};

/** Clear the results, but not the data set. */
export const clearResults = () => set(NO_RESULTS);

/**
 * Give the page to the picture: fold the set-up away, and scroll to the top, because who pressed Fit may be far down.
 */
export function fold() {
  set({ isSetUp: false });
  scrollTo({ top: 0 });
}

/** Show or hide the set-up; on a phone, where it is below the picture, scroll to it. */
export function toggleSetUp() {
  set({ isSetUp: !state.isSetUp });
  if (!state.isSetUp || !matchMedia('(max-width: 780px)').matches) return;
  requestAnimationFrame(() => document.getElementById('setup').scrollIntoView({ block: 'start' }));
}

/** End work whose result is of other data than those that are shown by now. */
export function requireData(id) {
  if (state.dataset?.id !== id) throw new Cancelled();
}

/** Run some work with a progress bar; show its problem, or announce its cancellation. */
export async function runWork(work) {
  set({ problem: null, work: { label: 'Starting', stage: '', done: 0, total: 0 } });
  try {
    await work();
  } catch (error) {
    if (error instanceof Cancelled) set({ announcement: 'Cancelled.' });
    else if (error instanceof Refused) set({ problem: error.problem });
    else throw error;
  } finally {
    const { reference, single, comparison } = state;
    set({ work: null, isSetUp: state.isSetUp || !(reference || single || comparison) }); // the next step is there
  }
}
