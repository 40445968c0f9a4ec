// Arrays: numbers or texts in C order, with a shape.

/** The dtypes of the service, by numpy's names. */
export interface Dtypes {
  float64: Float64Array;
  float32: Float32Array;
  int64: BigInt64Array;
  uint64: BigUint64Array;
  int32: Int32Array;
  uint32: Uint32Array;
  int16: Int16Array;
  uint16: Uint16Array;
  int8: Int8Array;
  uint8: Uint8Array;
  bool: Uint8Array;
  str: string[];
}

export type Dtype = keyof Dtypes;

type Buffers = { [D in Dtype]: (length: number) => Dtypes[D] };

const BUFFERS: Buffers = {
  float64: (length) => new Float64Array(length),
  float32: (length) => new Float32Array(length),
  int64: (length) => new BigInt64Array(length),
  uint64: (length) => new BigUint64Array(length),
  int32: (length) => new Int32Array(length),
  uint32: (length) => new Uint32Array(length),
  int16: (length) => new Int16Array(length),
  uint16: (length) => new Uint16Array(length),
  int8: (length) => new Int8Array(length),
  uint8: (length) => new Uint8Array(length),
  bool: (length) => new Uint8Array(length),
  str: (length) => new Array<string>(length).fill(""),
};

/** Return the data of `length` zeros, or of empty texts. */
export function zeros<D extends Dtype>(dtype: D, length: number): Dtypes[D] {
  return BUFFERS[dtype](length);
}

/** Return the number of values of a shape; 1 for (). */
export function sizeOf(shape: readonly number[]): number {
  return shape.reduce((product, length) => product * length, 1);
}

/** Whether a dtype is one of those of the service. */
export function isDtype(name: string): name is Dtype {
  return Object.hasOwn(BUFFERS, name);
}

/**
 * Array of any number of dimensions: `data` in C order (the last index changes fastest) and `shape`.
 *
 * int64 and uint64 are `bigint`s, because numbers are exact only up to 2 ** 53. Values of bool are 0 and 1.
 */
export class NdArray<D extends Dtype = Dtype> {
  readonly dtype: D;
  readonly shape: readonly number[];
  readonly data: Dtypes[D];

  constructor(data: Dtypes[D], shape: readonly number[], dtype: D) {
    if (data.length !== sizeOf(shape)) {
      throw new RangeError(`${data.length} values have no shape (${shape.join(", ")}), which needs ${sizeOf(shape)}.`);
    }
    this.data = data;
    this.shape = [...shape];
    this.dtype = dtype;
  }

  /** Return a matrix of float64 from rows of one length. */
  static fromRows(rows: readonly ArrayLike<number>[]): NdArray<"float64"> {
    const columns = rows[0]?.length ?? 0;
    const data = new Float64Array(rows.length * columns);
    rows.forEach((row, i) => {
      if (row.length !== columns) {
        throw new RangeError(`Row ${i} has ${row.length} values, row 0 has ${columns}. Give rows of one length.`);
      }
      for (let j = 0; j < columns; j++) {
        const value = row[j];
        if (typeof value !== "number") {
          throw new TypeError(`Row ${i}, column ${j} is ${JSON.stringify(value)}. Give numbers, or objects with names.`);
        }
        data[i * columns + j] = value;
      }
    });
    return new NdArray(data, [rows.length, columns], "float64");
  }

  /** Number of values. */
  get size(): number {
    return this.data.length;
  }

  /** Return the part at an index of the first axis, such as one draw of many; it shares its data with the whole. */
  at(index: number): NdArray<D> {
    const [length, ...shape] = this.shape;
    const position = index < 0 ? index + (length ?? 0) : index;
    if (length === undefined || !Number.isInteger(index) || position < 0 || position >= length) {
      throw new RangeError(`Index ${index} is outside of shape (${this.shape.join(", ")}).`);
    }
    const size = sizeOf(shape);
    const part = Array.isArray(this.data)
      ? this.data.slice(position * size, (position + 1) * size)
      : this.data.subarray(position * size, (position + 1) * size);
    return new NdArray(part as Dtypes[D], shape, this.dtype);
  }

  /** Iterate over the parts along the first axis: rows of a matrix, draws of a batch. */
  *[Symbol.iterator](): Generator<NdArray<D>, void, undefined> {
    for (let i = 0; i < (this.shape[0] ?? 0); i++) yield this.at(i);
  }

  /** Return one value by its indices, one per axis. */
  get(...indices: number[]): Dtypes[D][number] {
    if (indices.length !== this.shape.length) {
      throw new RangeError(`${indices.length} indices for an array of shape (${this.shape.join(", ")}).`);
    }
    let position = 0;
    this.shape.forEach((length, axis) => {
      const index = indices[axis] as number;
      if (!Number.isInteger(index) || index < 0 || index >= length) {
        throw new RangeError(`Index ${index} of axis ${axis} is outside of shape (${this.shape.join(", ")}).`);
      }
      position = position * length + index;
    });
    return this.data[position] as Dtypes[D][number];
  }

  /** Return nested lists. Integers are numbers; those beyond 2 ** 53 raise RangeError, because they would be rounded. */
  tolist(): NestedList {
    if (this.shape.length > 0) return Array.from(this, (part) => (part.shape.length ? part.tolist() : scalar(part)));
    return scalar(this);
  }
}

/** Lists of lists, or one value. */
export type NestedList = number | string | boolean | NestedList[];

function scalar(array: NdArray): number | string | boolean {
  const value = array.data[0] as number | bigint | string;
  if (array.dtype === "bool") return value === 1;
  if (typeof value !== "bigint") return value;
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new RangeError(`${value} is beyond 2 ** 53. Read it from \`data\`.`);
  return number;
}
