// The events of one packet, from its first to the one that is just happening.

import { get, stream } from "./api.js";
import { useCallback, useEffect, useRef, useState } from "./ui.js";

const MOST_EVENTS = 5000; // of one packet, on the page

/** Whether this event ends the packet's journey (for now: one that waits goes on later). */
export function endsJourney(event, bare) {
  if (event.kind === "route_ended") return event.data.outcome !== "waiting";
  return bare && event.kind === "call_finished";
}

/** {events, line, error, running}: what is known of the packet, growing while it happens. */
export function usePacket(packetId) {
  const [state, setState] = useState({ events: [], line: null, error: null, running: true });
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (!packetId) return undefined;
    const control = new AbortController();
    let stop = () => {};
    setState({ events: [], line: null, error: null, running: true });
    load().catch((error) => control.signal.aborted || setState((before) => ({ ...before, error, running: false })));
    return () => (control.abort(), stop());

    async function load() {
      const { line, events } = await get(`/api/packets/${encodeURIComponent(packetId)}`, undefined, { signal: control.signal });
      const running = line.state !== "ended";
      setState({ events, line, error: null, running });
      if (running) stop = followPacket(packetId, { after: events.at(-1)?.seq, bare: line.kind === "call", onEvents, onEnd });
    }
    function onEvents(fresh) {
      setState((before) => ({ ...before, events: [...before.events, ...fresh].slice(-MOST_EVENTS) }));
    }
    async function onEnd() {
      setState((before) => ({ ...before, running: false }));
      const { line } = await get(`/api/packets/${encodeURIComponent(packetId)}`, undefined, { signal: control.signal });
      setState((before) => ({ ...before, line }));
    }
  }, [packetId, round]);
  const reload = useCallback(() => setRound((count) => count + 1), []);
  return { ...state, reload };
}

/** Tells of new events once per frame until the journey ends; gives a function that stops it. */
export function followPacket(packetId, { after, bare = false, onEvents, onEnd }) {
  let gathered = [];
  let frame = 0;
  let ended = false;
  const flush = () => {
    frame = 0;
    const fresh = gathered;
    gathered = [];
    onEvents(fresh);
    if (ended) onEnd?.();
  };
  const close = stream(
    "/api/events",
    {
      any(event) {
        if (!event?.event_id || ended) return;
        gathered.push(event);
        ended = endsJourney(event, bare);
        if (ended) close();
        frame ||= requestAnimationFrame(flush);
      },
    },
    { params: { packet_id: packetId, after }, after },
  );
  return () => {
    close();
    cancelAnimationFrame(frame);
  };
}
