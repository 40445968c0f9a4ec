// Results of analyses: their values and their arrays by name.

import { type Dtype, isDtype, NdArray, sizeOf, zeros } from "../arrays/ndarray.ts";
import type { AuditOut, NoteOut, ProblemOut, RegionsOut, ReliabilityOut, SpreadFiguresOut, SpreadOut } from "../types.ts";

/** Array of floating-point numbers. */
export type FloatArray = NdArray<"float64" | "float32">;

/** Movement of an embedding when its method is refitted to halves of the data; arrays have a row for each point. */
export interface Spread extends Omit<SpreadOut, "arrays"> {
  /** Mean place (n, p) over the half-samples. */
  consensus: FloatArray;
  /** Covariance of each place (n, p, p). */
  covariance: FloatArray;
  /** Root of the trace of the covariance (n,); no interval. */
  movement: FloatArray;
  /** Parts of the movement by the choice of points and by the seed (n,). */
  sampling_movement: FloatArray;
  seed_movement: FloatArray;
  /** Disc about the consensus that holds half of the refits (n,). */
  radius: FloatArray;
  /** Distance to the next point of another class (n,), if there are several. */
  margin?: FloatArray;
  /** Share of neighbors that stay neighbors (n,). */
  neighbor_stability: FloatArray;
  /** Mean distance to the 10 nearest neighbors in the data (n,). */
  baseline: FloatArray;
  /** Class of each point (n,). */
  classes: NdArray;
}

/** Method of a comparison: its scores, or its problem. */
export interface ComparisonRow {
  label: string;
  method: string;
  parameters: Record<string, unknown>;
  /** Id of the embedding; null for a failed method. */
  embedding: string | null;
  scores: Record<string, number | null>;
  seconds: Record<string, number>;
  eigenvalues: number[] | null;
  figures: Record<string, unknown>;
  notes: NoteOut[];
  /** How much of its picture remains over half-samples, with `spread`. */
  spread?: SpreadFiguresOut | null;
  problem: ProblemOut | null;
}

/** Several methods with the same scores. */
export interface Comparison {
  dataset: string;
  rows: ComparisonRow[];
  n_neighbors: number;
  align: "first" | "truth" | null;
  aligned_to: string | null;
  /** Embeddings (n, p) by label, with `align`. */
  arrays: Record<string, FloatArray>;
  /** Id of the job, whose picture is `/v1/jobs/{id}/result.png`. */
  job: string;
}

/** Draws that an analysis used. */
export interface Sample {
  first: number;
  seed: number;
  scale: number;
  source: "posterior" | "prior";
}

/** How far points move: over new samples of the data by draws and resamples, or from draw to draw. */
export interface Summary extends Sample {
  count: number;
  /** Whether the scale is that of a calibration (`scale: "auto"`). */
  calibrated: boolean;
  /** Number of resamples of each of three kinds; this and all optional members are those of an ensemble. */
  resamples?: number;
  /** Whether points can be ranked by the spread: read it before regions and ranks. */
  reliability?: ReliabilityOut;
  /** Levels of the regions, and the radius of each. */
  regions?: RegionsOut;
  /** Mean place of each point (n, p). */
  consensus: FloatArray;
  /** Covariance of each point (n, p, p). */
  covariance: FloatArray;
  /** Root mean square distance that each point moves (n,): the root of the trace of the covariance. */
  spread: FloatArray;
  /** Share of neighbors that each point keeps (n,). */
  stability: FloatArray;
  /** Trustworthiness of each point of the reference embedding (n,). */
  local_trust: FloatArray;
  /** Spreads of the parts (n,): draws, halves of the data, halves with random n_neighbors, and larger samples. */
  draw_spread?: FloatArray;
  half_sample_spread?: FloatArray;
  random_k_spread?: FloatArray;
  larger_sample_spread?: FloatArray;
  /** Centers of the regions (n, p): the reference embedding. */
  center?: FloatArray;
  /** Half-axes of the regions of radius 1 in rows (n, p, p), the longest first. */
  half_axes?: FloatArray;
  quantiles: Record<"levels" | "spread" | "stability" | "local_trust", number[]>;
  notes: NoteOut[];
  spectrum: Record<string, unknown>;
}

/** New points in the embedding of a posterior. */
export interface Transform extends Sample {
  dataset: string;
  draws: number;
  /** Coordinates (m, p). */
  embedding: FloatArray;
  /** Distance of each new point from its nearest neighbor of the data (m,). */
  distances: FloatArray;
  /** Mean over draws (m, p), with `draws`. */
  mean?: FloatArray;
  /** Covariance over draws (m, p, p), with `draws`. */
  covariance?: FloatArray;
}

/** New points, placed in an embedding by the map of its method. */
export interface Placed {
  /** Id of the new points. */
  dataset: string;
  /** Coordinates (m, p). */
  embedding: FloatArray;
}

/** Scale at which draws spread as half-samples of the data do. */
export interface Calibration {
  scale: number;
  ratio: number;
  rank_correlation: number;
  slope: number | null;
  saturated: boolean;
  half_samples: number;
  draws: number;
  seed: number;
  /** Trial scales and their ratios. */
  trace: [number, number][];
  /** Doubts about the scale: saturated, not matched, or poorly correlated with half-samples. */
  notes: NoteOut[];
  half_sample_spread: FloatArray;
  draw_spread: FloatArray;
}

/** What the data support of a map. */
export interface Audit extends Omit<AuditOut, "arrays"> {
  /** Audited coordinates (n, p). */
  embedding: FloatArray;
  /** P-value of each neighborhood against chance (n,), and the points beyond it. */
  p_value?: FloatArray;
  is_point_beyond?: NdArray<"bool">;
  /** Probability that neighbors stay neighbors (n,); this and all below not of coordinates alone. */
  stability?: FloatArray;
  spread?: FloatArray;
  /** Half-axes of the regions of radius 1 in rows (n, p, p), the longest first. */
  half_axes?: FloatArray;
  /** Probability that most neighbors are of the point's group (n,), with labels. */
  member_probability?: FloatArray;
  /** Id of the job. */
  job: string;
}

/** Suggested parameters, and the curves behind them. */
export interface Advice {
  n_neighbors: number | null;
  n_components: number | null;
  intrinsic_dimension: number | null;
  neighbors_curve: Record<string, number | null>[];
  components_curve: Record<string, number | null>[];
}

/** Array in JSON. */
interface JsonArray {
  shape: number[];
  dtype: string;
  data: unknown;
}

/** Return a result of JSON: its values, and its arrays by name beside them. */
export function resultOf<T>(content: { arrays?: Record<string, JsonArray> }, more: object = {}): T {
  const { arrays, ...values } = content;
  return { ...values, ...arraysOf(arrays), ...more } as T;
}

/** Return a comparison of JSON; labels name its arrays, so they stay apart from its values. */
export function comparisonOf(content: { arrays?: Record<string, JsonArray> }, job: string): Comparison {
  return { ...content, arrays: arraysOf(content.arrays), job } as unknown as Comparison;
}

function arraysOf(arrays: Record<string, JsonArray> = {}): Record<string, NdArray> {
  return Object.fromEntries(Object.entries(arrays).map(([name, array]) => [name, arrayOf(name, array)]));
}

/** Return an array of JSON; null is NaN, because JSON has no other. */
function arrayOf(name: string, array: JsonArray): NdArray {
  if (!isDtype(array.dtype)) throw new TypeError(`The array ${name} is of the unknown dtype ${array.dtype}.`);
  const data = zeros(array.dtype as Dtype, sizeOf(array.shape)) as unknown[];
  const isBig = array.dtype === "int64" || array.dtype === "uint64";
  let filled = 0;
  const fill = (value: unknown): void => {
    if (Array.isArray(value)) value.forEach(fill);
    else data[filled++] = isBig ? BigInt(value as number) : value === null ? Number.NaN : value;
  };
  fill(array.data);
  return new NdArray(data as never, array.shape, array.dtype as Dtype);
}
