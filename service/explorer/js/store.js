/** State of the page, and subscriptions to its changes. */

import { useEffect, useReducer } from '../vendor/htm-preact-3.1.1.min.js';

const listeners = new Set();
let version = 0; // number of changes

/**
 * @typedef {import('contract').components['schemas']} Schemas - types of the service's answers, from the contract
 * @typedef {Omit<Schemas['MethodOut'], 'parameters'> & {parameters: Record<string, any>}} Method - parameters: a schema
 * @typedef {Omit<Schemas['PosteriorOut'], 'spec' | 'diagnostics'> &
 *   {spec: Record<string, any>, diagnostics: Record<string, any>}} Posterior
 * @typedef {{shape: number[], data: any}} NpyArray
 * @typedef {Omit<Schemas['AuditOut'], 'arrays'> & {arrays: Record<string, Float32Array>}} Audit - with values by row
 * @typedef {{data: Float32Array, p: number}} Places - coordinates of a map: p for each row
 * @typedef {{kind: string, title: string, small?: string, ends?: string[], palette?: string[],
 *   entries?: {name: string, count: number, color: string, index: number, isRest?: boolean}[]}} Legend
 * @typedef {{name: string, index: Uint16Array, palette: string[], level?: Uint8Array, shapes?: number[],
 *   legend: Legend}} Look - colors: an index of the palette, and a level of `SIZES`, for each row
 * @typedef {{title: string, detail: string, remedy: string, details: Record<string, any>, type?: string,
 *   status?: number, detail_parts?: Parts, remedy_parts?: Parts}} Problem
 * @typedef {Schemas['ProblemOut']['detail_parts']} Parts - of a text: texts, options and calls
 * @typedef {{label: string, stage: string, done: number, total: number, unit?: string, job?: string, status?: string,
 *   cancelling?: boolean}} Work - in progress
 * @typedef {{file: File, head: File | null, delimiter: string, sheet: string, missing: string,
 *   columns: Schemas['ColumnOut'][], first: Map<string, string>, roles: Map<string, string>,
 *   cells: Map<string, string[]>, whole: Map<string, string[]>, shown: Schemas['DatasetPreviewOut'] | null,
 *   guessed: {names: string[], method?: string} | null}} Pending - a chosen file before its upload
 * @typedef {{names: string[] | null, values: Float32Array | null, labels?: string[] | null,
 *   colors?: Float64Array | null, coordinates?: Float32Array | null, ids?: string[] | null}} Columns
 * @typedef {{seed: number, scale: number, isAuto: boolean, count: number, n: number, p: number,
 *   data: Float32Array, notes: string[]}} Draws - data: (count, n, p)
 * @typedef {Places & {title: string, label?: string, path?: string | null, isGiven?: boolean, isExample?: boolean,
 *   body: {dataset: string, coordinates?: string, method?: string, standardize?: string,
 *     parameters?: Record<string, any>},
 *   result: Record<string, any>}} Single - a map that has no draws
 * @typedef {{rows: Schemas['ComparedOut'][], places: Record<string, Places>, request: Record<string, any>,
 *   best: Schemas['BestOut'] | null, asks: string | null, isDone: boolean, sentences: string[],
 *   audits: Record<string, Audit>}} Comparison
 */

/**
 * @typedef {object} State
 * @property {'connecting' | 'ready' | 'down' | 'locked'} service
 * @property {number} missed - requests that a stopped service has not answered
 * @property {Schemas['InfoOut'] | null} info
 * @property {Record<string, any> | null} schemas - of the bodies that have a form: DrawsIn and SyntheticIn
 * @property {Method[]} methods
 * @property {Schemas['DatasetOut'][]} recent
 * @property {boolean} isSetUp - whether the steps are shown; they fold away once there is a picture
 * @property {Pending | null} pending
 * @property {Schemas['DatasetOut'] | null} dataset
 * @property {Columns | null} columns - of the data set
 * @property {Schemas['DatasetValuesOut'] | null} preview
 * @property {string} method
 * @property {Record<string, Record<string, any>>} forms - values of each form that differ from the schema's defaults
 * @property {Work | null} work
 * @property {Problem | null} problem
 * @property {'light' | 'dark' | null} theme - as it is shown
 * @property {string} announcement - read aloud by screen readers
 * @property {string | null} job - id of the fit that runs, or of the shown embedding
 * @property {Posterior | null} posterior
 * @property {Float32Array | null} reference - (n, p)
 * @property {{k: number, data: BigInt64Array} | null} neighbors - (n, k)
 * @property {Draws | null} draws
 * @property {Record<string, any> | null} summary - arrays by name, and the count of draws
 * @property {Single | null} single
 * @property {boolean} isAudited - whether the audit of the shown posterior or embedding was asked for
 * @property {Audit | null} audit - of the shown map
 * @property {string | null} blocks - the column, or the data set, that names the subject of each row
 * @property {string[] | null} compared - names of the methods to compare; null: the usual ones
 * @property {Comparison | null} comparison
 * @property {string | null} comparisonJob
 * @property {Schemas['ScoreOut'][] | null} scoreList
 * @property {'draws' | 'grid' | 'compare'} view
 * @property {number} frame - 0 is the reference, i the draw i - 1, -1 the average of the draws
 * @property {boolean | 'once'} playing - once: through the draws, then to their average
 * @property {number[]} axes
 * @property {number[][] | null} turn - of three dimensions: rightward, upward unit vectors; null shows the axes
 * @property {boolean} isTurning - whether a drag turns three dimensions
 * @property {Record<string, string[]> | null} metadata - further columns of the data set
 * @property {string} color
 * @property {string} content - what the label of a row has beside its name
 * @property {Look | null} look - of the shown map, or null until the worker has made it
 * @property {number} traced - how often the worker has traced contours
 * @property {'none' | 'ellipse' | 'density'} shape - of the spread
 * @property {{list: Int32Array, mask: Uint8Array} | null} selection
 * @property {Record<string, (number | string)[]> | null} filters - by column: its words, or its first bin and the one
 *   after the last
 * @property {{mask: Uint8Array, count: number} | null} passing - the rows that pass the filters
 * @property {{names: Set<string>, mask: Uint8Array} | null} hidden - classes of the legend that are not shown
 * @property {number} hover - the row, or -1
 * @property {boolean} lassoing
 * @property {boolean} gliding - whether the points move to a new frame
 * @property {string | null} dialog
 */

/** @type {State} The state. Read it anywhere; change it only by `set`. */
export const state = {
  service: 'connecting',
  missed: 0,
  info: null,
  schemas: null,
  methods: [],
  recent: [],
  isSetUp: true,
  pending: null,
  dataset: null,
  columns: null,
  preview: null,
  method: 'em',
  forms: {},
  work: null,
  problem: null,
  theme: null,
  announcement: '',
  job: null,
  posterior: null,
  reference: null,
  neighbors: null,
  draws: null,
  summary: null,
  single: null,
  isAudited: false,
  audit: null,
  blocks: null,
  compared: null,
  comparison: null,
  comparisonJob: null,
  scoreList: null,
  view: 'draws',
  frame: -1,
  playing: false,
  axes: [0, 1],
  turn: null,
  isTurning: true,
  metadata: null,
  color: 'auto',
  content: 'auto',
  look: null,
  traced: 0,
  shape: 'none',
  selection: null,
  filters: null,
  passing: null,
  hidden: null,
  hover: -1,
  lassoing: false,
  gliding: false,
  dialog: null,
};

/**
 * Change some members, and notify the subscribers.
 * @param {Partial<State>} changes
 */
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

/**
 * Subscribe to every change; return the function that unsubscribes.
 * @param {(changes: Partial<State>) => void} listener
 */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * Render a component again when one of these members changes; return the state.
 * @param {(keyof State)[]} names
 */
export function useStore(...names) {
  const [, again] = useReducer((count) => count + 1, 0);
  const seen = version;
  useEffect(() => {
    if (version !== seen) again(); // a change between rendering and subscribing
    return subscribe((changes) => names.some((name) => name in changes) && again());
  }, []);
  return state;
}
