/** One state for the whole page, and those who want to know of its changes. */

import { useEffect, useReducer } from '../vendor/htm-preact-3.1.1.min.js';

const listeners = new Set();
let version = 0; // how often something changed

/** The state. Read it anywhere; change it by `set` alone. */
export const state = {
  service: 'connecting', // or ready, down, locked
  info: null,
  contract: null,
  methods: [],
  recent: [],
  pending: null, // a file that was chosen and is not sent yet
  dataset: null,
  columns: null, // values, names, labels, color, coordinates of the data set
  preview: null,
  method: 'em',
  forms: {}, // values of each form that differ from the schema's defaults
  work: null, // what is being done: {label, done, total, stage, eta, job, cancelling}
  problem: null,
  theme: null, // changes with what is shown: light or dark
  told: '', // for those who hear the page
  posterior: null,
  reference: null, // Float32Array (n, p)
  neighbors: null, // {k, data}
  draws: null, // {seed, scale, first, count, n, p, data, look}
  summary: null,
  scales: null,
  single: null, // an embedding by a method that has no draws
  compared: null, // names of the methods to compare; null: the usual ones
  comparison: null,
  scoreList: null,
  estimate: null, // of the chosen method, as the service told it
  view: 'draws',
  frame: 0, // 0 is the reference, i the draw i - 1, -1 the consensus
  playing: false,
  speed: 1,
  axes: [0, 1],
  color: 'auto',
  shape: 'none', // of the spread: none, halo, ellipse
  trails: false,
  selection: null, // {list, mask}
  hover: -1,
  lassoing: false,
  gliding: false, // whether a new frame is moved to, rather than cut to
  dialog: null,
};

/** Change some members, and tell everyone. */
export function set(changes) {
  let changed = false;
  for (const [name, value] of Object.entries(changes)) {
    if (state[name] !== value) {
      state[name] = value;
      changed = true;
    }
  }
  if (!changed) return;
  version++;
  for (const listener of [...listeners]) listener(changes);
}

/** Hear of every change; returns how to stop. */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Draw a component again when one of these members changes; returns the state. */
export function useStore(...names) {
  const [, again] = useReducer((count) => count + 1, 0);
  const seen = version;
  useEffect(() => {
    if (version !== seen) again(); // something changed between drawing and listening
    return subscribe((changes) => names.some((name) => name in changes) && again());
  }, []);
  return state;
}
