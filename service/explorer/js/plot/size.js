/** Size and opacity of a point: many points are small and translucent. */
export function sizeOf(n) {
  if (n <= 300) return { size: 9, opacity: 0.9 };
  if (n <= 3000) return { size: 6.5, opacity: 0.85 };
  if (n <= 20000) return { size: 4, opacity: 0.7 };
  return { size: 2.5, opacity: 0.5 };
}
