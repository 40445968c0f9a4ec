// Data sets of the service.

import type { NdArray } from "../arrays/ndarray.ts";
import { parseNpz } from "../arrays/npz.ts";
import { columnOf, type Data, type Labels, uploadOf } from "../inputs.ts";
import type { Call } from "../transport/connection.ts";
import { inWords } from "../transport/errors.ts";
import { type CallOptions, json, NPZ, pathOf, type Session } from "../transport/session.ts";
import type { DatasetOut, UploadOptions } from "../types.ts";
import type { FloatArray } from "./results.ts";

/** Data set: `metadata` is the service's description. */
export class Dataset {
  readonly metadata: DatasetOut;
  readonly #session: Session;

  constructor(metadata: DatasetOut, session: Session) {
    this.metadata = metadata;
    this.#session = session;
  }

  /** Id; the same content has the same id. */
  get id(): string {
    return this.metadata.id;
  }

  /** Number of points. */
  get n(): number {
    return this.metadata.n;
  }

  /** Number of features. */
  get d(): number {
    return this.metadata.d;
  }

  /** Names of the features. */
  get names(): string[] | null {
    return this.metadata.names;
  }

  /** Decisions of the upload, such as a column that was set apart, and the option that decides otherwise. */
  get notices(): string[] {
    return this.metadata.notices.map(inWords);
  }

  /** Return the values (n, d). */
  async data(options: CallOptions & { dtype?: "float64" | "float32" } = {}): Promise<FloatArray> {
    const { signal, ...query } = options;
    return (await this.#session.array(pathOf("datasets", this.id, "data"), query, { signal })) as FloatArray;
  }

  /** Return the ids of the rows as in the file, rows of them for several columns, or null without ids. */
  async ids(options: CallOptions = {}): Promise<(string | number)[] | (string | number)[][] | null> {
    if (!this.metadata.has_ids) return null;
    return (await this.#session.get<{ data: (string | number)[] }>(pathOf("datasets", this.id, "ids"), {}, options)).data;
  }

  /** Return `data`, and `labels`, `color`, `coordinates`, `ids` and `names` if the data set has them. */
  async arrays(options: CallOptions = {}): Promise<Record<string, NdArray>> {
    const path = pathOf("datasets", this.id, "data");
    return parseNpz((await this.#session.send({ method: "GET", path, accept: NPZ }, options)).bytes);
  }

  /** Delete the data set; with `force` also its posteriors, which otherwise prevent it. */
  async delete(options: CallOptions & { force?: boolean } = {}): Promise<void> {
    const { signal, ...query } = options;
    await this.#session.send({ method: "DELETE", path: pathOf("datasets", this.id), query }, { signal });
  }
}

/**
 * Return the id of a data set; upload data that have none, with the roles of their columns.
 *
 * Throw TypeError for a text that is no id, and for roles of a stored data set.
 */
export async function datasetId(
  session: Session,
  data: Dataset | string | Data,
  roles: UploadOptions = {},
  options: CallOptions = {},
): Promise<string> {
  if (!(data instanceof Dataset) && typeof data !== "string") {
    return (await upload<DatasetOut>(session, data, roles, "", options)).id;
  }
  if (typeof data === "string" && !data.startsWith("ds_")) {
    throw new TypeError(`${JSON.stringify(data)} is no id of a data set. Give a File or a Blob of a file.`);
  }
  const given = Object.entries(roles).filter(([, value]) => value !== undefined && value !== null);
  if (given.length > 0) {
    const names = given.map(([name]) => name).join(", ");
    throw new TypeError(`The data set is stored with the roles of its columns. Leave out ${names}, or give its data.`);
  }
  return typeof data === "string" ? data : data.id;
}

/** Upload data to `/v1/datasets` and a path below it; return the JSON of the response. */
export async function upload<T>(
  session: Session,
  data: Data,
  roles: UploadOptions,
  path: string,
  options: CallOptions,
): Promise<T> {
  const call: Call = { method: "POST", path: `/v1/datasets${path}`, ...uploadOf(data, roles), byContent: true };
  return json<T>(await session.send(call, options));
}

/** Return the id of a data set of labels: one column, whose values are uploaded if they are no data set. */
export async function columnId(
  session: Session,
  labels: Dataset | NdArray | Labels | string | null | undefined,
  options: CallOptions,
): Promise<string | null> {
  if (labels === null || labels === undefined) return null;
  const isVector = typeof labels === "object" && "length" in labels;
  return datasetId(session, isVector ? columnOf(labels) : labels, {}, options);
}
