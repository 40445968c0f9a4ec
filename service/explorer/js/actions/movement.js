/** How far the shown embedding of a method moves when the method is refitted to halves of the data. */

import { askArrays, askJson, JSON_TYPE } from '../api.js';
import { asFloats } from '../lib/npy.js';
import { askMade, follow } from '../jobs.js';
import { set, state } from '../store.js';
import { runWork } from './state.js';

const LABEL = 'Refitting to halves of the data';
const ARRAYS = ['movement', 'baseline', 'neighbor_stability', 'consensus', 'covariance'];

/** Measure the movement of the shown embedding: a job of all workers, whose refits the service keeps. */
export async function measureMovement() {
  const { single } = state;
  await runWork(async () => {
    const path = single.path.replace(/coordinates$/, 'spread');
    const job = await follow(await askJson(path, { method: 'POST', body: {} }), LABEL);
    const place = `/v1/jobs/${job.id}/result`;
    const { figures, reliability, notes } = await (await askMade(`${place}?points=0:1`, JSON_TYPE, LABEL)).json();
    const found = await askArrays(`${place}?dtype=float32`);
    if (state.single !== single) return;
    const arrays = Object.fromEntries(ARRAYS.map((name) => [name, asFloats(found[name].data)]));
    const stated = reliability ?? { level: 'unknown', reason: 'An earlier version measured it.' };
    set({ movement: { ...stated, figures, notes, arrays, p: single.p }, announcement: `The movement is known. ${stated.level}. ${stated.reason}` });
  });
}
