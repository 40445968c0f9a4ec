/** Reader of npz files with stored members, as the service writes them. */

import { asFloats, readNpy } from './npy.js';

const END = 0x06054b50;
const END_64 = 0x06064b50;
const ENTRY = 0x02014b50;
const FULL = 0xffffffff;

/**
 * Read every member.
 * @param {ArrayBuffer} buffer
 * @returns {Record<string, {shape: number[], data: any}>}
 */
export function readNpz(buffer) {
  const view = new DataView(buffer);
  let end = buffer.byteLength - 22;
  while (end >= 0 && view.getUint32(end, true) !== END) end--;
  if (end < 0) throw new Error('This is not an npz file.');
  let count = view.getUint16(end + 10, true);
  let place = view.getUint32(end + 16, true);
  if (place === FULL || count === 0xffff) {
    let wide = end - 20 - 56;
    while (wide >= 0 && view.getUint32(wide, true) !== END_64) wide--;
    count = Number(view.getBigUint64(wide + 32, true));
    place = Number(view.getBigUint64(wide + 48, true));
  }
  /** @type {Record<string, import('../store.js').NpyArray>} */
  const found = {};
  for (let i = 0; i < count; i++) {
    const entry = entryAt(view, place);
    if (entry.method !== 0) throw new Error(`${entry.name} is compressed.`);
    const from = entry.local + 30 + view.getUint16(entry.local + 26, true) + view.getUint16(entry.local + 28, true);
    found[entry.name.replace(/\.npy$/, '')] = readNpy(buffer.slice(from, from + entry.size));
    place = entry.next;
  }
  return found;
}

/** Read one entry of the zip's list. */
function entryAt(view, place) {
  if (view.getUint32(place, true) !== ENTRY) throw new Error('The npz file is damaged.');
  const named = view.getUint16(place + 28, true);
  const extra = view.getUint16(place + 30, true);
  const name = new TextDecoder().decode(new Uint8Array(view.buffer, place + 46, named));
  let size = view.getUint32(place + 20, true);
  const full = view.getUint32(place + 24, true);
  let local = view.getUint32(place + 42, true);
  let at = place + 46 + named;
  const stop = at + extra;
  while (at < stop) {
    const id = view.getUint16(at, true);
    const length = view.getUint16(at + 2, true);
    if (id === 1) {
      let from = at + 4;
      const wide = () => {
        const value = Number(view.getBigUint64(from, true));
        from += 8;
        return value;
      };
      if (full === FULL) wide();
      if (size === FULL) size = wide();
      if (local === FULL) local = wide();
    }
    at += 4 + length;
  }
  return {
    name,
    size,
    local,
    method: view.getUint16(place + 10, true),
    next: stop + view.getUint16(place + 32, true),
  };
}

/**
 * The columns of a data set in an npz file of the service.
 * @param {ArrayBuffer} buffer
 */
export function columnsIn(buffer) {
  const { data, labels, colors, coordinates, ids } = readNpz(buffer);
  return {
    values: asFloats(data.data),
    labels: labels ? Array.from(labels.data, String) : null,
    colors: colors ? Float64Array.from(colors.data, Number) : null,
    coordinates: coordinates ? asFloats(coordinates.data) : null,
    ids: ids ? idsOf(ids) : null,
  };
}

/**
 * The ids of the rows as texts; ids of several columns are joined by commas.
 * @param {import('../store.js').NpyArray} ids
 */
function idsOf({ shape: [n, columns = 1], data }) {
  const texts = Array.from(data, String);
  return Array.from({ length: n }, (_, row) => texts.slice(row * columns, (row + 1) * columns).join(', '));
}

/** An audit in JSON, with arrays of floats in place of nested lists. */
export function readAudit(buffer) {
  const found = JSON.parse(new TextDecoder().decode(buffer));
  const floats = Object.entries(found.arrays).map(([name, { data }]) => [name, Float32Array.from(data.flat(2))]);
  return { ...found, arrays: Object.fromEntries(floats) };
}
