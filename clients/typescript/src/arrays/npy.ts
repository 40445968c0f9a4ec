// The npy format: magic, version, a header with dtype, order and shape, then the values.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

import { type Dtype, type Dtypes, NdArray, sizeOf, zeros } from "./ndarray.ts";

const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59]; // "\x93NUMPY"
const ALIGNMENT = 64; // bytes; the values start at a multiple
const IS_LITTLE_ENDIAN = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;
const MAX_HEADER_BYTES = 2 ** 20; // of a header that lists no fields
const DTYPES = new Map<string, Dtype>([
  ["f8", "float64"],
  ["f4", "float32"],
  ["i8", "int64"],
  ["u8", "uint64"],
  ["i4", "int32"],
  ["u4", "uint32"],
  ["i2", "int16"],
  ["u2", "uint16"],
  ["i1", "int8"],
  ["u1", "uint8"],
  ["b1", "bool"],
]);
const CODES = new Map([...DTYPES].map(([code, dtype]) => [dtype, code]));

/** Header of an npy file: `start` is the position of the first value, in bytes. */
export interface NpyHeader {
  dtype: Dtype;
  itemBytes: number;
  shape: number[];
  isFortran: boolean;
  start: number;
}

/** Return the header of the first bytes of a file, or null if they do not have all of it. Throw TypeError otherwise. */
export function parseNpyHeader(bytes: Uint8Array): NpyHeader | null {
  const magic = bytes.subarray(0, MAGIC.length);
  if (magic.some((byte, i) => byte !== MAGIC[i])) throw new TypeError("The bytes are no npy: they start otherwise.");
  if (bytes.length < 12) return null;
  const version = bytes[6] as number;
  if (version < 1 || version > 3) throw new TypeError(`npy version ${version} is unknown. Write version 1, 2 or 3.`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [first, length] = version === 1 ? [10, view.getUint16(8, true)] : [12, view.getUint32(8, true)];
  if (length > MAX_HEADER_BYTES) throw new TypeError(`The npy header has ${length} bytes.`);
  if (bytes.length < first + length) return null;
  const text = new TextDecoder(version === 3 ? "utf-8" : "latin1").decode(bytes.subarray(first, first + length));
  const descr = /'descr':\s*'([<>|=]?)([a-zA-Z])(\d+)'/.exec(text);
  const order = /'fortran_order':\s*(True|False)/.exec(text);
  const shape = /'shape':\s*\(([^)]*)\)/.exec(text);
  if (!descr || !order || !shape) throw new TypeError(`The npy header ${text.trim()} is not that of a plain array.`);
  const [, byteOrder, kind, width] = descr as unknown as [string, string, string, string];
  const dtype = kind === "U" ? "str" : DTYPES.get(kind + width);
  if (dtype === undefined) throw new TypeError(`npy dtype ${kind}${width} is unknown. Write floats, integers or bools.`);
  const itemBytes = kind === "U" ? 4 * Number(width) : Number(width);
  if (byteOrder === ">" && itemBytes > 1) throw new TypeError("The npy is big-endian. Write it with .astype('<f8').");
  const lengths = (shape[1] as string).split(",").filter((part) => part.trim()).map((part) => Number.parseInt(part, 10));
  return { dtype, itemBytes, shape: lengths, isFortran: order[1] === "True", start: first + length };
}

/** Return the array of an npy file. Throw TypeError for another format and RangeError for another length. */
export function parseNpy(file: ArrayBuffer | Uint8Array): NdArray {
  const bytes = file instanceof Uint8Array ? file : new Uint8Array(file);
  const header = parseNpyHeader(bytes);
  if (header === null) throw new RangeError("The npy is shorter than its header says.");
  const size = sizeOf(header.shape);
  const values = bytes.subarray(header.start);
  if (values.length !== size * header.itemBytes) {
    const difference = values.length < size * header.itemBytes ? "shorter" : "longer";
    throw new RangeError(`The npy is ${difference} than its header says.`);
  }
  const data = decode(values, header.dtype, header.itemBytes, size);
  return header.isFortran ? transpose(data, header.shape, header.dtype) : new NdArray(data, header.shape, header.dtype);
}

/** Return an array as an npy file of version 1, in C order. Throw TypeError for texts. */
export function writeNpy(array: NdArray): Uint8Array<ArrayBuffer> {
  const code = CODES.get(array.dtype);
  if (code === undefined || Array.isArray(array.data)) {
    throw new TypeError(`An array of ${array.dtype} is not written as npy. Give numbers or bools.`);
  }
  const itemBytes = array.data.BYTES_PER_ELEMENT;
  const shape = array.shape.length === 1 ? `${array.shape[0]},` : array.shape.join(", ");
  const descr = `${itemBytes === 1 ? "|" : "<"}${code}`;
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape}), }`;
  const start = ALIGNMENT * Math.ceil((10 + text.length + 1) / ALIGNMENT);
  const file = new Uint8Array(start + array.data.byteLength);
  file.set([...MAGIC, 1, 0]);
  new DataView(file.buffer).setUint16(8, start - 10, true);
  file.set(new TextEncoder().encode(`${text.padEnd(start - 11)}\n`), 10);
  file.set(new Uint8Array(array.data.buffer, array.data.byteOffset, array.data.byteLength), start);
  if (!IS_LITTLE_ENDIAN) swap(file.subarray(start), itemBytes);
  return file;
}

/** Return bytes, little-endian, as `size` values of a dtype. */
export function decode<D extends Dtype>(bytes: Uint8Array, dtype: D, itemBytes: number, size: number): Dtypes[D] {
  const data = zeros(dtype, size);
  if (Array.isArray(data)) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let i = 0; i < size; i++) {
      const points: number[] = [];
      for (let j = 0; j < itemBytes; j += 4) points.push(view.getUint32(i * itemBytes + j, true));
      data[i] = String.fromCodePoint(...points).replace(/\0+$/, ""); // texts are filled with zeros
    }
    return data;
  }
  const target = new Uint8Array(data.buffer);
  target.set(bytes);
  if (!IS_LITTLE_ENDIAN) swap(target, itemBytes);
  return data;
}

/** Reverse the bytes of each value. */
function swap(bytes: Uint8Array, itemBytes: number): void {
  for (let i = 0; i < bytes.length; i += itemBytes) bytes.subarray(i, i + itemBytes).reverse();
}

/** Return values in Fortran order (the first index changes fastest) as an array in C order. */
function transpose<D extends Dtype>(source: Dtypes[D], shape: readonly number[], dtype: D): NdArray<D> {
  const data = zeros(dtype, source.length);
  const index = shape.map(() => 0);
  const strides = shape.map((_, axis) => sizeOf(shape.slice(0, axis)));
  let from = 0;
  for (let to = 0; to < source.length; to++) {
    data[to] = source[from] as never;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      index[axis] = (index[axis] as number) + 1;
      from += strides[axis] as number;
      if ((index[axis] as number) < (shape[axis] as number)) break;
      from -= (strides[axis] as number) * (shape[axis] as number);
      index[axis] = 0;
    }
  }
  return new NdArray(data, shape, dtype);
}
