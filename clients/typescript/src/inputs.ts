// Uploads of data: arrays and rows as npy, objects as CSV, files as they are.

import { NdArray } from "./arrays/ndarray.ts";
import { writeNpy } from "./arrays/npy.ts";
import type { Body, Query } from "./transport/connection.ts";
import { JSON_MEDIA, NPY, NPZ } from "./transport/session.ts";
import type { UploadOptions } from "./types.ts";

/** Row of a table with named columns. */
export type Row = Readonly<Record<string, string | number | bigint | boolean | null | undefined>>;

/**
 * Data to upload: an (n, d) array, rows of numbers, objects with the same names, or a file.
 *
 * A file is a `File` whose name has the format, or a `Blob` with a media type. In Node:
 * `new File([await readFile("x.csv")], "x.csv")`, or `await openAsBlob("x.csv", { type: "text/csv" })`, which streams.
 */
export type Data = NdArray | readonly ArrayLike<number>[] | readonly Row[] | Blob;

/** One value per point: numbers or words. */
export type Labels = readonly (string | number | boolean)[] | Exclude<ArrayLike<number>, string>;

/** Media types by the endings of file names. */
export const MEDIA_TYPES: Readonly<Record<string, string>> = {
  ".npy": NPY,
  ".npz": NPZ,
  ".csv": "text/csv",
  ".json": JSON_MEDIA,
  ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
  ".parquet": "application/vnd.apache.parquet",
  ".tsv": "text/tab-separated-values",
  ".txt": "text/plain",
  ".gz": "application/gzip", // the service sees what is in it
  ".zst": "application/zstd",
  ".feather": "application/vnd.apache.arrow.file",
  ".arrow": "application/vnd.apache.arrow.stream",
  ".arrows": "application/vnd.apache.arrow.stream",
};

const DIALECT = { header: "present", delimiter: "comma", decimal: "point", charset: "utf-8" };

/** Return the body and the query of an upload. Throw TypeError for other data. */
export function uploadOf(data: Data, options: UploadOptions = {}): { body: Body; query: Query } {
  if (data instanceof Blob) return { body: fileBody(data), query: { ...options } };
  if (Array.isArray(data) && data.length > 0 && isRow(data[0])) {
    return { body: { media: "text/csv", content: csv(data as readonly Row[]) }, query: { ...options, ...DIALECT } };
  }
  const { missing, ...roles } = options;
  const given = Object.entries(roles).filter(([, value]) => value !== undefined && value !== null);
  if (given.length > 0) {
    const names = given.map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", ");
    throw new TypeError(`{ ${names} } needs named columns. Give objects such as { x: 1, y: 2 }, or a CSV file.`);
  }
  const array = data instanceof NdArray ? data : NdArray.fromRows(rowsOf(data));
  return { body: { media: NPY, content: writeNpy(array) }, query: { missing } };
}

/** Return options of a method apart: those of the data to upload, and those of the method. */
export function splitData<T extends UploadOptions>(options: T): [UploadOptions, Omit<T, keyof UploadOptions>] {
  const { label, color, features, id, ignore, one_hot, missing, header, delimiter, decimal, charset, ...rest } = options;
  const given = { label, color, features, id, ignore, one_hot, missing, header, delimiter, decimal, charset };
  const all: { [K in keyof Required<UploadOptions>]: UploadOptions[K] | undefined } = given;
  return [Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)), rest];
}

/** Return one value per point as a column of float64; words become their ranks. */
export function columnOf(labels: Labels): NdArray<"float64"> {
  const values = Array.from<string | number | boolean>(labels);
  const isWords = values.some((value) => typeof value === "string");
  const ranks = new Map(isWords ? [...new Set(values.map(String))].sort().map((word, rank) => [word, rank]) : []);
  const numbers = values.map((value) => (isWords ? (ranks.get(String(value)) as number) : Number(value)));
  return new NdArray(Float64Array.from(numbers), [numbers.length, 1], "float64");
}

function rowsOf(data: unknown): readonly ArrayLike<number>[] {
  const isTable = Array.isArray(data) && data.every((row) => Array.isArray(row) || ArrayBuffer.isView(row));
  if (isTable) return data as ArrayLike<number>[];
  throw new TypeError("Data are an NdArray, rows of numbers, objects with the same names, a File, or a Blob.");
}

function isRow(value: unknown): value is Row {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value);
}

function fileBody(file: Blob): Body {
  const name = "name" in file ? String(file.name) : "";
  const ending = /\.[^.]+$/.exec(name.toLowerCase())?.[0] ?? "";
  const media = MEDIA_TYPES[ending] ?? file.type; // browsers give a spreadsheet's type to CSV
  if (!media) {
    const endings = Object.keys(MEDIA_TYPES).join(", ");
    throw new TypeError(`The format of the file ${JSON.stringify(name)} is unknown. Name it with one of ${endings}.`);
  }
  return { media, content: file };
}

function csv(rows: readonly Row[]): string {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const lines = rows.map((row, i) => names.map((name) => cell(row[name], i, name)).join(","));
  return `${names.map((name) => cell(name, -1, name)).join(",")}\n${lines.join("\n")}\n`;
}

function cell(value: unknown, row: number, name: string): string {
  if (value === null || value === undefined) return "";
  if (!["string", "number", "bigint", "boolean"].includes(typeof value)) {
    throw new TypeError(`Row ${row}, column ${name} is ${JSON.stringify(value)}. Give a number, a text or a boolean.`);
  }
  const text = String(value);
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
