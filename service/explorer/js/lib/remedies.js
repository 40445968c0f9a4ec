/** Remedies of problems and notes, each as one step. */

import { ROLES } from './columns.js';
import { number } from './html.js';

const WORDS = { n_neighbors: 'neighbors', n_components: 'dimensions' };

/**
 * Return the steps that a problem of the service allows.
 * @param {object} problem - problem+json: type, details
 * @param {object} spec - the specification of the request
 * @returns {{label: string, values: object}[]} values of the method's form
 */
export function stepsOf(problem, spec = {}) {
  const { details = {} } = problem;
  const code = (problem.type ?? '').split(':').pop();
  const steps = [];
  if (details.smallest_connecting_k) {
    const k = details.smallest_connecting_k;
    steps.push({ label: `Use the smallest k that connects: ${k}`, values: { n_neighbors: k } });
  }
  if (details.sizes && 'smallest_connecting_k' in details) {
    steps.push({ label: 'Bridge the pieces', values: { disconnected: 'bridge' } });
  }
  if (details.n_points > 3 && details.n_neighbors >= details.n_points) {
    const k = Math.min(10, details.n_points - 1);
    steps.push({ label: `Use ${k} neighbors`, values: { n_neighbors: k } });
  }
  if (code === 'over-the-limit' && details.allowed) {
    const name = Object.keys(WORDS).find((one) => problem.detail.startsWith(`${one}=`));
    if (name) steps.push({ label: `Use ${number(details.allowed)} ${WORDS[name]}`, values: { [name]: details.allowed } });
  }
  return steps.filter(({ values }) => Object.entries(values).some(([name, value]) => spec[name] !== value));
}

/** What becomes of missing values, as the page calls it. */
const MISSING = { drop: 'Leave these rows out', median: 'Take the medians' };

const QUERY = /\?((?:(?:label|color|features|id|ignore|one_hot|missing)=[^\s&,;()]*[^\s&,;().]&?)+)/g;

/** A text of the service with its query parameters as the page's choices: “x” as “ignore”. */
export function inWords(text) {
  const describeOption = ([role, name]) => (role === 'missing' ? `“${MISSING[name]}”` : name === '*' ? 'the role “feature” in its head' : `“${name}” as “${ROLES[role]?.[0] ?? 'feature'}”`);
  const writeOptions = (_, query) => [...new URLSearchParams(query)].map(describeOption).join(', ');
  return (text ?? '').replaceAll(QUERY, writeOptions);
}

/** The ways out of missing values that a problem names. */
export const waysOf = ({ remedy }) => Object.entries(MISSING).filter(([name]) => remedy?.includes(`?missing=${name}`));

/** Notes of the fit in plain words; a note that is not listed keeps the service's sentence. */
const PLAIN = {
  'small-gap': ({ p }) => [
    'The last direction is not settled',
    `One more direction of the data is nearly as strong as the ${p === 1 ? 'one' : 'ones'} shown, so the picture can swap ` +
      'one for the other from draw to draw. With one more dimension both are kept.',
    { label: `Use ${p + 1} dimensions`, values: { n_components: p + 1 } },
  ],
  'closed-classes': ({ k }) => [
    'The data fall into groups that do not see each other',
    'Some directions of the picture only tell these groups apart. More neighbors join them.',
    { label: `Use ${k + 4} neighbors`, values: { n_neighbors: k + 4 } },
  ],
  'flat-neighborhoods': ({ k }) => [
    'Some neighborhoods are flat',
    'The nearest points of some rows lie on a line, or are copies of each other. More neighbors see more directions.',
    { label: `Use ${k + 4} neighbors`, values: { n_neighbors: k + 4 } },
  ],
  'more-components-than-neighbors': ({ p }) => [
    'Too few neighbors for so many dimensions',
    'A neighborhood cannot show more directions than it has points.',
    { label: `Use ${p + 4} neighbors`, values: { n_neighbors: p + 4 } },
  ],
  'negative-variances': () => [
    'The published equations reach impossible values here',
    'Some variances come out below zero, and are used without their sign. The constrained variant cannot do that.',
    { label: 'Use the constrained variant', values: { variant: 'constrained' } },
  ],
  'not-converged': ({ iterations: [name, count] }) => [
    'The fit stopped before it settled',
    'More iterations may change the picture.',
    name && { label: `Allow ${number(2 * count)} iterations`, values: { [name]: 2 * count } },
  ],
  'near-duplicates': () => [
    'Some rows are almost the same',
    'What tells them apart is next to nothing, and their place among their neighbors rests on it.',
  ],
  duplicates: () => ['Some rows are exact copies', 'They land on the same place. That is no fault, but it is good to know.'],
  'unequal-feature-scales': () => [
    'One column outweighs the others',
    'Columns with large numbers alone decide who is near whom. Bring the columns to one scale unless they share a unit.',
    { label: 'Standardize the columns', values: { standardize: 'zscore' } },
  ],
  'constant-features': () => ['Some columns never change', 'They are accepted, and change nothing.'],
  'more-components-than-features': ({ p }) => [
    'More dimensions than columns',
    'The further dimensions are functions of the first ones, and show nothing new.',
    { label: `Use ${p - 1} dimensions`, values: { n_components: p - 1 } },
  ],
  bridged: ({ k }) => [
    'Separate pieces were joined by bridges',
    'The distance between those pieces in the picture means little. More neighbors may join them without bridges.',
    { label: `Use ${k + 4} neighbors`, values: { n_neighbors: k + 4 } },
  ],
  'zero-covariance': () => [
    'Every draw may be the same',
    'With so many columns the published equations leave nothing open, so there is no spread to see.',
    { label: 'Use the constrained variant', values: { variant: 'constrained' } },
  ],
  'linear-projection': () => [
    'This is a flat view of the table',
    'With so few columns the published equations only turn the data, they do not unfold them.',
    { label: 'Use the constrained variant', values: { variant: 'constrained' } },
  ],
  'scale-saturated': ({ k }) => [
    'The scale of the draws is a guess',
    'The spread of the draws hardly depends on the scale, so none can be identified. Compare spreads within this picture only. ' +
      'More neighbors, or fewer dimensions, can help.',
    { label: `Use ${k + 4} neighbors`, values: { n_neighbors: k + 4 } },
  ],
  'scale-not-matched': ({ k }) => [
    'The scale of the draws does not match the data',
    'No scale that was tried makes draws spread as halves of the data do. Compare spreads within this picture only.',
    { label: `Use ${k + 4} neighbors`, values: { n_neighbors: k + 4 } },
  ],
  'disconnected-graph': ({ k }) => [
    'The data fall into separate pieces',
    'No chain of neighbors leads from one piece to the next, so their places beside each other mean nothing. More neighbors may join them.',
    { label: `Use ${k + 4} neighbors`, values: { n_neighbors: k + 4 } },
  ],
  'scale-poorly-correlated': () => [
    'The scale fits the middle of the points only',
    'Draws and halves of the data disagree which points are uncertain. Do not rank single points by their spread.',
  ],
  'published-not-invariant': () => [
    'The unit of the data matters here',
    'The published equations give another picture when the data are shifted or rescaled.',
    { label: 'Use the constrained variant', values: { variant: 'constrained' } },
  ],
};

/** Refusals in plain words, if the service's sentence uses technical terms. */
const REFUSED = {
  'disconnected-graph': ({ n_neighbors: k, components, sizes, smallest_connecting_k: enough }) => [
    `The data fall into ${components} separate pieces`,
    `With ${k} neighbors a point no chain of neighbors leads from one piece to the next` +
      `${sizes ? ` (they have ${sizes.slice(0, 5).join(', ')}${sizes.length > 5 ? ', …' : ''} points)` : ''}.`,
    enough ? `From ${enough} neighbors on they hang together.` : 'No reasonable number of neighbors joins them: bridge them, or fit each alone.',
  ],
};

/** A refusal in plain words: title, sentence and remedy; `own` is the service's text if it differs. */
export function plainProblem({ type, title, detail, remedy, details }) {
  const plain = REFUSED[(type ?? '').split(':').pop()];
  if (!plain || !details) return { title, text: detail, remedy, own: '' };
  const [plainTitle, text, help] = plain(details);
  return { title: plainTitle, text, remedy: help, own: `${title}. ${detail} ${remedy}` };
}

/** A note in plain words: title, sentence, and the step that helps, if the method has its settings. */
export function plainNote({ code, message }, spec, settings = {}) {
  const iterations = Object.entries(spec).find(([name]) => name === 'max_iter') ?? [];
  const [title, text, step] = PLAIN[code]?.({ p: spec.n_components, k: spec.n_neighbors, iterations }) ?? [
    code.charAt(0).toUpperCase() + code.slice(1).replaceAll('-', ' '),
    message,
  ];
  const isPossible = step && Object.keys(step.values).every((name) => name in settings);
  return { title, text, step: isPossible ? step : null, message };
}
