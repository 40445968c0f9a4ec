// The TypeScript client of glle. Start with `Client`.

export { type AuditMapOptions, Client, type ClientOptions, type EmbedOptions } from "./client.ts";
export { type Dtype, type Dtypes, NdArray, type NestedList } from "./arrays/ndarray.ts";
export { parseNpy, writeNpy } from "./arrays/npy.ts";
export { parseNpz } from "./arrays/npz.ts";
export type { Data, Labels, Row } from "./inputs.ts";
export { Dataset } from "./resources/datasets.ts";
export { Embedding, type EmbeddingValues } from "./resources/embeddings.ts";
export {
  Job, type JobResult, type PictureOptions, Posterior, type PosteriorPictureOptions,
} from "./resources/posteriors.ts";
export type {
  Advice, Audit, Calibration, Comparison, ComparisonRow, FloatArray, Placed, Sample, Spread, Summary, Transform,
} from "./resources/results.ts";
export {
  AuthError, ConflictError, GlleError, InvalidRequestError, JobTimeoutError, NotFoundError, RateLimitedError,
  UnavailableError,
} from "./transport/errors.ts";
export { EventParser, type JobEvent, type ServerEvent } from "./transport/events.ts";
export type { Retries } from "./transport/retries.ts";
export type { CallOptions, WaitOptions } from "./transport/session.ts";
export type * from "./types.ts";
