// Embeddings of the service: coordinates, figures, and new points placed by the map of the method.

import type { NdArray } from "../arrays/ndarray.ts";
import { parseNpz } from "../arrays/npz.ts";
import type { Data, Labels } from "../inputs.ts";
import { NPZ, pathOf, type Session, split, type WaitOptions } from "../transport/session.ts";
import type { EmbeddingOut, SpreadOptions, UploadOptions } from "../types.ts";
import { columnId, type Dataset, datasetId } from "./datasets.ts";
import { type FloatArray, type Placed, resultOf, type Spread } from "./results.ts";

/** Description of an embedding, its coordinates and its scores. */
export interface EmbeddingValues extends Omit<EmbeddingOut, "links"> {
  /** Coordinates (n, p). */
  embedding: FloatArray;
  /** Scores by name, if any. */
  scores?: Record<string, number | null>;
  /** Id of the job, if this call computed it. */
  job?: string;
}

/** Embedding by any method, with the members of its description. */
export interface Embedding extends EmbeddingValues {
  /** Id; the same data, method, parameters and engine have the same id. */
  id: string;
}

export class Embedding {
  readonly #session: Session;

  constructor(values: EmbeddingValues, session: Session) {
    Object.assign(this, values);
    this.#session = session;
  }

  /**
   * Place new points: `embedding` (m, p). Training points get their coordinates.
   *
   * PCA, PPCA, kernel PCA and NPE have a map to new points; other methods throw InvalidRequestError.
   */
  async transform(data: Dataset | string | Data, options: UploadOptions & WaitOptions = {}): Promise<Placed> {
    const [waiting, roles] = split(options);
    const dataset = await datasetId(this.#session, data, roles, waiting);
    const job = await this.#session.run(pathOf("embeddings", this.id, "transform"), { dataset }, waiting);
    return resultOf<Placed>(await this.#session.get(pathOf("jobs", job.id, "result"), {}, waiting));
  }

  /** Return how far the embedding moves when its method is refitted to random halves of the data. */
  async spread(
    options: SpreadOptions & WaitOptions & { labels?: Dataset | NdArray | Labels | string | null } = {},
  ): Promise<Spread> {
    const [waiting, { labels, ...more }] = split(options);
    const body = { labels: await columnId(this.#session, labels, waiting), ...more };
    const job = await this.#session.run(pathOf("embeddings", this.id, "spread"), body, waiting);
    return resultOf<Spread>(await this.#session.get(pathOf("jobs", job.id, "result"), {}, waiting));
  }

  /**
   * Return the arrays of the map by name, none without a map.
   *
   * `mean` (d,) and `components` (p, d) of PCA, PPCA and NPE: a point x is at components (x - mean). Kernel PCA has the
   * `kernel_means` (n,) of its columns.
   */
  async mapArrays(options: WaitOptions = {}): Promise<Record<string, NdArray>> {
    const call = { method: "GET" as const, path: pathOf("embeddings", this.id, "arrays"), accept: NPZ };
    const { embedding: _, ...arrays } = await parseNpz((await this.#session.fetch(call, options)).bytes);
    return arrays;
  }
}
