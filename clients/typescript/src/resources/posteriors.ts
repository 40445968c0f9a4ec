// Posteriors of the service: draws, analyses, pictures; and the jobs that make them and their draws.

import { type Dtype, NdArray, sizeOf } from "../arrays/ndarray.ts";
import { decode, type NpyHeader, parseNpyHeader } from "../arrays/npy.ts";
import { parseNpz } from "../arrays/npz.ts";
import { type Data, splitData } from "../inputs.ts";
import { concatenate, type Connection, Failure } from "../transport/connection.ts";
import { jobError, unreachableError } from "../transport/errors.ts";
import { EventStream, type JobEvent } from "../transport/events.ts";
import { sleep } from "../transport/retries.ts";
import { type CallOptions, command, json, NPY, NPZ, pathOf, type Session, split, type WaitOptions } from "../transport/session.ts";
import type {
  CalibrationOptions, DrawOptions, DrawsOptions, JobOut, PosteriorOut, ReconstructionsOptions, SummaryOptions,
  TransformOptions, UploadOptions,
} from "../types.ts";
import { type Dataset, datasetId } from "./datasets.ts";
import { Embedding, type EmbeddingValues } from "./embeddings.ts";
import {
  type Advice, type Calibration, type Comparison, comparisonOf, type FloatArray, type Placed, resultOf, type Summary,
  type Transform,
} from "./results.ts";

/** Result of a job, by its kind. */
export type JobResult = FloatArray | Posterior | Summary | Transform | Calibration | Advice | Embedding | Placed | Comparison;

const SILENCE = 45; // seconds of events without a heartbeat, which comes every 15 s
const RECONNECT = 1; // seconds
const MAX_LOST = 5; // connections in a row without a draw
const POLL = 0.5; // seconds, while the scale is being calibrated or evicted draws are made again

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
    return new Job(json<JobOut>(reply), this.#session);
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

/** Job: `metadata` is the service's description as of the last request; `refresh` returns a new object. */
export class Job {
  readonly metadata: JobOut;
  readonly #session: Session;

  constructor(metadata: JobOut, session: Session) {
    this.metadata = metadata;
    this.#session = session;
  }

  /** Id. */
  get id(): string {
    return this.metadata.id;
  }

  /** Kind of work, such as `fit` or `draws`. */
  get kind(): JobOut["kind"] {
    return this.metadata.kind;
  }

  /** Status as of the last request. */
  get status(): JobOut["status"] {
    return this.metadata.status;
  }

  /** Wait until the job has succeeded, and return it; throw the problem of a failed job. */
  async wait(options: WaitOptions = {}): Promise<Job> {
    return new Job(await this.#session.follow(this.metadata, options), this.#session);
  }

  /** Return the job in its present state. */
  async refresh(options: CallOptions = {}): Promise<Job> {
    return new Job(await this.#session.get<JobOut>(pathOf("jobs", this.id), {}, options), this.#session);
  }

  /** Cancel the job: at once if it is queued, soon if it runs; an ended job stays as it is. */
  async cancel(options: CallOptions = {}): Promise<Job> {
    const reply = await this.#session.send({ method: "DELETE", path: pathOf("jobs", this.id) }, options);
    return new Job(json<JobOut>(reply), this.#session);
  }

  /**
   * Iterate over the events of the job until its end. A lost connection is opened again with Last-Event-ID.
   *
   * Progress is a state, not a log: a slow reader gets the latest. `lastEventId` continues an earlier iteration.
   */
  async *events(options: CallOptions & { lastEventId?: string } = {}): AsyncGenerator<JobEvent, void, undefined> {
    const { signal, lastEventId } = options;
    const parser = new EventStream(lastEventId);
    while (true) {
      const connection = await this.#session.open(
        {
          method: "GET",
          path: pathOf("jobs", this.id, "events"),
          accept: "text/event-stream",
          headers: parser.headers,
          silence: SILENCE,
        },
        signal,
      );
      if (connection.status === 204) return connection.close(); // the end is the last event
      try {
        for await (const event of parser.read(connection)) {
          yield event;
          if (event.event === "end") return;
        }
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
      }
      await sleep(parser.pause, signal);
    }
  }

  /**
   * Iterate over the draws of a job, each as soon as it and those before it are made.
   *
   * With several scales they come scale by scale, with `scale: "auto"` after the calibration. A lost connection is opened again; no draw is repeated. The problem
   * of a failed job is thrown.
   */
  async *draws(options: CallOptions & { dtype?: "float64" | "float32" } = {}): AsyncGenerator<FloatArray> {
    const { signal, ...query } = options;
    const path = pathOf("jobs", this.id, "result");
    const call = { method: "GET" as const, path, query: { ...query, partial: true }, accept: NPY };
    let sent = 0;
    let lost = 0;
    while (true) {
      const connection = await this.#session.open(call, signal);
      if (connection.status === 202) {
        connection.close();
        await sleep(POLL, signal);
        continue;
      }
      const before = sent;
      let reason = "the response is shorter than its header says";
      try {
        for await (const [index, draw, count] of parts(connection)) {
          if (index < sent) continue; // of an earlier connection
          sent = index + 1;
          yield draw;
          if (sent === count) return;
        }
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        reason = error.message;
      }
      const { metadata } = await this.refresh({ signal });
      if (metadata.status === "failed" || metadata.status === "cancelled") throw jobError(metadata);
      lost = sent > before ? 0 : lost + 1;
      if (lost === MAX_LOST) throw unreachableError(this.#session.endpoint.url, reason, true);
      await sleep(RECONNECT, signal);
    }
  }

  /**
   * Wait until the job has succeeded, and return its result.
   *
   * Draws are an array (count, n, p), or (scales, count, n, p); reconstructions are (count, n, d). A fit returns its
   * posterior, every other job its values and arrays.
   */
  async result(options: WaitOptions & { dtype?: "float64" | "float32" } = {}): Promise<JobResult> {
    const [waiting, query] = split(options);
    await this.#session.follow(this.metadata, waiting);
    const path = pathOf("jobs", this.id, "result");
    if (this.kind === "draws" || this.kind === "reconstructions") {
      return (await this.#session.array(path, query, waiting)) as FloatArray;
    }
    const content = await this.#session.get<object>(path, query, waiting);
    if (this.kind === "fit") return new Posterior(content as PosteriorOut, this.#session);
    if (this.kind === "comparison") return comparisonOf(content, this.id);
    if (this.kind === "embedding") return new Embedding(resultOf<EmbeddingValues>(content, { job: this.id }), this.#session);
    return resultOf(content);
  }
}

/** Return the picture of a path. */
export async function picture(session: Session, path: string, options: PictureOptions): Promise<Blob> {
  const [waiting, query] = split(options);
  const { bytes } = await session.fetch({ method: "GET", path, query: { ...query }, accept: "image/*" }, waiting);
  const type = path.endsWith(".svg") ? "image/svg+xml" : "image/png";
  return new Blob([bytes as Uint8Array<ArrayBuffer>], { type });
}

/** Iterate over the matrices of an npy body of shape (..., n, p), with the number of each and of all. */
async function* parts(connection: Connection): AsyncGenerator<[number, FloatArray, number]> {
  let header: NpyHeader | null = null;
  let pending: Uint8Array[] = [];
  let length = 0;
  let index = 0;
  for await (const piece of connection.pieces()) {
    pending.push(piece);
    length += piece.length;
    if (header === null) {
      const bytes = concatenate(pending);
      header = parseNpyHeader(bytes);
      if (header === null) continue;
      pending = [bytes.subarray(header.start)];
      length -= header.start;
    }
    const shape = header.shape.slice(-2);
    const size = sizeOf(shape);
    const count = sizeOf(header.shape.slice(0, -2));
    if (length < size * header.itemBytes) continue;
    let rest: Uint8Array = concatenate(pending);
    while (rest.length >= size * header.itemBytes && index < count) {
      const data = decode(rest.subarray(0, size * header.itemBytes), header.dtype, header.itemBytes, size);
      yield [index++, new NdArray(data, shape, header.dtype as Dtype) as FloatArray, count];
      rest = rest.subarray(size * header.itemBytes);
    }
    pending = [rest];
    length = rest.length;
  }
}
