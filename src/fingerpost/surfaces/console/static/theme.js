// Before the first paint, so that the other colours are never shown. No module: modules wait.
(() => {
  try {
    const kept = localStorage.getItem("fingerpost.theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    // Storage may be switched off: then the system's colours hold.
  }
})();
