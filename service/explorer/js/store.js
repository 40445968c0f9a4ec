/** State of the page, and subscriptions to its changes. */

import { useEffect, useReducer } from '../vendor/htm-preact-3.1.1.min.js';

const listeners = new Set();
let version = 0; // number of changes

/** The state. Read it anywhere; change it only by `set`. */
export const state = {
  service: 'connecting', // or ready, down, locked
  missed: 0, // requests that a stopped service has not answered
  info: null,
  contract: null,
  methods: [],
  recent: [], // data sets
  isSetUp: true, // whether the steps are shown; they fold away once there is a picture
  pending: null, // a chosen file, before its upload
  dataset: null,
  columns: null, // values, names, labels, colors, coordinates of the data set
  preview: null,
  method: 'em',
  forms: {}, // values of each form that differ from the schema's defaults
  work: null, // work in progress: {label, done, total, stage, job, cancelling}
  problem: null,
  theme: null, // the shown theme, light or dark
  announcement: '', // read aloud by screen readers
  job: null, // id of the fit that runs, or of the shown embedding
  posterior: null,
  reference: null, // Float32Array (n, p)
  neighbors: null, // {k, data}
  draws: null, // {seed, scale, first, count, n, p, data, look}
  summary: null,
  single: null, // an embedding by a method without draws
  isAudited: false, // whether the audit of the shown posterior or embedding was asked for
  audit: null, // of the shown map: its statements, and arrays with a value for each point
  blocks: null, // the column, or the data set, that names the subject of each row
  compared: null, // names of the methods to compare; null: the usual ones
  comparison: null,
  comparisonJob: null,
  scoreList: null,
  view: 'draws',
  frame: -1, // 0 is the reference, i the draw i - 1, -1 the average of the draws
  playing: false, // or true, or once: through the draws, then to their average
  axes: [0, 1],
  turn: null, // of three dimensions: [rightward, upward] unit vectors; null shows the axes
  isTurning: true, // whether a drag turns three dimensions
  metadata: null, // further columns of the data set: {name: values}
  color: 'auto',
  shape: 'none', // of the spread: none, ellipse, density
  selection: null, // {list, mask}
  hidden: null, // classes of the legend that are not shown: {names, mask}
  hover: -1,
  lassoing: false,
  gliding: false, // whether the points move to a new frame
  dialog: null,
};

/** Change some members, and notify the subscribers. */
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

/** Subscribe to every change; return the function that unsubscribes. */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Render a component again when one of these members changes; return the state. */
export function useStore(...names) {
  const [, again] = useReducer((count) => count + 1, 0);
  const seen = version;
  useEffect(() => {
    if (version !== seen) again(); // a change between rendering and subscribing
    return subscribe((changes) => names.some((name) => name in changes) && again());
  }, []);
  return state;
}
