// `Client`: one service as an object.

import type { NdArray } from "./arrays/ndarray.ts";
import { type Data, type Labels, splitData } from "./inputs.ts";
import { columnId, Dataset, datasetId, upload } from "./resources/datasets.ts";
import { Embedding, type EmbeddingValues } from "./resources/embeddings.ts";
import { Job, type PictureOptions, Posterior, picture } from "./resources/posteriors.ts";
import { type Advice, type Audit, type Comparison, comparisonOf, resultOf } from "./resources/results.ts";
import { RETRIES, type Retries } from "./transport/retries.ts";
import { type CallOptions, command, json, NPZ, pathOf, question, Session, split, type WaitOptions } from "./transport/session.ts";
import type {
  AdviceOptions, AuditOptions, ComparedIn, CompareOptions, DatasetOut, DatasetPreviewOut, DatasetsOptions, EmbeddingOut,
  EmbeddingsOptions, EstimateOut, FitOptions, InfoOut, JobOut, JobsOptions, ListedEmbeddingOut, MethodList, MethodOut, MethodsOptions, PosteriorEstimateOut, PosteriorOut,
  PosteriorsOptions, ScoreList, ScoreOut, SyntheticIn, SyntheticOptions, UploadOptions, UsageOut,
} from "./types.ts";

/** Options of a client. */
export interface ClientOptions {
  /** Address; by default GLLE_URL, or http://127.0.0.1:8000. */
  url?: string | undefined;
  /** API key; by default GLLE_KEY, or none. */
  key?: string | undefined;
  /** Retries of calls without an answer, or with 429, 502, 503 or 504. */
  retries?: Partial<Retries> | undefined;
  /** Seconds between two parts of one response. */
  timeout?: number | undefined;
  /** Function that replaces the network. */
  fetch?: typeof fetch | undefined;
}

/** Options of an embedding, with those of `dataset` for data to upload. */
export interface EmbedOptions extends UploadOptions, WaitOptions {
  /** Parameters of the method, such as `n_neighbors`. */
  parameters?: Record<string, unknown>;
  /** Class of each point: numbers or words, or a data set of one column; by default the column `label` of the data. */
  labels?: Dataset | string | NdArray | Labels | null;
  /** True coordinates; for a synthetic data set the data set itself. */
  truth?: Dataset | string | Data | null;
  /** Names of scores; by default all fast ones, [] for none. */
  scores?: string[] | null;
  /** Neighbors that the scores use. */
  score_neighbors?: number | null;
}

/** Options of an audit, with those of `dataset` for data to upload. */
export interface AuditMapOptions extends AuditOptions, UploadOptions, WaitOptions {
  /** Coordinates (n, p) from anywhere: they are only compared with chance. */
  coordinates?: Dataset | string | Data | null;
  /** Method of the map, and its parameters. */
  method?: string | null;
  parameters?: Record<string, unknown>;
  /** Group of each point: numbers or words, or a data set; by default the labels of the data. */
  labels?: Dataset | string | NdArray | Labels | null;
}

const URL_ = "http://127.0.0.1:8000";
const TIMEOUT = 120; // seconds
const PAGE = 100; // items

/** Client of one service. */
export class Client {
  readonly url: string;
  readonly #session: Session;

  /** Connect to an address, or by options. */
  constructor(address: string | ClientOptions = {}) {
    const options = typeof address === "string" ? { url: address } : address;
    const environment = (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env ?? {};
    this.url = addressOf(options.url || environment["GLLE_URL"] || URL_);
    const endpoint = {
      url: this.url,
      key: options.key || environment["GLLE_KEY"] || undefined,
      timeout: options.timeout ?? TIMEOUT,
      fetch: options.fetch ?? ((input: RequestInfo | URL, init?: RequestInit) => fetch(input, init)),
    };
    this.#session = new Session(endpoint, { ...RETRIES, ...options.retries });
  }

  /** Return the data set of an array, rows, objects, a file, or an id; data are uploaded. */
  async dataset(data: Dataset | string | Data, options: UploadOptions & CallOptions = {}): Promise<Dataset> {
    const [{ signal }, roles] = split(options);
    const isStored = data instanceof Dataset || typeof data === "string";
    const id = isStored ? await datasetId(this.#session, data, roles) : "";
    if (data instanceof Dataset) return data;
    const metadata = typeof data === "string"
      ? await this.#session.get<DatasetOut>(pathOf("datasets", id), {}, { signal })
      : await upload<DatasetOut>(this.#session, data, roles, "", { signal });
    return new Dataset(metadata, this.#session);
  }

  /** Return what `dataset` would store, and store nothing: columns and roles, first rows, `problem` or null. */
  async preview(data: Data, options: UploadOptions & CallOptions = {}): Promise<DatasetPreviewOut> {
    const [{ signal }, roles] = split(options);
    return upload<DatasetPreviewOut>(this.#session, data, roles, "/preview", { signal });
  }

  /** Return a data set sampled by the service: `swiss_roll`, `s_curve` and others. */
  async synthetic(
    name: SyntheticIn["name"],
    n = 1000,
    options: SyntheticOptions & CallOptions = {},
  ): Promise<Dataset> {
    const { signal, ...body } = options;
    const reply = await this.#session.send(question("/v1/datasets/synthetic", { name, n, ...body }), { signal });
    return new Dataset(json<DatasetOut>(reply), this.#session);
  }

  /**
   * Return the posterior of a data set; fit it unless the service has it. Data to upload have the options of `dataset`.
   *
   * `neighbors` replaces the search: rows of the data, counted from 0, as a data set (n, k), its id, or data to upload.
   */
  async fit(
    data: Dataset | string | Data,
    options: FitOptions & UploadOptions & WaitOptions & { neighbors?: Dataset | string | Data } = {},
  ): Promise<Posterior> {
    const { neighbors, ...more } = options;
    const [waiting, others] = split(more);
    const [roles, parameters] = splitData(others);
    const dataset = await datasetId(this.#session, data, roles, waiting);
    const given = neighbors === undefined ? {} : { neighbors: await datasetId(this.#session, neighbors, {}, waiting) };
    const reply = await this.#session.send(command("/v1/posteriors", { dataset, ...given, ...parameters }), waiting);
    if (reply.status !== 202) return new Posterior(json<PosteriorOut>(reply), this.#session);
    const job = await this.#session.follow(json<JobOut>(reply), waiting);
    return this.posterior(String(job.posterior), waiting);
  }

  /** Return the posterior of a file that `Posterior.export` returned, stored in this service; draws have equal bits. */
  async importPosterior(file: Blob, options: CallOptions = {}): Promise<Posterior> {
    const body = { media: NPZ, content: file };
    const call = { method: "POST" as const, path: "/v1/posteriors/import", body, byContent: true };
    return new Posterior(json<PosteriorOut>(await this.#session.send(call, options)), this.#session);
  }

  /** Return the expected seconds and bytes of a fit and of its draws, and a `problem` with remedies, or null. */
  async estimateFit(
    data: Dataset | string | Data,
    options: FitOptions & UploadOptions & WaitOptions = {},
  ): Promise<PosteriorEstimateOut> {
    const [waiting, others] = split(options);
    const [roles, parameters] = splitData(others);
    const dataset = await datasetId(this.#session, data, roles, waiting);
    const call = question("/v1/posteriors/estimate", { dataset, ...parameters });
    return json<PosteriorEstimateOut>(await this.#session.fetch(call, waiting));
  }

  /** Return suitable `n_neighbors` and `n_components` for a data set, with the curves behind them. */
  async advice(
    data: Dataset | string | Data,
    options: AdviceOptions & UploadOptions & WaitOptions = {},
  ): Promise<Advice> {
    const [waiting, others] = split(options);
    const [roles, body] = splitData(others);
    const dataset = await datasetId(this.#session, data, roles, waiting);
    const [content] = await this.#run("/v1/advice", { dataset, ...body }, waiting);
    return resultOf<Advice>(content);
  }

  /** Return what the data support of a map: coordinates or a method beside data, an embedding, or a posterior. */
  async audit(data: Dataset | Embedding | Posterior | string | Data, options: AuditMapOptions = {}): Promise<Audit> {
    const [waiting, others] = split(options);
    const [roles, { coordinates, labels, ...more }] = splitData(others);
    const body: Record<string, unknown> = { ...more, labels: await columnId(this.#session, labels, waiting) };
    const id = data instanceof Embedding || data instanceof Posterior ? data.id : data;
    const kind = typeof id === "string" ? { post: "posterior", emb: "embedding" }[id.split("_")[0] as "post"] : undefined;
    if (kind !== undefined) body[kind] = id;
    else body["dataset"] = await datasetId(this.#session, id as Dataset | string | Data, roles, waiting);
    if (coordinates) body["coordinates"] = await datasetId(this.#session, coordinates, {}, waiting);
    const [content, job] = await this.#run("/v1/audits", body, waiting);
    return resultOf<Audit>(content, { job });
  }

  /** Return the methods with their parameters; `makes: "embedding"` for those of `embed`. */
  async methods(options: MethodsOptions & CallOptions = {}): Promise<MethodOut[]> {
    const { signal, ...query } = options;
    return (await this.#session.get<MethodList>("/v1/methods", query, { signal })).items;
  }

  /** Return the scores: the data that they need, and which direction is better. */
  async scores(options: CallOptions = {}): Promise<ScoreOut[]> {
    return (await this.#session.get<ScoreList>("/v1/scores", {}, options)).items;
  }

  /** Return the embedding of a data set by a method; its `transform` places new points, if the method has a map. */
  async embed(data: Dataset | string | Data, method: string, options: EmbedOptions = {}): Promise<Embedding> {
    const [waiting, others] = split(options);
    const [roles, { parameters = {}, labels, truth, scores = null, score_neighbors = null }] = splitData(others);
    const body = {
      ...(await this.#scoredData(data, roles, labels, [method], scores, waiting)),
      method,
      parameters,
      truth: await this.#truthId(truth, waiting),
      scores,
      n_neighbors: score_neighbors,
    };
    const [content, job] = await this.#run("/v1/embeddings", body, waiting);
    return new Embedding(resultOf<EmbeddingValues>(content, { job }), this.#session);
  }

  /** Return the scores of several methods on one data set; with `align` also the embeddings. */
  async compare(
    data: Dataset | string | Data,
    methods: (string | ComparedIn)[],
    options: CompareOptions & UploadOptions & Pick<EmbedOptions, "labels" | "truth"> & WaitOptions = {},
  ): Promise<Comparison> {
    const [waiting, others] = split(options);
    const [roles, { labels, truth, ...more }] = splitData(others);
    const compared = methods.map((method) => (typeof method === "string" ? { method } : method));
    const names = compared.map(({ method }) => method);
    const body = {
      ...(await this.#scoredData(data, roles, labels, names, more.scores, waiting)),
      methods: compared,
      truth: await this.#truthId(truth, waiting),
      ...more,
    };
    return comparisonOf(...(await this.#run("/v1/comparisons", body, waiting)));
  }

  /** Return the expected seconds and bytes of an embedding, and the `problem` of its refusal, or null. */
  async estimate(
    data: Dataset | string | Data,
    method: string,
    options: UploadOptions & CallOptions & { parameters?: Record<string, unknown> } = {},
  ): Promise<EstimateOut> {
    const { signal, parameters = {}, ...roles } = options;
    const dataset = await datasetId(this.#session, data, roles, { signal });
    const call = question("/v1/embeddings/estimate", { dataset, method, parameters });
    return json<EstimateOut>(await this.#session.send(call, { signal }));
  }

  /** Return the picture of a path: `/v1/jobs/${comparison.job}/result.png`, `/v1/embeddings/${id}.svg`. */
  async picture(path: string, options: PictureOptions = {}): Promise<Blob> {
    return picture(this.#session, path, options);
  }

  /** Return the embedding of an id, with its coordinates; an evicted one is computed again. */
  async embedding(id: string, options: WaitOptions = {}): Promise<Embedding> {
    const path = pathOf("embeddings", id);
    const metadata = await this.#session.get<EmbeddingOut>(path, {}, options);
    const embedding = (await this.#session.array(`${path}/coordinates`, {}, options)) as EmbeddingValues["embedding"];
    return new Embedding({ ...metadata, embedding }, this.#session);
  }

  /** Delete an embedding, its scores and its pictures; comparisons stay. */
  async deleteEmbedding(id: string, options: CallOptions = {}): Promise<void> {
    await this.#session.send({ method: "DELETE", path: pathOf("embeddings", id) }, options);
  }

  /** Return the posterior of an id; wait for a running fit. */
  async posterior(id: string, options: WaitOptions = {}): Promise<Posterior> {
    const path = pathOf("posteriors", id);
    return new Posterior(await this.#session.get<PosteriorOut>(path, {}, options), this.#session);
  }

  /** Return the job of an id. */
  async job(id: string, options: CallOptions = {}): Promise<Job> {
    return new Job(await this.#session.get<JobOut>(pathOf("jobs", id), {}, options), this.#session);
  }

  /** Iterate over the data sets, newest first. */
  datasets(options: DatasetsOptions & CallOptions = {}): AsyncGenerator<Dataset, void, undefined> {
    return this.#list("datasets", options, (metadata: DatasetOut) => new Dataset(metadata, this.#session));
  }

  /** Iterate over the posteriors, newest first. */
  posteriors(options: PosteriorsOptions & CallOptions = {}): AsyncGenerator<Posterior, void, undefined> {
    return this.#list("posteriors", options, (metadata: PosteriorOut) => new Posterior(metadata, this.#session));
  }

  /** Iterate over the descriptions of the requested embeddings, newest first; `embedding(id)` has coordinates. */
  embeddings(options: EmbeddingsOptions & CallOptions = {}): AsyncGenerator<ListedEmbeddingOut, void, undefined> {
    return this.#list("embeddings", options, (metadata: ListedEmbeddingOut) => metadata);
  }

  /** Iterate over the jobs, newest first: all, or those of a `status` or a `kind`. */
  jobs(options: JobsOptions & CallOptions = {}): AsyncGenerator<Job, void, undefined> {
    return this.#list("jobs", options, (metadata: JobOut) => new Job(metadata, this.#session));
  }

  /** Return the service's versions and limits. */
  async info(options: CallOptions = {}): Promise<InfoOut> {
    return this.#session.get<InfoOut>("/v1/info", {}, options);
  }

  /** Return what the key's tenant stores and does, beside its quotas. */
  async usage(options: CallOptions = {}): Promise<UsageOut> {
    return this.#session.get<UsageOut>("/v1/usage", {}, options);
  }

  async *#list<M, T>(kind: string, options: CallOptions, build: (metadata: M) => T): AsyncGenerator<T, void> {
    const { signal, ...filters } = options;
    let cursor: string | null = null;
    do {
      const query = { ...filters, limit: PAGE, cursor };
      const page: { items: M[]; next: string | null } = await this.#session.get(`/v1/${kind}`, query, { signal });
      for (const item of page.items) yield build(item);
      cursor = page.next;
    } while (cursor !== null);
  }

  async #run(path: string, body: object, waiting: WaitOptions): Promise<[object, string]> {
    const { id } = await this.#session.run(path, body, waiting);
    return [await this.#session.get<object>(pathOf("jobs", id, "result"), {}, waiting), id];
  }

  /** Return the ids of a data set and of its labels: separate ones, or the column `label` of uploaded data if used. */
  async #scoredData(
    data: Dataset | string | Data,
    roles: UploadOptions,
    labels: EmbedOptions["labels"],
    methods: string[],
    scores: string[] | null | undefined,
    waiting: WaitOptions,
  ): Promise<{ dataset: string; labels: string | null }> {
    const isGiven = labels !== null && labels !== undefined;
    const hasLabel = roles.label !== null && roles.label !== undefined;
    if (isGiven && hasLabel) throw new TypeError("`label` names a column, `labels` has the values. Give one of them.");
    const dataset = await datasetId(this.#session, data, roles, waiting);
    if (isGiven) return { dataset, labels: await columnId(this.#session, labels, waiting) };
    return { dataset, labels: hasLabel && (await this.#useLabels(methods, scores, waiting)) ? dataset : null };
  }

  /** Return whether a method or a score uses labels, as the default scores do; the service refuses unused labels. */
  async #useLabels(methods: string[], scores: string[] | null | undefined, options: CallOptions): Promise<boolean> {
    if (scores === null || scores === undefined) return true;
    const { signal } = options;
    if ((await this.scores({ signal })).some(({ name, needs }) => needs === "labels" && scores.includes(name))) return true;
    return (await this.methods({ signal })).some(({ name, needs_labels }) => needs_labels && methods.includes(name));
  }

  async #truthId(truth: EmbedOptions["truth"], waiting: WaitOptions): Promise<string | null> {
    return truth === null || truth === undefined ? null : datasetId(this.#session, truth, {}, waiting);
  }
}

/** Return an address without a final slash. Throw TypeError for one without HTTP or host. */
function addressOf(text: string): string {
  const isAddress = URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
  if (!isAddress) throw new TypeError(`${JSON.stringify(text)} is no URL: give one such as ${URL_}.`);
  return text.replace(/\/+$/, "");
}
