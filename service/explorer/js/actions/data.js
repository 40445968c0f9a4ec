/** Data sets: list, upload, synthetic data, and their columns. */

import { ask, askJson, NPZ, Refused } from '../api.js';
import { compute } from '../lib/background.js';
import { cellsOf, guessMap, hasDates, MAP, mergeColumns, refusedColumns, ROLES, SINGLE } from '../lib/columns.js';
import { chosenMethod, hindrance, methodNamed } from '../methods.js';
import { set, state } from '../store.js';
import { auditCoordinates } from './audit.js';
import { fit } from './fit.js';
import { writeLink } from './link.js';
import { isText, keepLeftOut, keptColumns, MAX_KEPT } from './metadata.js';
import { clearResults, runWork } from './state.js';

const ENDINGS = /\.(csv|tsv|txt|xlsx|npy|npz|parquet|feather|arrow|arrows|json)(\.gz)?$/i;
const MAX_VALUES = 16e6; // 64 MB as 32-bit floats: the rest of a tab's memory is for the draws
const PREVIEW_ROWS = 4;
const HEAD = 2 ** 20; // bytes of a large text that are sent for its preview
const LARGE = 4 * HEAD;
const MAX_IDS = 10; // columns of ids that a preview shows
const MAX_FIELD = 2 ** 14; // characters of the names in a field of a form

/** Return whether the service reads a file of this name. */
export const isTable = (name) => ENDINGS.test(name);

/** Load the list of data sets. */
export const listDatasets = async () => set({ recent: (await askJson('/v1/datasets?limit=20')).items });

/**
 * The whole lines at the head of a large text in one byte a sign or UTF-8; null for another file, which is sent as a
 * whole.
 */
async function headOf(file) {
  if (file.size <= LARGE || !isText(file)) return null;
  const bytes = new Uint8Array(await file.slice(0, HEAD).arrayBuffer());
  const end = bytes.lastIndexOf(10);
  return end < 0 || bytes.includes(0) ? null : new File([bytes.subarray(0, end + 1)], file.name);
}

/** A pending file that was not read; `first` has the roles as the service decided them, `roles` the chosen ones. */
const UNREAD = { columns: [], first: new Map(), roles: new Map(), cells: new Map(), whole: new Map(), shown: null,
  guessed: null };

/** Preview a chosen file; it is uploaded once its columns are checked. */
export async function takeFile(file) {
  if (!file.size) return set({ problem: { type: 'empty-body', title: 'This file is empty',
    detail: `${file.name} has no bytes.`,
    remedy: 'Save the table again with one row per point, or choose another file.', details: {} } });
  clearResults();
  set({ problem: null, dataset: null, preview: null, columns: null, metadata: null, comparison: null,
    comparisonJob: null, view: 'draws', isSetUp: true });
  set({ pending: { ...UNREAD, file, head: await headOf(file), delimiter: '', sheet: '', missing: '' } });
  return previewPending();
}

/** The role of a column of a pending file: the chosen one, else the role by the service. */
export const roleOf = ({ name, role }, { roles }) => roles.get(name) ?? role;

/**
 * The roles of some columns by their names.
 * @returns {[string, string][]}
 */
const rolesOf = (columns) => columns.map(({ name, role }) => [name, role]);

/** Whether the service has listed the columns, and not only refused some. */
const isListed = ({ columns }) => columns.some(({ role }) => role);

/**
 * The roles to send, and whether they are all. Without a chosen role the service decides. Once one is chosen, all are
 * sent as the page shows them, so that nothing else changes; the roles of a head are sent with its file.
 */
function rolesToSend(pending, isShown = false) {
  const { columns, roles } = pending;
  const isFixed = isListed(pending) && (isShown || roles.size > 0);
  const sent = isFixed ? columns : columns.filter(({ name }) => roles.has(name));
  // Members of npz are no columns.
  const given = columns.length ? sent.map((column) => [column.name, roleOf(column, pending)]) : [...roles];
  return { given, isFixed };
}

/** Send a file with the roles of its columns. */
function send(path, file, { delimiter, sheet, missing }, { given, isFixed }) {
  const form = new FormData();
  for (const [name, value] of Object.entries({ delimiter, sheet, missing })) if (value) form.append(name, value);
  const names = {};
  for (const [name, role] of given)
    if (role && role !== 'feature') (names[MAP.includes(role) ? 'ignore' : role] ??= []).push(name);
  for (const [role, found] of Object.entries(names))
    for (const text of fieldsOf(found.filter((name) => name.trim() === name))) form.append(role, text);
  if (isFixed) form.append('features', '*');
  form.append('file', file, file.name);
  const blank = Object.entries(names).flatMap(([role, found]) =>
    found.filter((name) => name.trim() !== name).map((name) => [role, name]),
  );
  // A form's fields lose the blanks around them.
  const query = blank.length ? `${path.includes('?') ? '&' : '?'}${new URLSearchParams(blank)}` : '';
  return askJson(`${path}${query}`, { method: 'POST', body: form, onSent: file.size > LARGE ? showSent : undefined });
}

/** Show how much of a file was sent; once it is there, the service reads it for an unknown time. */
function showSent(share) {
  if (state.work)
    set({ work: { ...state.work, done: Math.floor(100 * share), total: share < 1 ? 100 : 0, unit: '%' } });
}

/** Names in as few fields as possible, with commas; a name with a comma has its own field. */
function fieldsOf(names) {
  const fields = [''];
  for (const name of names) {
    if (name.includes(',')) fields.unshift(name);
    else if (fields.at(-1).length > MAX_FIELD) fields.push(name);
    else fields[fields.length - 1] += `${fields.at(-1) && ','}${name}`;
  }
  return fields.filter(Boolean);
}

/** Give columns a role; a role that only one column has leaves its former column. */
export async function giveRole(names, role) {
  const { pending } = state;
  const roles = new Map([...pending.roles, ...names.map((name) => [name, role])]);
  const former = SINGLE.includes(role)
    ? pending.columns.filter((column) => roleOf(column, pending) === role && !names.includes(column.name))
    : [];
  for (const { name } of former)
    roles.set(name, ['feature', 'id'].includes(pending.first.get(name)) ? pending.first.get(name) : 'ignore');
  const said = former.map(({ name }) => ` ${name}: ${ROLES[roles.get(name)][0]}.`).join('');
  set({ announcement: `${names.length > 1 ? `${names.length} columns` : names[0]}: ${ROLES[role][0]}.${said}` });
  await previewPending({ roles });
}

/** Read the pending file again, with another separator or sheet, or after a failure. */
export const readAgain = (changes = {}) => previewPending({ ...UNREAD, ...changes });

/** Read the pending file again, without its missing values. */
export const chooseMissing = (missing) => previewPending({ missing, cells: new Map(), whole: new Map() });

let previews = 0; // only the last one counts
let reading = null; // of the columns that are no features

const askPreview = (file, pending, roles, rows) =>
  send(`/v1/datasets/preview${rows ? `?rows=${rows}` : ''}`, file, pending, roles);

/** Ask the service what it would fit of the pending file. Nothing is stored. */
async function previewPending(changes = {}) {
  const pending = { ...state.pending, ...changes };
  const turn = ++previews;
  const isLast = () => turn === previews && state.pending?.file === pending.file;
  const leave = () => turn === previews && set({ work: null }); // another data set was chosen
  const sent = pending.head ?? pending.file;
  set({ pending, problem: null, work: { label: `Reading ${pending.file.name}`, stage: '', done: 0, total: 0 } });
  try {
    const shown = await askPreview(sent, pending, rolesToSend(pending));
    if (!isLast()) return leave();
    if (shown.problem && pending.head && !shown.problem.details?.options) {
      return previewPending({ head: null }); // the head may end within a quoted line break
    }
    const columns = mergeColumns(pending.columns, shown);
    const first = new Map([...rolesOf(columns), ...pending.first]);
    const guessed = !pending.roles.size && !pending.guessed && guessMap(columns);
    if (guessed)
      return previewPending({
        columns,
        first,
        guessed,
        roles: new Map(guessed.names.map((name, i) => [name, MAP[i]])),
      });
    set({
      work: null,
      problem: shown.problem,
      pending: { ...pending, shown, columns, first, cells: new Map([...cellsOf(shown), ...pending.cells]) },
    });
  } catch (error) {
    if (!isLast()) return leave();
    set({ work: null });
    if (!(error instanceof Refused)) throw error;
    set({ problem: error.problem });
    return;
  }
  if (sent.size > (isText(sent) ? LARGE : MAX_KEPT)) return;
  reading = readOthers(sent, isLast);
  await reading;
}

/** Read the columns that are no features. */
async function readOthers(sent, isLast) {
  for (let round = 0; round < 2; round++) { // the first one may find columns, the second one their cells
    const found = await readApart(state.pending, sent).catch((error) => {
      if (!(error instanceof Refused)) throw error;
    });
    if (!found || !isLast()) return;
    set({ pending: { ...state.pending, ...found } });
  }
}

/**
 * The cells of refused columns and of those that are no features, as they are in the file: the columns are read as ids.
 * A refusal that lists no columns gets them so, too. Of a file that is no text, the page keeps them whole: left-out
 * ones color the points.
 */
async function readApart(pending, sent) {
  const { columns, cells, shown, whole } = pending;
  const isWhole = !isText(sent) && !shown.problem;
  const refused = refusedColumns(shown.problem);
  const apart = columns.filter((column) => refused.has(column.name) || roleOf(column, pending) !== 'feature');
  const names = apart.map(({ name }) => name).filter((name) => !(isWhole ? whole : cells).has(name)).slice(0, MAX_IDS);
  if (!names.length) return null;
  const isFixed = isListed(pending);
  const others = isFixed ? columns.filter(({ name }) => !names.includes(name)) : [];
  // One is enough.
  const kept = isWhole && !pending.missing && others.find((column) => roleOf(column, pending) === 'feature');
  const given = [
    ...others.map((column) => [column.name, kept && column !== kept ? 'ignore' : roleOf(column, pending)]),
    ...names.map((name) => [name, 'id']),
  ];
  const missing = pending.missing || (shown.problem ? 'median' : '');
  const answer = await askPreview(sent, { ...pending, missing }, { given, isFixed }, isWhole ? shown.n : undefined);
  if (answer.problem) return null;
  const read = cellsOf(answer);
  const firsts = [...read].map(([name, values]) => [name, isWhole ? values.slice(0, shown.rows.length) : values]);
  const isComplete = isWhole && answer.rows.length === shown.n; // an answer has at most 4 MiB
  const found = { cells: new Map([...firsts, ...cells]), whole: isComplete ? new Map([...whole, ...read]) : whole };
  if (isFixed) return found;
  const listed = mergeColumns([], answer).map(({ name, role }) => ({
    name,
    role: names.includes(name) ? 'feature' : role,
  }));
  return { ...found, columns: listed, first: new Map(rolesOf(listed)) };
}

/** Upload the pending file, as its preview shows it. */
export async function uploadPending() {
  const { pending } = state;
  const map = mapOf(pending);
  const isAtOnce = isMadeAtOnce(); // as the button said
  const isMade = await createDataset(async () => {
    const dataset = await send('/v1/datasets', pending.file, pending, rolesToSend(pending, pending.head !== null));
    await reading;
    await keepLeftOut(pending.file, dataset, state.pending?.whole);
    return nameDataset(dataset, pending.file.name);
  }, `Sending ${pending.file.name}`);
  if (!isMade) return;
  const guess = map && map.join() === pending.guessed?.names.join() ? pending.guessed.method : undefined;
  if (map) await auditMap(pending.file, map, guess);
  else if (isAtOnce) await fit();
}

/** Whether a table becomes a map at once: somebody has chosen a method that makes one map, before the table. */
export const isMadeAtOnce = () => chosenMethod()?.makes === 'embedding' && !hindrance(chosenMethod());

/** The two columns of the map in a pending file, or null. */
export function mapOf({ roles }) {
  const names = MAP.map((role) => [...roles.keys()].find((name) => roles.get(name) === role));
  return names.every(Boolean) ? names : null;
}

/** Audit the coordinates in a file, or in two of its columns, beside the chosen data set. */
export async function auditMap(file, columns = [], method = undefined) {
  await runWork(async () => {
    const form = new FormData();
    for (const name of columns) form.append('features', name);
    form.append('file', file, file.name);
    const { available = true } = methodNamed(method) ?? { available: false };
    await auditCoordinates((await askJson('/v1/datasets', { method: 'POST', body: form })).id, available && method);
  });
}

/** Create a synthetic data set. */
export async function synthesise(values) {
  await createDataset(
    () => askJson('/v1/datasets/synthetic', { method: 'POST', body: values }),
    `Generating ${values.name.replaceAll('_', ' ')}`,
  );
}

/** Choose an existing data set; `blocks` names the subjects of its rows. */
export async function choose(dataset, blocks = null) {
  clearResults();
  set({ blocks, dataset, pending: null, columns: null, preview: null, problem: null,
    metadata: keptColumns(dataset) });
  set({ color: 'auto', content: 'auto', selection: null, filters: null, comparison: null, comparisonJob: null,
    isSetUp: true,
    view: state.view === 'compare' ? 'compare' : 'draws' });
  try {
    await Promise.all([loadPreview(dataset), loadColumns(dataset)]);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    set({ problem: error.problem });
  }
}

/** Name a data set, for example after its file, unless it has a name; the name is not part of its content. */
export async function nameDataset(dataset, name) {
  if (dataset.name) return dataset;
  const body = new Blob([JSON.stringify({ name })]);
  const type = 'application/merge-patch+json';
  const answer = await ask(`/v1/datasets/${dataset.id}`, { method: 'PATCH', body, type });
  return { ...(await answer.json()), notices: dataset.notices };
}

/** Create a data set, then choose it; return whether it exists now. */
export async function createDataset(make, label) {
  set({ work: { label, stage: '', done: 0, total: 0 }, problem: null });
  try {
    const dataset = await make();
    set({ work: null, announcement: `Data set with ${dataset.n} rows is ready.` });
    await choose(dataset);
    writeLink();
    await listDatasets();
    return true;
  } catch (error) {
    set({ work: null });
    if (!(error instanceof Refused)) throw error;
    set({ problem: error.problem });
    return false;
  }
}

/** Load the first rows. */
async function loadPreview(dataset) {
  const rows = Math.min(PREVIEW_ROWS, dataset.n);
  const preview = await askJson(`/v1/datasets/${dataset.id}/data?points=0:${rows}`);
  if (state.dataset === dataset) set({ preview });
}

/** Load all columns, for colors and rows; the values only if a tab can hold them. */
async function loadColumns(dataset) {
  const hasMore = dataset.has_labels || dataset.has_colors || dataset.has_coordinates || dataset.has_ids;
  if (dataset.n * dataset.n_features > MAX_VALUES && !hasMore) {
    set({ columns: { names: dataset.names, values: null } });
    return;
  }
  // Seconds need more than 32 bits.
  const float32 = dataset.n * dataset.n_features > MAX_VALUES || hasDates(dataset) ? '' : '?dtype=float32';
  const answer = await ask(`/v1/datasets/${dataset.id}/data${float32}`, { accept: NPZ });
  const buffer = await answer.arrayBuffer();
  const found = await compute('columnsIn', buffer, [buffer]);
  if (state.dataset === dataset) set({ columns: { names: dataset.names, ...found } });
}
