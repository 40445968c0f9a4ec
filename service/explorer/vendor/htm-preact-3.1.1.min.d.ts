/** What the page uses of htm and Preact. */
type Ref<T> = { current: T };
type Setter<T> = (value: T | ((before: T) => T)) => void;
export function html(strings: TemplateStringsArray, ...values: unknown[]): any;
export function render(node: unknown, parent: Element): void;
export function useState<T>(initial: T): [T, Setter<T>];
export function useReducer<S, A = void>(reduce: (state: S, action: A) => S, initial: S): [S, (action?: A) => void];
export function useEffect(effect: () => unknown, inputs?: unknown[]): void;
export function useLayoutEffect(effect: () => unknown, inputs?: unknown[]): void;
export function useRef<T = any>(initial: T): Ref<any>;
export function useMemo<T>(make: () => T, inputs?: unknown[]): T;
