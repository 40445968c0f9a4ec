/** Palettes for all kinds of color vision. */

/** viridis (matplotlib, CC0), at equal steps. */
const VIRIDIS = [
  '#440154', '#48186a', '#472d7b', '#424086', '#3b528b', '#33638d', '#2c728e', '#26828e', '#21918c',
  '#1fa088', '#28ae80', '#3fbc73', '#5ec962', '#84d44b', '#addc30', '#d8e219', '#fde725',
];
/** cividis (Nunez, Anderton, Renslow 2018, CC0), at equal steps. */
const CIVIDIS = [
  '#00224e', '#002e6a', '#1a386f', '#32436d', '#434e6c', '#535a6d', '#61656f', '#6f7073', '#7d7c78',
  '#8c8878', '#9b9476', '#aba072', '#bcae6c', '#cdbb63', '#dec958', '#f0d846', '#fee838',
];
/**
 * Ten colors of classes, the least difference of which is as large as a search found, also without red or green cones.
 */
const TEN = [
  '#3c75ff', '#ebba04', '#a5089b', '#15d5d9', '#cc6114', '#92cc78', '#6d562e', '#db6189', '#58b1fc', '#3c2ffe',
];

/** Color of missing values, and of the classes beyond a palette. */
export const PLAIN = '#0072b2';
export const OTHER = '#9a9a9a';
export const STEPS = 64;
/** Number of classes with a color each; more share them, with another shape. */
export const CLASSES = TEN.length;
const MOST = 6 * CLASSES;

/** The shape of a class: 0 circle, 1 square, 2 triangle, 3 diamond, 4 triangle that points down, 5 cross. */
export const shapeOf = (place) => Math.floor((place % MOST) / CLASSES);

/** The part of a palette that is visible on a light and on a dark page. */
const SEEN = { light: [0, 0.95], dark: [0.16, 1] };

/** A palette of `steps` values, of the data or of the spread. */
export function gradient(kind, theme = 'light') {
  const stops = kind === 'spread' ? CIVIDIS : VIRIDIS;
  const [from, to] = SEEN[theme];
  return Array.from({ length: STEPS }, (_, i) => between(stops, from + ((to - from) * i) / (STEPS - 1)));
}

/** A palette of classes; if there are too many for colors and shapes, the last color is of all others. */
export function classes(count) {
  const colors = Array.from({ length: Math.min(count, MOST) }, (_, i) => TEN[i % CLASSES]);
  return count > MOST ? [...colors, OTHER] : colors;
}

/** Interpolate the stops at a position in [0, 1]. */
function between(stops, place) {
  const at = place * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  return mix(stops[low], stops[low + 1], at - low);
}

/** The color between two, at a share of the way from the first. */
function mix(first, second, share) {
  const [a, b] = [rgb(first), rgb(second)];
  return hex(a.map((value, i) => Math.round(value + (b[i] - value) * share)));
}

/** Red, green and blue of a color, of 0 to 255. */
export const rgb = (color) => [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16));

const hex = (parts) => `#${parts.map((part) => part.toString(16).padStart(2, '0')).join('')}`;
