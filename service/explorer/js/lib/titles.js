/** Short names of the methods, for captions and tables (the service has whole names), and labels of settings. */

import { methodNamed } from '../methods.js';

const SHORT = {
  em: 'GLLE',
  direct: 'GLLE from LLE',
  glle: 'GLLE, one draw',
  pca: 'PCA',
  'factor-analysis': 'Factor analysis',
  mds: 'Classical MDS',
  npe: 'NPE',
  lle: 'LLE',
  ltsa: 'LTSA',
  meu: 'MEU',
  alle: 'Acyclic LLE',
  mvu: 'MVU',
  sne: 'SNE',
  'symmetric-sne': 'Symmetric SNE',
  't-sne': 't-SNE',
  umap: 'UMAP',
  densmap: 'densMAP',
  pacmap: 'PaCMAP',
  'auto-reg-lle': 'LLE, automatic ridge',
  'auto-k-lle': 'LLE, automatic k',
};

/** Short name of a method. */
export const titleOfMethod = (name) => SHORT[name] ?? methodNamed(name)?.title ?? name;

const LABELS = {
  n: 'Rows',
  n_neighbors: 'Neighbors',
  n_components: 'Dimensions',
  reg: 'Regularization',
  max_iter: 'Iterations, at most',
  tol: 'Tolerance',
  disconnected: 'Separate pieces',
  standardize: 'Scale of columns',
  metric: 'Distance',
  n_draws: 'Maps to draw',
  variance: 'Noise variance',
  blocks: 'Rows that belong together',
};

/** Label of a field: `max_iter` is “Max iter”. */
export const labelOf = (name) => {
  const words = name.replace(/^n_/, '').replaceAll('_', ' ');
  return LABELS[name] ?? words.charAt(0).toUpperCase() + words.slice(1);
};
