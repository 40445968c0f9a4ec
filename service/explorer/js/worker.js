/** The page's worker: what takes long for many points. `lib/background.js` calls its functions by their names. */

import { readTable } from './lib/csv.js';
import { histogramsOf } from './lib/histograms.js';
import { lookOf } from './lib/look.js';
import { nearestIn } from './lib/nearest.js';
import { columnsIn, readAudit } from './lib/npz.js';
import { distinguishing } from './lib/rows.js';
import { densitiesOf } from './plot/density.js';
import { outlinesOf } from './plot/islands.js';

const WORK = { columnsIn, densitiesOf, distinguishing, histogramsOf, lookOf, nearestIn, outlinesOf, readAudit,
  readTable };
const arrays = new Map(); // by their numbers

/** Inputs with the arrays that they name by number. */
function unpack(value) {
  if (Array.isArray(value)) return value.map(unpack);
  if (!value || Object.getPrototypeOf(value) !== Object.prototype) return value;
  if ('kept' in value) return arrays.get(value.kept);
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, unpack(member)]));
}

/** The buffers of an answer that are moved instead of copied. */
function buffersOf(value) {
  if (ArrayBuffer.isView(value)) return [value.buffer];
  if (Array.isArray(value)) return typeof value[0] === 'object' ? value.flatMap(buffersOf) : [];
  if (!value || Object.getPrototypeOf(value) !== Object.prototype) return [];
  return Object.values(value).flatMap(buffersOf);
}

onmessage = async ({ data: { keep, value, drop, id, name, inputs } }) => {
  if (keep) arrays.set(keep, value);
  else if (drop) arrays.delete(drop);
  else {
    try {
      const made = await WORK[name](unpack(inputs));
      postMessage({ id, made }, { transfer: [...new Set(buffersOf(made))] });
    } catch (error) {
      postMessage({ id, failure: String(error.stack ?? error) });
    }
  }
};
