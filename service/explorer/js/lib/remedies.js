/** Remedies of problems and notes, each as one step. */

import { ROLES } from './columns.js';
import { number } from './html.js';
import { labelOf } from './titles.js';

const WORDS = { n_neighbors: 'neighbors', n_components: 'dimensions' };

/**
 * Return the steps that a problem of the service allows.
 * @param {object} problem - problem+json: type, details
 * @param {object} spec - the specification of the request
 * @param {object} settings - the schemas of the method's settings by name
 * @returns {{label: string, values: object}[]} values of the method's form
 */
export function stepsOf(problem, spec = {}, settings = {}) {
  const { details = {} } = problem;
  const code = (problem.type ?? '').split(':').pop();
  const steps = [];
  if (details.smallest_connecting_k) {
    const k = details.smallest_connecting_k;
    steps.push({ label: `Use the smallest k that connects: ${k}`, values: { n_neighbors: k } });
  }
  if (details.sizes && spec.disconnected === 'error' && settings.disconnected?.default === 'bridge') {
    steps.push({ label: 'Bridge the pieces', values: { disconnected: 'bridge' } });
  }
  if (details.n_points > 3 && details.n_neighbors >= details.n_points) {
    const k = Math.min(10, details.n_points - 1);
    steps.push({ label: `Use ${k} neighbors`, values: { n_neighbors: k } });
  }
  if (code === 'over-the-limit' && details.allowed) {
    const name = Object.keys(WORDS).find((one) => problem.detail_parts?.some((part) => part.name === one));
    if (name)
      steps.push({ label: `Use ${number(details.allowed)} ${WORDS[name]}`, values: { [name]: details.allowed } });
  }
  return steps.filter(({ values }) => Object.entries(values).some(([name, value]) => spec[name] !== value));
}

/** What becomes of missing values, as the page calls it. */
const MISSING = { drop: 'Leave these rows out', median: 'Fill in the medians' };

const role = (name) => (values) => [values].flat().map((value) => `“${value}” as “${ROLES[name][0]}”`).join(', ');

/** The options and calls that texts of the service name, in the words of the page. */
const WAYS = {
  labels: role('labels'),
  colors: role('colors'),
  features: ([name]) => (name === '*' ? 'the role “feature” in its head' : role('feature')([name])),
  id: (names) => (names ? role('id')(names) : '“id”'),
  ignore: role('ignore'),
  one_hot: role('one_hot'),
  missing: (value) => `“${MISSING[value]}”`,
  header: (value) =>
    value === 'present' ? 'a file with words alone in the first row' : 'a file with a row of names above it',
  delimiter: (value) => `the separator “${value}”`,
  decimal: (value) => `a decimal ${value}`,
  charset: (value) => `the encoding ${value} over HTTP`,
  sheet: (name) => `the sheet “${name}”`,
  force: () => 'a request over HTTP',
  feature: (at) => `column ${at + 1}`,
  upload: () => '“Choose a file”',
  fit: () => '“Fit and draw”',
  embed: () => '“Embed”',
  'delete-posterior': () => 'over HTTP',
  'delete-embedding': () => 'over HTTP',
  'cancel-job': () => '“Cancel”',
  'delete-results': () => 'over HTTP',
};

/** A setting as the form of the method calls it. */
const setting = (name, value) => `“${labelOf(name)}${value === null ? '' : `: ${value}`}”`;

/** A text of the service in the words of the page: `parts` are texts, and options and calls as {name, value}. */
export const inWords = (parts) =>
  parts
    .map((part) =>
      typeof part === 'string' ? part : (WAYS[part.name]?.(part.value) ?? setting(part.name, part.value)),
    )
    .join('');

/** The values of an option that a text names. */
export const valuesOf = (option, parts = []) => parts.filter(({ name }) => name === option).map(({ value }) => value);

/** The ways out of missing values that a problem names. */
export const waysOf = ({ remedy_parts: parts = [] }) => valuesOf('missing', parts).map((way) => [way, MISSING[way]]);

const useNeighbors = (k) => ({ label: `Use ${k} neighbors`, values: { n_neighbors: k } });
const useDimensions = (p) => ({ label: `Use ${p} dimensions`, values: { n_components: p } });
const useConstrained = () => ({ label: 'Use the constrained variant', values: { variant: 'constrained' } });

/** Notes of the fit in plain words, if a step helps; other notes keep the service's sentence. */
const PLAIN = {
  'small-gap': ({ p }) => [
    'The last dimension may change from draw to draw',
    'One more dimension is nearly as strong as the last one of the map, so that the map may show either. With one ' +
      'more dimension both are kept.',
    useDimensions(p + 1),
  ],
  'closed-classes': ({ k }) => [
    'The data fall into groups that are no neighbors of each other',
    'Some dimensions of the map only tell these groups apart. More neighbors join them.',
    useNeighbors(k + 4),
  ],
  'flat-neighborhoods': ({ k }) => [
    'Some neighborhoods are flat',
    'The nearest points of some rows lie on a line, or are copies of each other. More neighbors span more directions.',
    useNeighbors(k + 4),
  ],
  'more-components-than-neighbors': ({ p }) => [
    'Too few neighbors for so many dimensions',
    'A neighborhood cannot show more dimensions than it has points.',
    useNeighbors(p + 4),
  ],
  'negative-variances': () => [
    'The published equations give impossible values here',
    'Some variances come out below zero, and their absolute values are used. The constrained variant avoids this.',
    useConstrained(),
  ],
  'not-converged': ({ iterations: [name, count] }) => [
    'The fit stopped before it converged',
    'More iterations may change the map.',
    name && { label: `Allow ${number(2 * count)} iterations`, values: { [name]: 2 * count } },
  ],
  'unequal-feature-scales': () => [
    'One column outweighs the others',
    'Columns with large numbers alone decide which points are near. Bring the columns to one scale unless they ' +
      'share a unit.',
    { label: 'Standardize the columns', values: { standardize: 'zscore' } },
  ],
  'more-components-than-features': ({ p }) => [
    'More dimensions than columns',
    'The further dimensions are functions of the first ones, and show nothing new.',
    useDimensions(p - 1),
  ],
  bridged: ({ k }) => [
    'Separate pieces were joined by bridges',
    'The distance between those pieces on the map means little. More neighbors may join them without bridges.',
    useNeighbors(k + 4),
  ],
  landmarks: () => [
    'The map was fitted to some of the rows',
    'The other rows are placed beside their nearest fitted ones. With all rows each draw would take more than a ' +
      'second. Compare spreads within this picture only.',
    { label: 'Fit all rows', values: { landmarks: 'all' } },
  ],
  'zero-covariance': () => [
    'Every draw may be the same',
    'With so many columns the published equations leave nothing open, so there is no spread to see.',
    useConstrained(),
  ],
  'linear-projection': () => [
    'This map is a linear projection of the table',
    'With so few columns the published equations only rotate the data, and do not unfold them.',
    useConstrained(),
  ],
  'scale-saturated': ({ k }) => [
    'The scale of the draws is a guess',
    'The spread of the draws hardly depends on the scale, so none can be identified. Compare spreads within this ' +
      'map only. More neighbors, or fewer dimensions, can help.',
    useNeighbors(k + 4),
  ],
  'scale-not-matched': ({ k }) => [
    'The scale of the draws does not match the data',
    'No scale that was tried makes draws spread as halves of the data do. Compare spreads within this map only.',
    useNeighbors(k + 4),
  ],
  'disconnected-graph': ({ k }) => [
    'The data fall into separate pieces',
    'No chain of neighbors leads from one piece to the next, so the distances between them mean nothing. More ' +
      'neighbors may join them.',
    useNeighbors(k + 4),
  ],
  'near-copies': () => [
    'Rows are copies of each other',
    'Many rows have a near-copy. Halves of the data share these, so that the map looks more certain than it is. If ' +
      'they are replicates, keep one row for each sample.',
  ],
  'order-of-rows': () => [
    'Each row is near the row before it',
    'The rows may be a series, or sorted by subject. Halves of the data then share the neighbors of a row, so that ' +
      'the map looks more certain than it is.',
  ],
  'published-not-invariant': () => [
    'The unit of the data matters here',
    'The published equations give another map when the data are shifted or rescaled.',
    useConstrained(),
  ],
};

/** Refusals in plain words, if the service's sentence uses technical terms. */
const REFUSED = {
  'disconnected-graph': ({ n_neighbors: k, components, sizes, smallest_connecting_k: enough }) => [
    `The data fall into ${components} separate pieces`,
    `With ${k} neighbors a point no chain of neighbors leads from one piece to the next` +
      `${sizes ? ` (they have ${sizes.slice(0, 5).join(', ')}${sizes.length > 5 ? ', …' : ''} points)` : ''}.`,
    enough
      ? `With ${enough} neighbors or more they are connected.`
      : 'No reasonable number of neighbors joins them: bridge them, or fit each alone.',
  ],
};

/** What to do about a problem, if the remedy of the service is for programs that send requests. */
const REMEDIES = {
  'unsupported-media-type': 'Save the table as CSV, Excel or Parquet, and choose that file.',
};

/**
 * A refusal in plain words: title, sentence and remedy; `own` is the service's text if it differs.
 * @param {import('../store.js').Problem} problem
 */
export function plainProblem({ type, title, detail, detail_parts: said, remedy, remedy_parts: advised, details }) {
  const code = (type ?? '').split(':').pop();
  const [text, help] = [inWords(said ?? [detail]), inWords(advised ?? [remedy ?? ''])]; // the page's own have no parts
  const refused = details && REFUSED[code]?.(details);
  if (refused) return { title: refused[0], text: refused[1], remedy: refused[2], own: `${title}. ${text} ${help}` };
  return { title, text, remedy: REMEDIES[code] ?? help, own: code in REMEDIES ? help : '' };
}

/** A note in plain words: title, sentence, and the step that helps, if the method has its settings. */
export function plainNote({ code, message_parts: parts }, spec = {}, settings = {}) {
  const message = inWords(parts);
  const iterations = Object.entries(spec).find(([name]) => name === 'max_iter') ?? [];
  const [title, text, step] = PLAIN[code]?.({ p: spec.n_components, k: spec.n_neighbors, iterations }) ?? [
    code.charAt(0).toUpperCase() + code.slice(1).replaceAll('-', ' '),
    message,
  ];
  const isPossible = step && Object.keys(step.values).every((name) => name in settings);
  return { title, text, step: isPossible ? step : null, message };
}
