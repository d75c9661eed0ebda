// Before the first paint, so that nobody sees the other colours for a moment. No module: modules wait.
(() => {
  try {
    const kept = localStorage.getItem("fingerpost.theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // Storage may be switched off: then the system's colours hold.
  }
})();
