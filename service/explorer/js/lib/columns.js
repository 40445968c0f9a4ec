/** The columns of a table before its upload: roles, first cells, and runs of alike columns. */

/** Roles of columns: as the page calls them, and what they mean. */
export const ROLES = {
  feature: ['feature', 'its numbers are embedded'],
  labels: ['label', 'names the group of a point'],
  colors: ['color', 'a number that colors the points'],
  id: ['id', 'names the rows'],
  ignore: ['ignore', 'left out'],
  one_hot: ['one-hot', 'a feature of zeros and ones for each category'],
  'map-x': ['map x', 'horizontal coordinate of your map'],
  'map-y': ['map y', 'vertical coordinate of your map'],
};

/** Roles of the two columns of a map: they are left out of the data, and become a second data set. */
export const MAP = ['map-x', 'map-y'];

/** Roles that only one column has. */
export const SINGLE = ['labels', 'colors', ...MAP];

const MAX_HEADS = 40; // columns that are shown one by one
const MIN_RUN = 4; // alike columns that become one head

// As scanpy, R and others call coordinates.
const MAP_NAME = /^(?:x_)?(umap|densmap|pacmap|t-?sne|isomap|phate|map|embedding)[ _.-]?([12xy])$/i;
const MADE = { tsne: 't-sne', 't-sne': 't-sne', umap: 'umap', densmap: 'densmap', pacmap: 'pacmap', isomap: 'isomap' };

/** The two columns whose names are those of a map's coordinates, and the method by their name; or null. */
export function guessMap(columns) {
  const found = new Map();
  for (const { name, role } of columns) {
    const [, stem, axis] = MAP_NAME.exec(name) ?? [];
    if (stem && role === 'feature')
      found.set(stem.toLowerCase(), [...(found.get(stem.toLowerCase()) ?? []), [axis.toLowerCase(), name]]);
  }
  const [stem, pair = []] =
    [...found].find(([, names]) => ['1,2', 'x,y'].includes(names.map(([axis]) => axis).join())) ?? [];
  return stem && columns.length > 3 ? { names: pair.map(([, name]) => name), method: MADE[stem] } : null;
}

/** Whether the colors of a data set are dates, in seconds since 1970. */
export const hasDates = (dataset) => dataset.notices.some(({ code }) => code === 'date-colors');

const ISO = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(Z|[+-]\d\d:?\d\d)?)?$/;
const DOTTED = /^(\d\d?)\.(\d\d?)\.(\d{4})$/;

/** The seconds since 1970 of a date in ISO 8601 or like 31.12.2024, or NaN; without a zone it is in UTC. */
export function secondsOf(text) {
  const [, day, time = '00:00', zone = 'Z'] = ISO.exec(text.trim().replace(DOTTED, dottedToIso)) ?? [];
  return day ? Date.parse(`${day}T${time}${zone}`) / 1000 : NaN;
}

const dottedToIso = (_, day, month, year) => `${year}-${month.padStart(2, '0')}-${day.padStart(2, '0')}`;

/** Whether a table has so many columns that they are searched and grouped. */
export const isWide = (columns) => columns.length > MAX_HEADS;

/** The names of the columns that a problem refuses. */
export function refusedColumns(problem) {
  const { options = {}, bad_columns = {}, name } = problem?.details ?? {};
  return new Set([
    ...Object.values(options).flat(),
    ...Object.keys(bad_columns),
    ...(typeof name === 'string' ? [name] : []),
  ]);
}

const LISTED = 100; // columns that a preview lists from the first one; later ones only if they are no features

/**
 * The columns of a file by the answer of a preview, which names all features.
 * @param {{name: string, role: string}[]} known - by former answers, in the order of the file
 */
export function mergeColumns(known, { columns, names, n_features: count, problem }) {
  const listed = new Map(columns.map((column) => [column.name, column]));
  const merged = new Map(known.map((column) => [column.name, listed.get(column.name) ?? column]));
  const add = (column) => merged.has(column.name) || merged.set(column.name, column);
  columns.slice(0, LISTED).forEach(add);
  const encoded = columns.filter(({ role }) => role === 'one_hot').map(({ name }) => `${name}=`);
  const features =
    names ??
    numbersFrom(LISTED, columns.length ? count - columns.filter(({ role }) => role === 'feature').length : 0, listed);
  if (merged.size)
    for (const name of features) if (!encoded.some((start) => name.startsWith(start))) add({ name, role: 'feature' });
  columns.slice(LISTED).forEach(add);
  for (const name of refusedColumns(problem)) add({ name, role: '' });
  return [...merged.values()];
}

/** The numbers of so many columns without names, from a first one, except those with a role. */
function numbersFrom(first, count, listed) {
  const found = [];
  for (let at = first; found.length < count; at++) if (!listed.has(String(at))) found.push(String(at));
  return found;
}

/** The first cells of the columns by an answer of a preview: those of features, the label and ids. */
export function cellsOf({ columns, names, rows, labels, ids }) {
  const cells = new Map();
  if (!rows.length) return cells;
  const features = columns.filter(({ role }) => role === 'feature').map(({ name }) => name);
  const place = names && new Map(names.map((name, i) => [name, i]));
  (names ?? features).forEach((name, i) => cells.set(name, rows.map((row) => shorten(row[place?.get(name) ?? i]))));
  const apart = (role) => columns.filter((column) => column.role === role).map(({ name }) => name);
  if (labels) for (const name of apart('labels')) cells.set(name, labels.map(shorten));
  if (ids)
    apart('id').forEach((name, i) =>
      cells.set(
        name,
        ids.map((id) => shorten(Array.isArray(id) ? (id[i] ?? '') : id)),
      ),
    );
  return cells;
}

const shorten = (value) =>
  String(typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(5)) : value);

/**
 * The columns of each head: one, or a run of alike columns of a wide table. Names of alike columns differ in their
 * numbers,
 * unless too many heads are left.
 * @param {object[]} columns - with name, role, isGuessed, isRefused
 * @param {string} text - part of the names of the wanted columns
 * @param {Set<string>} opened - names of columns whose run is shown one by one
 */
export function headsOf(columns, text, opened) {
  const found = matching(columns, text);
  if (!isWide(found)) return found.map((column) => [column]);
  const byName = runsOf(found, true);
  const runs = isWide(byName) ? runsOf(found, false) : byName;
  return runs.flatMap((run) => (opened.has(run[0].name) ? run.map((column) => [column]) : [run]));
}

/** Runs of alike columns; few alike ones are runs of one column. */
function runsOf(columns, isByName) {
  const stem = ({ name }) => name.replaceAll(/\d+/g, '0');
  const members = ['role', 'isGuessed', 'isRefused'];
  const runs = [];
  for (const column of columns) {
    const first = runs.at(-1)?.[0];
    const isAlike =
      first &&
      members.every((member) => first[member] === column[member]) &&
      (!isByName || stem(first) === stem(column));
    if (isAlike) runs.at(-1).push(column);
    else runs.push([column]);
  }
  return runs.flatMap((run) => (run.length < MIN_RUN ? run.map((column) => [column]) : [run]));
}

/** The columns whose name contains a text. */
export const matching = (columns, text) =>
  columns.filter(({ name }) => name.toLowerCase().includes(text.trim().toLowerCase()));
