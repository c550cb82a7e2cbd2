// The keys, as in the terminal.

import { find } from "./dom.js";

export function listenToKeys(page) {
  const filter = find("#filter"), help = find("#help");
  const acts = {
    "?": () => help.showModal(),
    "/": () => filter.focus(),
    " ": () => page.freeze(),
    s: () => page.ranks.next(),
    r: () => page.ranks.reverse(),
    j: () => page.step(1),
    k: () => page.step(-1),
    "[": () => page.otherJob(-1),
    "]": () => page.otherJob(1),
    t: () => page.switchTheme(),
    "+": () => page.act("in"),
    "=": () => page.act("in"),
    "-": () => page.act("out"),
    0: () => page.act("all"),
    ArrowLeft: () => page.act("earlier"),
    ArrowRight: () => page.act("later"),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const { target } = event;
    if (target === filter) {
      if (event.key === "Escape") {
        filter.value = "";
        page.draw();
      }
      if (event.key === "Escape" || event.key === "Enter") filter.blur();
      return;
    }
    if (event.key === " " && target.closest("button, summary, a")) return;
    if (event.key === "Escape") {
      filter.value = "";
      page.selected = null;
      page.draw();
      return;
    }
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
