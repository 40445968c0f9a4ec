/** numpy's array format, version 1 to 3, as typed arrays. */

const KINDS = {
  f4: Float32Array,
  f8: Float64Array,
  i1: Int8Array,
  i2: Int16Array,
  i4: Int32Array,
  i8: BigInt64Array,
  u1: Uint8Array,
  u2: Uint16Array,
  u4: Uint32Array,
  u8: BigUint64Array,
  b1: Uint8Array,
};
const MAGIC = '\x93NUMPY';

/**
 * Read the header alone.
 * @param {ArrayBuffer} buffer - at least the first bytes of a file
 * @returns {{dtype: string, shape: number[], start: number, fortran: boolean}}
 */
function npyHeader(buffer) {
  const bytes = new Uint8Array(buffer);
  if (String.fromCharCode(...bytes.subarray(0, 6)) !== MAGIC) throw new Error('This is not an npy file.');
  const view = new DataView(buffer);
  const wide = bytes[6] > 1;
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const start = (wide ? 12 : 10) + length;
  const header = new TextDecoder('latin1').decode(bytes.subarray(wide ? 12 : 10, start));
  const dtype = /'descr':\s*'([^']*)'/.exec(header)?.[1];
  const shape = /'shape':\s*\(([^)]*)\)/.exec(header)?.[1];
  if (dtype === undefined || shape === undefined) throw new Error('The npy file holds records, not an array.');
  return {
    dtype,
    shape: shape.split(',').filter((part) => part.trim()).map(Number),
    start,
    fortran: /'fortran_order':\s*True/.test(header),
  };
}

/**
 * Read an array whose values are in C order, as the service writes it.
 * @returns {{shape: number[], data: any}} data is a typed array, or a list of strings
 */
export function readNpy(buffer) {
  const { dtype, shape, start } = npyHeader(buffer);
  const count = shape.reduce((product, side) => product * side, 1);
  const kind = dtype.slice(1);
  if (kind[0] === 'U') return { shape, data: words(buffer, start, count, Number(kind.slice(1))) };
  const Typed = KINDS[kind];
  if (Typed === undefined || dtype[0] === '>') throw new Error(`The page does not read arrays of ${dtype}.`);
  const whole = start % Typed.BYTES_PER_ELEMENT ? buffer.slice(start) : buffer;
  const offset = whole === buffer ? start : 0;
  return { shape, data: new Typed(whole, offset, count) };
}

/** Read UTF-32 strings of a fixed length. */
function words(buffer, start, count, length) {
  const points = new Uint32Array(buffer.slice(start, start + count * length * 4));
  const found = new Array(count);
  for (let i = 0; i < count; i++) {
    let word = '';
    for (let j = i * length; j < (i + 1) * length && points[j]; j++) word += String.fromCodePoint(points[j]);
    found[i] = word;
  }
  return found;
}

/** Convert numbers of any type to 32-bit floats. */
export function asFloats(data) {
  if (data instanceof Float32Array) return data;
  return Float32Array.from(data, Number);
}

/** An npy file of 32-bit floats with p columns. */
export function npyOf(values, p) {
  const text = `{'descr': '<f4', 'fortran_order': False, 'shape': (${values.length / p}, ${p}), }`;
  const head = `${text.padEnd(128 * Math.ceil((text.length + 11) / 128) - 11)}\n`;
  const bytes = new Uint8Array(10 + head.length + values.byteLength);
  bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, head.length & 255, head.length >> 8]);
  bytes.set(new TextEncoder().encode(head), 10);
  bytes.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), 10 + head.length);
  return bytes;
}
