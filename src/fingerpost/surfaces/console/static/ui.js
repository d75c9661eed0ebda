// What every page is made of. Text from outside always ends up in text nodes; nothing here writes HTML.

export {
  Component,
  createContext,
  h,
  html,
  render,
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "./vendor/htm-preact.js";

export { Bidi, Code, Json, spelledOut, visible } from "./ui/text.js";
export { Diff, diffLines } from "./ui/diff.js";
export { Ago, Time, duration, number } from "./ui/time.js";
export { Badge, Bar, Button, Chip, Empty, Facts, Field, Page, Skeleton, Table, Tabs } from "./ui/parts.js";
export { Dialog } from "./ui/dialog.js";
export { Toast, toast } from "./ui/toast.js";
export { PageToCome, Problem, useLoad, useStore } from "./ui/load.js";
export { keysOn, useKeys } from "./ui/keys.js";
