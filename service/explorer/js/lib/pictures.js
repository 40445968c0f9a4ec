/** What a row looks like: its columns as pixels of a gray picture, or a column of texts or of addresses of pictures. */

import { tableHere } from './rows.js';

const MIN_SIDE = 4; // pixels of a picture
const PIXEL = /^(?:(?:px|pix|pixel)[ _.-]?\d+(?:[ _.x-]\d+)?|\d+x\d+)$/i; // such as pixel_0_7, px12, 3x4
const ADDRESS = /^https?:\/\/\S+$/;
const IMAGE = /^data:image\/(?:png|jpeg|gif|webp|svg\+xml)[;,]/;
const LOOKED_AT = 20; // rows by which a column is taken for addresses

/** The side of a square picture of so many columns, or 0. */
function sideOf(count) {
  const side = Math.round(Math.sqrt(count));
  return side * side === count && side >= MIN_SIDE ? side : 0;
}

/** The columns of texts. */
const textColumns = (state) =>
  state.columns ? tableHere().columns.filter(({ kind, name }) => kind === 'word' || name === 'id') : [];

/** What can be shown of a row beside its name: choices with their titles. */
export function contentChoices(state) {
  const side = state.columns?.values ? sideOf(state.dataset.n_features) : 0;
  return [
    ['none', 'Its name alone'],
    ...(side ? [['pixels', `A picture of ${side} × ${side} columns`]] : []),
    ...textColumns(state).map(({ name }) => [`text:${name}`, name]),
  ];
}

/** The choice that `auto` stands for: columns with the names of pixels, else a column of addresses, else none. */
export function resolveContent(state) {
  const there = contentChoices(state).map(([name]) => name);
  if (state.content !== 'auto') return there.includes(state.content) ? state.content : 'none';
  if (there.includes('pixels') && state.columns.names?.every((name) => PIXEL.test(name))) return 'pixels';
  const rows = Array.from({ length: Math.min(LOOKED_AT, state.dataset?.n ?? 0) }, (_, row) => row);
  const isAddress = ({ at }) => rows.every((row) => ['image', 'link'].includes(kindOf(at(row))));
  const column = textColumns(state).find(isAddress);
  return column ? `text:${column.name}` : 'none';
}

/** What a text is: a picture that the page may load, a link, or a text. */
export function kindOf(text) {
  if (IMAGE.test(text) || (ADDRESS.test(text) && text.startsWith(`${location.origin}/`))) return 'image';
  return ADDRESS.test(text) ? 'link' : 'text';
}

/** The text of a row in the chosen column, or null. */
export const textOf = (content, row) =>
  tableHere().columns.find(({ name }) => content === `text:${name}`)?.at(row) ?? null;

const ranges = new WeakMap(); // the smallest and the largest value of some data

/** The pixels of a row: black is the smallest value of the data, white the largest. */
export function pixelsOf({ columns: { values }, dataset: { n_features: count } }, row) {
  if (!ranges.has(values)) {
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    ranges.set(values, [low, high]);
  }
  const [low, high] = ranges.get(values);
  const side = sideOf(count);
  const image = new ImageData(side, side);
  for (let at = 0; at < count; at++) {
    const gray = Math.round((255 * (values[row * count + at] - low)) / (high - low || 1));
    image.data.set([gray, gray, gray, 255], 4 * at);
  }
  return image;
}
