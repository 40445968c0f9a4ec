/** The examples of the empty page: one click makes or loads the data, fits, and plays the draws. */

import { ask, askJson } from '../api.js';
import { set, state } from '../store.js';
import { createDataset, nameDataset } from './data.js';
import { fit } from './fit.js';

/** Real data are files of the page, see examples/README.md; `scale` auto is the one that half-sampling suggests. */
export const EXAMPLES = [
  { name: 'swiss-roll', title: 'Swiss roll', text: '1,000 points on a rolled-up sheet, made for you', values: { name: 'swiss_roll' }, draws: { scale: 1 } },
  { name: 'digits', title: 'Handwritten digits', text: '1,797 scanned digits of 8 × 8 pixels, real', file: 'digits.csv', label: 'digit', draws: { scale: 'auto' } },
  { name: 'wine', title: 'Wine', text: '178 wines in 13 chemical measurements, real', file: 'wine.csv', label: 'cultivar', draws: { scale: 'auto' }, settings: { n_neighbors: 30 } },
];

/** Show the draws of an example. */
export async function openExample({ title, values, file, label, draws, settings = {} }) {
  const make = values
    ? () => askJson('/v1/datasets/synthetic', { method: 'POST', body: values })
    : async () => {
        const form = new FormData();
        form.append('label', label);
        form.append('file', await (await ask(`/explorer/examples/${file}`, { accept: 'text/csv' })).blob(), file);
        return nameDataset(await askJson('/v1/datasets', { method: 'POST', body: form }), title);
      };
  if (!(await createDataset(make, `Getting ${title.toLowerCase()}`))) return;
  set({ method: 'em', forms: { ...state.forms, em: settings, draws } });
  await fit({ plays: true });
}
