/** The examples of the empty page: a map with its audit, and embeddings whose draws are played. */

import { ask, askJson } from '../api.js';
import { textOf } from '../lib/verdict.js';
import { set, state } from '../store.js';
import { askAudit } from './audit.js';
import { createDataset, nameDataset } from './data.js';
import { fit } from './fit.js';
import { writeLink } from './link.js';
import { clearResults, fold } from './state.js';

const DIGITS = { title: 'Handwritten digits', file: 'digits.csv', labels: 'digit' };

/**
 * Real data are files of the page, see examples/README.md; `scale` auto is the one that half-sampling suggests.
 * @typedef {{title: string, values?: object, file?: string, labels?: string}} Source
 * @type {(Source & {name: string, text: string, draws: object, settings?: object})[]}
 */
export const EXAMPLES = [
  {
    name: 'swiss-roll',
    title: 'Swiss roll',
    text: '1,000 generated points on a rolled-up sheet',
    values: { name: 'swiss_roll' },
    draws: { scale: 1 },
  },
  { name: 'digits', ...DIGITS, text: '1,797 scanned digits of 8 × 8 pixels', draws: { scale: 'auto' } },
  { name: 'wine', title: 'Wine', text: '178 wines in 13 chemical measurements', file: 'wine.csv',
    labels: 'cultivar', draws: { scale: 'auto' }, settings: { n_neighbors: 30 } },
];

/**
 * Make or load the data of an example; return whether they are there.
 * @param {Source} source
 */
function getData({ title, values, file, labels }) {
  const make = values
    ? () => askJson('/v1/datasets/synthetic', { method: 'POST', body: values })
    : async () => {
        const form = new FormData();
        form.append('labels', labels);
        form.append('file', await (await ask(`/explorer/examples/${file}`, { accept: 'text/csv' })).blob(), file);
        return nameDataset(await askJson('/v1/datasets', { method: 'POST', body: form }), title);
      };
  return createDataset(make, `Loading ${title}`);
}

/**
 * Show the draws of an example.
 * @param {typeof EXAMPLES[number]} example
 */
export async function openExample({ draws, settings = {}, ...example }) {
  if (!(await getData(example))) return;
  set({ method: 'em', forms: { ...state.forms, em: settings, draws } });
  await fit({ plays: true });
}

/** Show the digits by UMAP with the audit, which `docs/figures/example_map.py` has computed. */
export async function openExampleMap() {
  const audit = await askAudit('/explorer/examples/digits-umap.json');
  if (!(await getData(DIGITS))) return;
  clearResults();
  const { embedding } = audit.arrays;
  const single = { title: 'UMAP', isGiven: true, isExample: true,
    body: { dataset: state.dataset.id, method: audit.method }, data: embedding,
    p: embedding.length / state.dataset.n, result: {} };
  set({ single, audit, view: 'draws', announcement: textOf(audit) });
  fold();
  writeLink();
}
