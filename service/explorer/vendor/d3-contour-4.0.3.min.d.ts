/** What the page uses of d3-contour and d3-array. */
type Grid = { data: ArrayLike<number>; width: number; height?: number };
type Contours = {
  size(size: [number, number]): Contours;
  contour(values: ArrayLike<number>, threshold: number): { coordinates: number[][][][] };
};
export function blur2(grid: Grid, radius: number): { data: Float32Array };
export function contours(): Contours;
