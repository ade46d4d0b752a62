// Sorting and filtering of the matrix, and opening what a link or a printer asks for. All is readable without it.
(() => {
  const folds = [...document.querySelectorAll("details")];
  let shut = [];
  addEventListener("beforeprint", () => {
    shut = folds.filter(fold => !fold.open);
    for (const fold of shut) fold.open = true;
  });
  addEventListener("afterprint", () => { for (const fold of shut) fold.open = false; });
  const reveal = () => {
    const aim = document.getElementById(location.hash.slice(1));
    for (let at = aim; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    aim?.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  const table = document.querySelector("table.matrix");
  if (!table) return;
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const value = (row, at) => at ? row.cells[at].dataset.value ?? null : row.cells[0].textContent.toLowerCase();
  const sort = at => {
    const was = heads[at].ariaSort, way = (was ? was === "ascending" : at) ? -1 : 1;
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[at].setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
    const before = (one, other) => {
      const [a, b] = [value(one, at), value(other, at)];
      if (a === null || b === null) return (a === null) - (b === null);
      return way * (at ? a - b : a.localeCompare(b));
    };
    body.append(...[...rows].sort(before));
  };
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(at));
    head.append(button);
  });

  const controls = document.querySelector(".controls"), [search, leaks] = controls.querySelectorAll("input");
  const filter = () => {
    const word = search.value.trim().toLowerCase();
    for (const row of rows)
      row.hidden = !value(row, 0).includes(word) || (leaks.checked && !row.querySelector("td .leak"));
    const shown = rows.filter(row => !row.hidden).length;
    controls.querySelector("p").textContent = `${shown} of ${rows.length} defences shown`;
  };
  search.addEventListener("input", filter);
  leaks.addEventListener("input", filter);
  filter();
  controls.hidden = false;
})();
