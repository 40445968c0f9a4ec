// Posteriors of the service: draws, analyses, pictures.

import type { NdArray } from "../arrays/ndarray.ts";
import { parseNpz } from "../arrays/npz.ts";
import { type Data, splitData } from "../inputs.ts";
import { type CallOptions, command, json, NPZ, pathOf, type Session, split, type WaitOptions } from "../transport/session.ts";
import type {
  CalibrationOptions, DrawOptions, DrawsOptions, JobOut, PosteriorOut, ReconstructionsOptions, SummaryOptions,
  TransformOptions, UploadOptions,
} from "../types.ts";
import { type Dataset, datasetId } from "./datasets.ts";
import type { Job } from "./jobs.ts";
import { type Calibration, type FloatArray, resultOf, type Summary, type Transform } from "./results.ts";

/** Options of a picture. */
export interface PictureOptions extends WaitOptions {
  color?: string;
  theme?: "light" | "dark";
  /** Pixels. */
  width?: number;
}

/** Options of a picture of draws or of a summary. */
export interface PosteriorPictureOptions extends PictureOptions {
  format?: "png" | "svg";
  count?: number;
  first?: number;
  seed?: number;
  scale?: number | "auto";
  /** One row of a sheet for each. */
  scales?: (number | "auto")[];
  source?: "posterior" | "prior";
  align?: "procrustes" | "none";
}

/** Fitted posterior: `metadata` is the service's description. */
export class Posterior {
  readonly metadata: PosteriorOut;
  readonly #session: Session;

  constructor(metadata: PosteriorOut, session: Session) {
    this.metadata = metadata;
    this.#session = session;
  }

  /** Id; the same data, parameters and engine have the same id. */
  get id(): string {
    return this.metadata.id;
  }

  /** Number of points. */
  get n(): number {
    return this.metadata.n;
  }

  /** Value of every parameter. */
  get spec(): Record<string, unknown> {
    return this.metadata.spec;
  }

  /** Warnings and findings of the fit. */
  get notes(): string[] {
    return (this.metadata.diagnostics["notes"] as { message: string }[]).map((note) => note.message);
  }

  /** Return one embedding (n, p), always the same for the same arguments. */
  async draw(index: number | bigint = 0, options: DrawOptions & WaitOptions = {}): Promise<FloatArray> {
    const [waiting, query] = split(options);
    return (await this.#session.array(this.#path("draws", String(index)), query, waiting)) as FloatArray;
  }

  /** Return embeddings first, ..., first + count - 1: (count, n, p), or (scales, count, n, p). */
  async draws(
    count: number,
    options: DrawsOptions & WaitOptions & { dtype?: "float64" | "float32" } = {},
  ): Promise<FloatArray> {
    const [waiting, { dtype, ...body }] = split(options);
    return this.#array("draws", { count, ...body }, { dtype }, waiting);
  }

  /** Start a job of draws and return it at once; its `draws()` are the draws as they are made, its `result()` all. */
  async startDraws(count: number, options: DrawsOptions & CallOptions = {}): Promise<Job> {
    const { signal, ...body } = options;
    const reply = await this.#session.send(command(this.#path("draws"), { count, ...body }), { signal });
    return this.#session.build.job(json<JobOut>(reply));
  }

  /**
   * Return how far points move over new samples of the data, with the `reliability` of that in one word.
   *
   * The ensemble of draws and of `resamples` of the data; with a number as `scale` the draws alone.
   */
  async summary(count = 100, options: SummaryOptions & WaitOptions = {}): Promise<Summary> {
    const [waiting, query] = split(options);
    return resultOf<Summary>(await this.#session.get(this.#path("summary"), { ...query, count }, waiting));
  }

  /** Return a picture of one draw (its index), of a sheet of draws, or of the summary. */
  async picture(of: number | "draws" | "summary" = "summary", options: PosteriorPictureOptions = {}): Promise<Blob> {
    const { format = "png", scale, ...rest } = options;
    const more = scale === undefined ? rest : of === "draws" ? { scales: [scale], ...rest } : { ...rest, scale };
    const path = typeof of === "number" ? this.#path(`draws/${of}.${format}`) : this.#path(`${of}.${format}`);
    return picture(this.#session, path, more);
  }

  /** Embed new points: `embedding` (m, p), `distances` (m,); with `draws` also `mean` and `covariance`. */
  async transform(
    data: Dataset | string | Data,
    options: TransformOptions & UploadOptions & WaitOptions = {},
  ): Promise<Transform> {
    const [waiting, others] = split(options);
    const [roles, body] = splitData(others);
    const dataset = await datasetId(this.#session, data, roles, waiting);
    return this.#analysis<Transform>("transform", { dataset, ...body }, waiting);
  }

  /** Return data generated from drawn weights (count, n, d). */
  async reconstructions(count: number, options: ReconstructionsOptions & WaitOptions = {}): Promise<FloatArray> {
    const [waiting, body] = split(options);
    return this.#array("reconstructions", { count, ...body }, {}, waiting);
  }

  /** Return the `scale` at which draws spread as half-samples of the data do, and its evidence. */
  async calibration(options: CalibrationOptions & WaitOptions = {}): Promise<Calibration> {
    const [waiting, body] = split(options);
    return this.#analysis<Calibration>("calibration", body, waiting);
  }

  /** Return the arrays of the fit by name; `embedding` is that of LLE. */
  async arrays(options: WaitOptions = {}): Promise<Record<string, NdArray>> {
    const call = { method: "GET" as const, path: this.#path("arrays"), accept: NPZ };
    return parseNpz((await this.#session.fetch(call, options)).bytes);
  }

  /** Return the posterior as one npz file; `glle_engine.load` reads it. */
  async export(options: WaitOptions = {}): Promise<Blob> {
    const call = { method: "GET" as const, path: this.#path("export"), accept: NPZ };
    const { bytes } = await this.#session.fetch(call, options);
    return new Blob([bytes as Uint8Array<ArrayBuffer>], { type: NPZ });
  }

  /** Delete the posterior and its draws, but not its data set. */
  async delete(options: CallOptions = {}): Promise<void> {
    await this.#session.send({ method: "DELETE", path: this.#path() }, options);
  }

  #path(...parts: string[]): string {
    return pathOf("posteriors", this.id, ...parts);
  }

  async #array(kind: string, body: object, query: { dtype?: string | undefined }, waiting: WaitOptions) {
    const job = await this.#session.run(this.#path(kind), body, waiting);
    return (await this.#session.array(pathOf("jobs", job.id, "result"), query, waiting)) as FloatArray;
  }

  async #analysis<T>(kind: string, body: object, waiting: WaitOptions): Promise<T> {
    const job = await this.#session.run(this.#path(kind), body, waiting);
    return resultOf<T>(await this.#session.get(pathOf("jobs", job.id, "result"), {}, waiting));
  }
}

/** Return the picture of a path. */
export async function picture(session: Session, path: string, options: PictureOptions): Promise<Blob> {
  const [waiting, query] = split(options);
  const { bytes } = await session.fetch({ method: "GET", path, query: { ...query }, accept: "image/*" }, waiting);
  const type = path.endsWith(".svg") ? "image/svg+xml" : "image/png";
  return new Blob([bytes as Uint8Array<ArrayBuffer>], { type });
}
