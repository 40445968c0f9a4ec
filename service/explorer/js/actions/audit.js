/** Audits of the shown map, or of coordinates from anywhere. */

import { askJson } from '../api.js';
import { askArray, askMade, follow } from '../jobs.js';
import { set, state } from '../store.js';
import { writeLink } from './link.js';
import { clearResults, fold, runWork } from './state.js';

const LABEL = 'Auditing the map';
const EARLY = 1500; // milliseconds between two looks at the statements of a running audit

/** Audit the shown embedding or posterior. */
export const auditShown = () => runWork(audit);

/** Audit what is shown, within other work; the same audit is one job, which a link follows or reads. */
export async function audit() {
  const { single, posterior } = state;
  const body = single ? { embedding: single.path.split('/')[3] } : { posterior: posterior.id };
  const job = await askJson('/v1/audits', { method: 'POST', body });
  set({ isAudited: true });
  writeLink();
  await read(job);
}

/** Audit the coordinates of a data set beside the chosen one, and show them; runs within other work. */
export async function auditCoordinates(coordinates) {
  const body = { dataset: state.dataset.id, coordinates };
  await showAudited(await askJson('/v1/audits', { method: 'POST', body }));
}

/** Show the coordinates of an audit, and its statements; meanwhile the address has its job. */
export async function showAudited(job) {
  const { dataset, coordinates } = job.request;
  const path = `/v1/datasets/${coordinates}/data`;
  const { data, shape } = await askArray(`${path}?dtype=float32`, 'Reading the map');
  clearResults();
  const single = { title: 'Your map', isGiven: true, path, body: { dataset, coordinates }, data, p: shape[1], result: {} };
  set({ single, job: job.id, view: 'draws' });
  fold();
  writeLink();
  await read(job);
}

/** Follow an audit; show its statements as they come. */
async function read(job) {
  const shown = [state.single, state.posterior];
  const path = `/v1/jobs/${job.id}/result?dtype=float32`;
  const take = (found) => {
    if (!found.verdict || shown[0] !== state.single || shown[1] !== state.posterior) return; // a job has no verdict
    const arrays = Object.fromEntries(Object.entries(found.arrays).map(([name, { data }]) => [name, Float32Array.from(data.flat(2))]));
    set({ audit: { ...found, arrays } });
  };
  const early = setInterval(() => askJson(`${path}&partial=true`).then(take, () => {}), EARLY);
  try {
    await follow(job, LABEL);
  } finally {
    clearInterval(early);
  }
  take(await (await askMade(path, 'application/json', LABEL)).json());
  set({ announcement: state.audit.verdict });
}
