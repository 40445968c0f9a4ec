// Server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html

import type { JobOut, ProgressOut } from "../types.ts";
import type { Connection } from "./connection.ts";

/** Event of a job: its progress, or its end, which is the last. */
export type JobEvent =
  | { id: string; event: "progress"; data: ProgressOut & { status: JobOut["status"] } }
  | { id: string; event: "end"; data: JobOut };

const RECONNECT = 1; // seconds, unless the stream says otherwise

/** One event of a stream. */
export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

/** Parser of a stream that arrives in pieces; pieces may end anywhere. */
export class EventParser {
  /** Id of the last event, for Last-Event-ID. */
  lastEventId: string;
  /** Milliseconds until a reconnection; null until the stream has them. */
  retry: number | null = null;
  readonly #decoder = new TextDecoder();
  #rest = "";
  #event = "";
  #data: string[] = [];

  constructor(lastEventId = "") {
    this.lastEventId = lastEventId;
  }

  /** Return the events that a piece completes. */
  feed(piece: Uint8Array): ServerEvent[] {
    const text = this.#rest + this.#decoder.decode(piece, { stream: true });
    const end = text.endsWith("\r") ? text.length - 1 : text.length; // its line feed may follow
    const lines = text.slice(0, end).split(/\r\n|\n|\r/);
    this.#rest = (lines.pop() as string) + text.slice(end);
    return lines.flatMap((line) => this.#line(line) ?? []);
  }

  #line(line: string): ServerEvent | null {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon); // empty for a comment
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
    else if (field === "id" && !value.includes("\0")) this.lastEventId = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retry = Number(value);
    return null;
  }

  #dispatch(): ServerEvent | null {
    const event = { id: this.lastEventId, event: this.#event || "message", data: this.#data.join("\n") };
    const isComplete = this.#data.length > 0;
    this.#event = "";
    this.#data = [];
    return isComplete ? event : null;
  }
}

/** Parser of the events of a job, across connections. */
export class EventStream {
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
