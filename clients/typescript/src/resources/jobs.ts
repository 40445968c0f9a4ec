// Jobs of the service: wait, events, draws while they are made, result.

import { type Dtype, NdArray, sizeOf } from "../arrays/ndarray.ts";
import { decode, type NpyHeader, parseNpyHeader } from "../arrays/npy.ts";
import { type Connection, joined } from "../transport/connection.ts";
import { jobError, unreachableError } from "../transport/errors.ts";
import { EventParser } from "../transport/events.ts";
import { Failure, sleep } from "../transport/retries.ts";
import { type CallOptions, NPY, pathOf, type Session, split, type WaitOptions } from "../transport/session.ts";
import type { JobOut, PosteriorOut, ProgressOut } from "../types.ts";
import { Embedding, type EmbeddingValues } from "./embeddings.ts";
import type { Posterior } from "./posteriors.ts";
import {
  type Advice, type Calibration, type Comparison, comparisonOf, type FloatArray, type Placed, resultOf, type Summary,
  type Transform,
} from "./results.ts";

/** Event of a job: its progress, or its end, which is the last. */
export type JobEvent =
  | { id: string; event: "progress"; data: ProgressOut & { status: JobOut["status"] } }
  | { id: string; event: "end"; data: JobOut };

/** Result of a job, by its kind. */
export type JobResult = FloatArray | Posterior | Summary | Transform | Calibration | Advice | Embedding | Placed | Comparison;

const SILENCE = 45; // seconds of events without a heartbeat, which comes every 15 s
const RECONNECT = 1; // seconds, unless the stream says otherwise
const MOST_LOST = 5; // connections in a row without a draw
const POLL = 0.5; // seconds, while the scale is being calibrated or evicted draws are made again

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
    return this.#session.build.job(await this.#session.follow(this.metadata, options));
  }

  /** Return the job in its present state. */
  async refresh(options: CallOptions = {}): Promise<Job> {
    return this.#session.build.job(await this.#session.get<JobOut>(pathOf("jobs", this.id), {}, options));
  }

  /** Cancel the job: at once if it is queued, soon if it runs; an ended job stays as it is. */
  async cancel(options: CallOptions = {}): Promise<Job> {
    const reply = await this.#session.send({ method: "DELETE", path: pathOf("jobs", this.id) }, options);
    return this.#session.build.job(JSON.parse(new TextDecoder().decode(reply.bytes)) as JobOut);
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
      if (lost === MOST_LOST) throw unreachableError(this.#session.endpoint.url, reason);
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
    if (this.kind === "fit") return this.#session.build.posterior(content as PosteriorOut);
    if (this.kind === "comparison") return comparisonOf(content, this.id);
    if (this.kind === "embedding") return new Embedding(resultOf<EmbeddingValues>(content, { job: this.id }), this.#session);
    return resultOf(content);
  }
}

/** Parser of the events of a job, across connections. */
class EventStream {
  #id: string;
  #retry: number | null = null;

  constructor(lastEventId = "") {
    this.#id = lastEventId;
  }

  get headers(): Record<string, string> {
    return this.#id === "" ? {} : { "Last-Event-ID": this.#id };
  }

  get pause(): number {
    return this.#retry === null ? RECONNECT : this.#retry / 1000;
  }

  async *read(connection: Connection): AsyncGenerator<JobEvent> {
    const parser = new EventParser(this.#id); // half an event of a lost connection is dropped
    for await (const piece of connection.pieces()) {
      for (const { id, event, data } of parser.feed(piece)) {
        this.#id = id;
        yield { id, event, data: JSON.parse(data) } as JobEvent;
      }
      this.#retry = parser.retry;
    }
  }
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
      const bytes = joined(pending);
      header = parseNpyHeader(bytes);
      if (header === null) continue;
      pending = [bytes.subarray(header.start)];
      length -= header.start;
    }
    const shape = header.shape.slice(-2);
    const size = sizeOf(shape);
    const count = sizeOf(header.shape.slice(0, -2));
    if (length < size * header.itemBytes) continue;
    let rest: Uint8Array = joined(pending);
    while (rest.length >= size * header.itemBytes && index < count) {
      const data = decode(rest.subarray(0, size * header.itemBytes), header.dtype, header.itemBytes, size);
      yield [index++, new NdArray(data, shape, header.dtype as Dtype) as FloatArray, count];
      rest = rest.subarray(size * header.itemBytes);
    }
    pending = [rest];
    length = rest.length;
  }
}
