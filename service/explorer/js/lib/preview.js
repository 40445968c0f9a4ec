/** The first rows of a file, read in the browser before it is sent, so that its columns can be chosen. */

import { npyHeader, readNpy } from './npy.js';

const HEAD_BYTES = 256 * 1024;
const ROWS = 5;
const MISSING = /^\s*([+-]?(nan|inf|infinity)|n\/?a|null|none|\?|-)?\s*$/i;
const NUMBER = /^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i;

/**
 * Preview a file.
 * @param {File} file
 * @returns {Promise<{names: string[] | null, rows: any[][], text: string[], total: number | null} | null>}
 *   text: names of the text columns; total: number of rows, if the head contains it; null: no preview
 */
export async function previewOf(file) {
  const kind = file.name.toLowerCase().split('.').pop();
  if (kind === 'csv' || kind === 'txt') return ofCsv(await file.slice(0, HEAD_BYTES).text());
  if (kind === 'npy') return ofNpy(file);
  if (kind === 'parquet') return ofParquet(file);
  return null;
}

/** Read the head of a table of text. */
function ofCsv(text) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim()).slice(0, ROWS + 1);
  if (!lines.length) return null;
  const rows = lines.map(cells);
  const hasHeader = !rows[0].some((cell) => NUMBER.test(cell));
  const names = hasHeader ? rows.shift() : rows[0].map((_, i) => String(i));
  const body = rows.slice(0, ROWS);
  const isWords = (i) => {
    const cells = body.map((row) => row[i] ?? '').filter((cell) => !MISSING.test(cell));
    return cells.length > 0 && !cells.some((cell) => NUMBER.test(cell));
  };
  const words = names.filter((_, i) => isWords(i)); // a missing number is not text; the service reports its position
  return { names, rows: body, text: words, total: null, numbered: !hasHeader };
}

/** Split a line at its commas; cells may be quoted. */
function cells(line) {
  const found = [];
  let cell = '';
  let quoted = false;
  for (let i = 0; i < line.length; i++) {
    const sign = line[i];
    if (quoted && sign === '"' && line[i + 1] === '"') {
      cell += '"';
      i++;
    } else if (sign === '"') quoted = !quoted;
    else if (sign === ',' && !quoted) {
      found.push(cell);
      cell = '';
    } else cell += sign;
  }
  return [...found, cell].map((text) => text.trim());
}

/** Read the head of an array. */
async function ofNpy(file) {
  const head = await file.slice(0, HEAD_BYTES).arrayBuffer();
  const { shape, start, dtype, fortran } = npyHeader(head);
  const [n, d] = shape;
  if (shape.length !== 2 || fortran) return { names: null, rows: [], text: [], total: n ?? null };
  const bytes = Number(dtype.slice(2));
  const rows = Math.min(ROWS, n, Math.floor((head.byteLength - start) / (bytes * d)));
  const { data } = readNpy(renamed(head.slice(0, start + rows * d * bytes), [n, d], [rows, d]));
  const first = Array.from({ length: rows }, (_, i) => Array.from(data.subarray(i * d, (i + 1) * d), Number));
  return { names: null, rows: first, text: [], total: n };
}

/** Set the shape of a truncated npy to its remaining rows; the header keeps its length. */
function renamed(buffer, from, to) {
  const bytes = new Uint8Array(buffer);
  const { start } = npyHeader(buffer);
  const old = `(${from.join(', ')})`;
  const header = new TextDecoder('latin1').decode(bytes.subarray(0, start));
  const place = header.indexOf(old);
  if (place >= 0) {
    const padded = `(${to.join(', ')})`.padEnd(old.length);
    for (let i = 0; i < padded.length; i++) bytes[place + i] = padded.charCodeAt(i);
  }
  return buffer;
}

/** Read the first rows of a Parquet file; the reader is loaded on demand. */
async function ofParquet(file) {
  const { parquetReadObjects, parquetMetadata, parquetSchema } = await import('../../vendor/hyparquet-1.31.5.min.js');
  const buffer = await file.arrayBuffer();
  const metadata = parquetMetadata(buffer);
  const names = parquetSchema(metadata).children.map((column) => column.element.name);
  const total = Number(metadata.num_rows);
  const objects = await parquetReadObjects({ file: buffer, rowEnd: Math.min(ROWS, total) });
  const rows = objects.map((row) => names.map((name) => plain(row[name])));
  const text = names.filter((_, i) => rows.some((row) => typeof row[i] === 'string'));
  return { names, rows, text, total };
}

const plain = (value) => (typeof value === 'bigint' ? Number(value) : value);
