/** Preact, and formats that several components use. */

export { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../../vendor/htm-preact-3.1.1.min.js';

/** Format a number: few digits, thousands separated. */
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  if (Number.isInteger(value)) return value.toLocaleString('en');
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(Math.max(0, digits - 2));
  return Number(value.toPrecision(digits)).toLocaleString('en', { maximumFractionDigits: 6 });
}

/** Format a date in seconds since 1970 in UTC, without the time if it is midnight. */
export function date(seconds) {
  const text = new Date(1000 * seconds).toISOString();
  return seconds % 86400 ? text.slice(0, 16).replace('T', ' ') : text.slice(0, 10);
}

/** Format a share in per cent. */
export const percent = (share) => (Number.isNaN(share) ? '–' : `${Math.round(share * 100)}%`);

/** Format bytes. */
export function bytes(count) {
  for (const [unit, size] of Object.entries({ GB: 1e9, MB: 1e6, kB: 1e3 })) {
    if (count >= size) return `${number(count / size, 2)} ${unit}`;
  }
  return `${count} bytes`;
}

/** Format seconds. */
export function seconds(count) {
  if (count === null || count === undefined) return '';
  if (count < 0.095) return 'under 0.1 s';
  if (count < 1) return `${count.toFixed(1)} s`;
  if (count < 90) return `${Math.round(count)} s`;
  return `${Math.round(count / 60)} min`;
}

const ESCAPES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

/** Text within a written page. */
export const escapeHtml = (text) => String(text ?? '').replaceAll(/[&<>"]/g, (sign) => ESCAPES[sign]);
