/** Jobs: follow, fetch results, cancel. */

import { ask, askJson, Cancelled, NPY, Refused } from './api.js';
import { asFloats, readNpy } from './lib/npy.js';
import { set, state } from './store.js';

const OPEN = new Set(['queued', 'running', 'cancelling']);
const AGAIN = 2000; // milliseconds until the next request to a service that is away
const PACE = 1000; // least milliseconds between two states of a job: a busy service answers without waiting

/**
 * Follow a job to its end.
 * @param {object} job - as the service returned it
 * @param {string} label - label of the progress bar
 * @returns {Promise<object>} the job, which has succeeded
 */
export async function follow(job, label) {
  set({ work: workOf(job, label) });
  let now = job;
  while (OPEN.has(now.status)) {
    const next = performance.now() + PACE;
    now = await patiently(() => askJson(`/v1/jobs/${job.id}?wait=1`));
    set({ work: workOf(now, label) });
    if (OPEN.has(now.status)) await new Promise((resolve) => setTimeout(resolve, next - performance.now()));
  }
  if (now.status === 'cancelled') throw new Cancelled();
  if (now.status === 'failed') throw new Refused(now.error);
  return now;
}

/** Ask until the service is there: jobs and results outlast its restart. */
export async function patiently(request) {
  for (;;) {
    try {
      return await request();
    } catch (error) {
      if (error.code !== 'unreachable' && ![502, 503, 504].includes(error.problem?.status)) throw error;
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }
}

/**
 * Fetch a result; follow the job that computes it first.
 * @returns {Promise<Response>} of status 200
 */
export async function askMade(path, accept, label) {
  // The answer may take seconds.
  if (state.work && !path.includes('partial=')) set({ work: { label, stage: '', done: 0, total: 0 } });
  for (;;) {
    const answer = await patiently(() => ask(path, { accept }));
    if (answer.status !== 202) return answer;
    await follow(await answer.json(), label);
  }
}

/** Fetch one array: its shape, its values as stored or as 32-bit floats, and the headers. */
export async function askArray(path, label, { floats = true } = {}) {
  const answer = await askMade(path, NPY, label);
  const { shape, data } = readNpy(await answer.arrayBuffer());
  return { shape, data: floats ? asFloats(data) : data, headers: answer.headers };
}

/** Cancel a job; the service keeps its partial results. */
export async function cancel() {
  const { work } = state;
  if (!work?.job || work.cancelling) return;
  set({ work: { ...work, cancelling: true } });
  try {
    await ask(`/v1/jobs/${work.job}`, { method: 'DELETE' });
  } catch (error) {
    if (error instanceof Refused) set({ problem: error.problem });
    else throw error;
  }
}

/** Progress of a job for the state. */
function workOf(job, label) {
  const { done, total, stage } = job.progress;
  const cancelling = Boolean(state.work?.cancelling) && state.work.job === job.id;
  return { label, job: job.id, status: job.status, done, total, stage, cancelling };
}
