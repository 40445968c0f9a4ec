// One attempt of a call by fetch: its response is read piece by piece, with a limit on the silence between two pieces.

/** Values of a query; null and undefined are left out, and lists are repeated. */
export type Query = object;

/** Body of a request. */
export interface Body {
  media: string;
  content: string | Blob | Uint8Array<ArrayBuffer>;
}

/** One request. A POST is repeatable with an Idempotency-Key (`key`), or if its result is named by its content. */
export interface Call {
  method: "GET" | "POST" | "DELETE";
  path: string;
  query?: Query;
  body?: Body;
  accept?: string;
  key?: string;
  byContent?: boolean;
  headers?: Record<string, string>;
  /** Seconds of silence; by default those of the client. */
  silence?: number;
}

/** Options of a connection. */
export interface Endpoint {
  url: string;
  key: string | undefined;
  timeout: number;
  fetch: typeof fetch;
}

/** Failed connection: not made, or broken later (`isConnected`). */
export class Failure extends Error {
  readonly isConnected: boolean;

  constructor(reason: string, isConnected: boolean) {
    super(reason);
    this.isConnected = isConnected;
  }
}

const UPLOAD_BYTES_PER_SECOND = 2 ** 16; // the least speed for which the head of the response is awaited
const LONGEST_TIMER = 2 ** 31 / 1000 - 1; // seconds
const NO_CONNECTION = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/** Response whose body is read once, by `pieces` or `bytes`; `close` drops the rest. */
export class Connection {
  readonly status: number;
  readonly headers: Headers;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  readonly #watch: Watch;

  private constructor(response: Response, watch: Watch) {
    this.status = response.status;
    this.headers = response.headers;
    this.#reader = response.body?.getReader();
    this.#watch = watch;
  }

  /** Send a call; throw Failure for no response, and the reason of an aborted signal. */
  static async open(endpoint: Endpoint, call: Call, signal?: AbortSignal): Promise<Connection> {
    signal?.throwIfAborted();
    const watch = new Watch(call.silence ?? endpoint.timeout, signal);
    const url = endpoint.url + call.path + queryText(call.query);
    const init: RequestInit = { method: call.method, headers: headersOf(endpoint, call), signal: watch.signal };
    if (call.body !== undefined) init.body = call.body.content;
    watch.restart(sizeOf(call.body) / UPLOAD_BYTES_PER_SECOND);
    try {
      return new Connection(await endpoint.fetch(url, init), watch);
    } catch (error) {
      throw watch.failure(error);
    }
  }

  /** Iterate over the pieces of the body as they arrive; throw Failure for a broken connection. */
  async *pieces(): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      while (this.#reader !== undefined) {
        this.#watch.restart();
        const { done, value } = await this.#reader.read();
        this.#watch.pause(); // the caller may take any time
        if (done) return;
        yield value;
      }
    } catch (error) {
      throw this.#watch.failure(error);
    } finally {
      this.close();
    }
  }

  /** Return the whole body. */
  async bytes(): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this.pieces()) pieces.push(piece);
    return concatenate(pieces);
  }

  /** Drop the rest of the body. */
  close(): void {
    this.#watch.stop();
    this.#reader?.cancel().catch(() => {}); // of a connection that is broken already
  }
}

/** Signal that aborts after some seconds of silence, or with the caller's. */
class Watch {
  readonly #controller = new AbortController();
  readonly #seconds: number;
  readonly #caller: AbortSignal | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #abort = (): void => this.#controller.abort(this.#caller?.reason);

  constructor(seconds: number, caller: AbortSignal | undefined) {
    this.#seconds = seconds;
    this.#caller = caller;
    caller?.addEventListener("abort", this.#abort, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  restart(more = 0): void {
    this.pause();
    const seconds = Math.min(this.#seconds + more, LONGEST_TIMER);
    const silence = new Failure(`silent for ${Math.round(seconds)} s`, true);
    this.#timer = setTimeout(() => this.#controller.abort(silence), 1000 * seconds);
  }

  pause(): void {
    clearTimeout(this.#timer);
  }

  stop(): void {
    this.pause();
    this.#caller?.removeEventListener("abort", this.#abort);
  }

  /** Return what to throw for an error of fetch. */
  failure(error: unknown): unknown {
    this.stop();
    if (this.#caller?.aborted) return this.#caller.reason;
    if (this.signal.aborted) return this.signal.reason;
    if (error instanceof Failure) return error;
    const cause = (error as { cause?: { code?: string; message?: string } }).cause;
    const reason = cause?.message || (error as Error).message;
    // Browsers give no cause: a connection that was never made is the likely one.
    return new Failure(reason, cause !== undefined && !NO_CONNECTION.has(cause.code ?? ""));
  }
}

/** Return pieces as one. */
export function concatenate(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let filled = 0;
  for (const piece of pieces) {
    bytes.set(piece, filled);
    filled += piece.length;
  }
  return bytes;
}

function headersOf(endpoint: Endpoint, call: Call): Record<string, string> {
  return {
    Accept: call.accept ?? "application/json",
    ...(endpoint.key === undefined ? {} : { Authorization: `Bearer ${endpoint.key}` }),
    ...(call.body === undefined ? {} : { "Content-Type": call.body.media }),
    ...(call.key === undefined ? {} : { "Idempotency-Key": call.key }),
    ...call.headers,
  };
}

function queryText(query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined) parameters.append(name, String(one));
    }
  }
  const text = parameters.toString();
  return text && `?${text}`;
}

function sizeOf(body: Body | undefined): number {
  if (body === undefined) return 0;
  if (typeof body.content === "string") return body.content.length;
  return body.content instanceof Blob ? body.content.size : body.content.byteLength;
}
