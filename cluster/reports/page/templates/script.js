"use strict";
const PER_PAGE = 50;
const BAD = new Set(["diverged", "crashed", "stuck"]);

function text(value) {
  return value === null || value === undefined ? "–" : typeof value === "number" ? value.toLocaleString("en") : value;
}

function cell(row, index) {
  const made = document.createElement("td");
  if (index === 1) {
    made.className = BAD.has(row[1]) ? "bad" : row[1] === "agreed" ? "" : "warn";
  }
  if (index === 0 && row[7]) {
    const link = document.createElement("a");
    link.href = "#" + row[7];
    link.textContent = row[0];
    made.append(link);
  } else {
    made.textContent = text(row[index]);
  }
  return made;
}

// A table of many results: filtered and sorted in memory, fifty rows in the page.
function resultsTable(root, rows) {
  const body = root.querySelector("tbody");
  const status = root.querySelector("[role=status]");
  const [previous, next] = root.querySelectorAll("[data-go]");
  const form = root.querySelector("form");
  const lowered = [];
  let seen = rows.map((_, index) => index);
  let page = 0, column = -1, down = false;

  function draw() {
    const pages = Math.max(1, Math.ceil(seen.length / PER_PAGE));
    page = Math.min(Math.max(page, 0), pages - 1);
    const part = seen.slice(page * PER_PAGE, (page + 1) * PER_PAGE);
    body.replaceChildren(...part.map((index) => {
      const line = document.createElement("tr");
      for (let at = 0; at < 7; at++) line.append(cell(rows[index], at));
      return line;
    }));
    const first = seen.length ? page * PER_PAGE + 1 : 0;
    status.textContent = `${text(first)}–${text(page * PER_PAGE + part.length)} of ${text(seen.length)}`;
    previous.disabled = page === 0;
    next.disabled = page === pages - 1;
  }

  function select() {
    const wanted = form.elements.text.value.toLowerCase(), kind = form.elements.kind.value;
    if (wanted && !lowered.length) rows.forEach((row) => lowered.push(row[0].toLowerCase()));
    seen = [];
    rows.forEach((row, index) => {
      if ((!kind || row[1] === kind) && (!wanted || lowered[index].includes(wanted))) seen.push(index);
    });
    if (column >= 0) {
      const sign = down ? -1 : 1;
      seen.sort((a, b) => {
        const x = rows[a][column] ?? -1, y = rows[b][column] ?? -1;
        return x < y ? -sign : x > y ? sign : a - b;
      });
    }
    page = 0;
    draw();
  }

  form.addEventListener("input", select);
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const button of [previous, next]) {
    button.addEventListener("click", () => { page += Number(button.dataset.go); draw(); });
  }
  for (const button of root.querySelectorAll("[data-column]")) {
    button.addEventListener("click", () => {
      const chosen = Number(button.dataset.column);
      down = chosen === column && !down;
      column = chosen;
      for (const head of root.querySelectorAll("th")) head.setAttribute("aria-sort", "none");
      button.parentElement.setAttribute("aria-sort", down ? "descending" : "ascending");
      select();
    });
  }
  draw();
}

async function copy(button) {
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    const range = document.createRange();
    range.selectNodeContents(code);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

const tables = document.querySelectorAll(".results");
if (tables.length) {
  const data = JSON.parse(document.getElementById("rows").textContent);
  for (const root of tables) resultsTable(root, data[Number(root.dataset.campaign)]);
}
for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", () => copy(button));

// A timeline: the task under the pointer, or the one reached by arrow keys, is told in the line below.
function timeline(root) {
  const lanes = root.querySelector(".lanes"), detail = root.querySelector(".detail");
  const tasks = [...root.querySelectorAll(".task")];
  const matters = tasks.findIndex((task) => !task.classList.contains("plain"));
  let current = -1;

  function show(index, scrolls) {
    if (current >= 0) tasks[current].classList.remove("current");
    current = index;
    tasks[index].classList.add("current");
    detail.textContent = tasks[index].dataset.detail;
    if (scrolls) tasks[index].scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  tasks.forEach((task, index) => task.addEventListener("pointerenter", () => show(index, false)));
  lanes.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by || !tasks.length) return;
    event.preventDefault();
    show(current < 0 ? Math.max(0, matters) : Math.min(tasks.length - 1, Math.max(0, current + by)), true);
  });
  const whole = lanes.querySelector("svg:not(.heads)");
  lanes.scrollTop = Number(lanes.dataset.focus) * whole.clientWidth / whole.viewBox.baseVal.width;
}

for (const root of document.querySelectorAll(".timeline")) timeline(root);

// The coverage of one policy: the numbers of the cells are exchanged, and their shades.
for (const form of document.querySelectorAll(".policies")) {
  const cells = [...form.nextElementSibling.querySelectorAll("td[data-runs]")];
  const runs = cells.map((cell) => JSON.parse(cell.dataset.runs));
  form.addEventListener("change", () => {
    const policy = form.elements.policy.value;
    const counts = runs.map((each) => policy ? each[policy] || 0 : Object.values(each).reduce((a, b) => a + b, 0));
    const most = Math.max(...counts);
    cells.forEach((cell, index) => {
      cell.textContent = counts[index] ? text(counts[index]) : "never";
      cell.className = `shade-${counts[index] ? Math.ceil(5 * counts[index] / most) : 0}`;
    });
  });
}
