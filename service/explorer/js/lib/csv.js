/** Columns of texts from a file: delimited text, or an array. */

import { readNpy } from './npy.js';

const DELIMITERS = { comma: ',', semicolon: ';', tab: '\t', pipe: '|', space: ' ' };
const SEPARATOR = /^"?sep=(.)"?(\r?\n|\r|$)/i; // a first line that names the delimiter

/**
 * Parse delimited text: the rows as arrays of texts. Quotes are doubled within quotes, as in RFC 4180.
 * @param {string} text
 * @param {string} [name] - name of the delimiter; by default the first line names it, or has it most often
 */
function parseCsv(text, name) {
  const separator = text.match(SEPARATOR);
  const body = separator ? text.slice(separator[0].length) : text;
  const [first] = body.split(/\r?\n/, 1);
  const count = (sign) => first.split(sign).length;
  const likely = [',', ';', '\t', '|'].reduce((best, sign) => (count(sign) > count(best) ? sign : best));
  const delimiter = DELIMITERS[name] ?? separator?.[1] ?? likely;
  const rows = [];
  let row = [];
  let at = 0;
  while (at < body.length) {
    let cell = '';
    while (delimiter === ' ' && body[at] === ' ') at++; // as the service reads it: blanks before a cell are no cells
    if (body[at] === '"') {
      for (at++; at < body.length; at++) {
        if (body[at] !== '"') cell += body[at];
        else if (body[at + 1] === '"') cell += body[at++];
        else break;
      }
      at++;
    } else {
      const from = at;
      while (at < body.length && body[at] !== delimiter && body[at] !== '\n') at++;
      cell = body.slice(from, at).replace(/\r$/, '');
    }
    row.push(cell);
    if (body[at] === delimiter) {
      at++;
      if (at < body.length) continue;
      row.push('');
    }
    while (at < body.length && body[at] !== '\n') at++;
    at++;
    rows.push(row);
    row = [];
  }
  return rows.filter((cells) => cells.length > 1 || cells[0] !== '');
}

/**
 * The columns of a file below its header, all or those of some names.
 * @param {{file: File, wanted?: string[], most: number, dialect?: {delimiter?: string, encoding?: string}}} inputs -
 *   most: columns that are read; dialect: how the service has read the file; without it the text is UTF-8
 * @returns {Promise<{n: number, width: number, ragged: {row: number, cells: number} | null,
 *   columns: Record<string, string[]>}>} `ragged` is the first row that has not as many cells as the header
 */
export async function readTable({ file, wanted, most, dialect }) {
  const [names = [], ...rows] = file.name.endsWith('.npy')
    ? columnsOf(readNpy(await file.arrayBuffer()), file.name.slice(0, -4))
    : parseCsv(
      new TextDecoder(dialect?.encoding ?? 'utf-8').decode(await file.arrayBuffer()),
      dialect && (dialect.delimiter ?? 'comma'),
    );
  const row = rows.findIndex((cells) => cells.length !== names.length);
  const chosen = Array.from(names.keys()).filter((i) => !wanted || wanted.includes(names[i])).slice(0, most);
  return {
    n: rows.length,
    width: names.length,
    ragged: row < 0 ? null : { row, cells: rows[row].length },
    columns: Object.fromEntries(chosen.map((i) => [names[i] || `column ${i}`, rows.map((cells) => cells[i] ?? '')])),
  };
}

/**
 * An array as rows of texts below a header: labels, or several columns.
 * @param {import('../store.js').NpyArray} array
 * @param {string} name
 */
function columnsOf({ shape: [n, count = 1], data }, name) {
  const texts = Array.from(data, String);
  const header = Array.from({ length: count }, (_, i) => (count > 1 ? `${name} ${i + 1}` : name));
  return [header, ...Array.from({ length: n }, (_, row) => texts.slice(row * count, (row + 1) * count))];
}
