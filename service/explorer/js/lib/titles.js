/** Short names of the methods, for captions and tables; the service's titles are whole names. */

import { state } from '../store.js';

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
export const titleOfMethod = (name) =>
  SHORT[name] ?? state.methods.find((method) => method.name === name)?.title ?? name;
