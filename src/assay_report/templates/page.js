"use strict";
(() => {
  const root = document.documentElement;
  // A page that is not rewritten any more, because its writer was killed, stops reloading.
  if (Date.now() < root.dataset.reloadUntil) setTimeout(() => location.reload(), 5000);
  const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
  const touch = window.matchMedia("(pointer: coarse)").matches;
  const figures = JSON.parse(document.querySelector('script[type="application/json"]').textContent);

  const isDark = () => (root.dataset.theme || (systemDark.matches ? "dark" : "light")) === "dark";
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // Everything that differs between light and dark, as plotly's template.
  const template = () => {
    const axis = {
      gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line"),
      zerolinewidth: 1, ticks: "", title: { standoff: 8, font: { size: 12.5 } },
    };
    const bar = { outlinewidth: 0 };
    const scale = isDark()
      ? [[0, "#1c2026"], [0.5, "#27539f"], [1, "#9cc0ff"]]
      : [[0, "#f3f6fb"], [0.5, "#7ba4ee"], [1, "#173f94"]];
    return {
      layout: {
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--dim") },
        hoverlabel: { bgcolor: colour("--raised"), bordercolor: colour("--line"), font: { color: colour("--text") }, align: "left" },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--dim"), activecolor: colour("--accent") },
        legend: { font: { color: colour("--text") } },
        colorscale: { sequential: "Viridis" },
        xaxis: axis, yaxis: axis,
      },
      data: { heatmap: [{ colorscale: scale, colorbar: bar }], scatter: [{ marker: { colorbar: bar } }] },
    };
  };

  const plots = [...document.querySelectorAll("[data-figure]")];
  const draw = () => {
    if (!window.Plotly) return;
    const now = template();
    for (const plot of plots) {
      const { data, layout } = figures[plot.dataset.figure];
      Plotly.react(plot, data, { ...layout, template: now, dragmode: touch ? false : "zoom" }, {
        responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
        modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
        toImageButtonOptions: { format: "svg", filename: plot.dataset.figure },
      });
    }
  };
  const load = async () => {
    const packed = document.querySelector("#library");
    if (!packed) return;
    const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
    const script = document.createElement("script");  // runs only if it has the hash that the policy names
    script.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    document.head.append(script);
    draw();
  };
  load().catch(() => {
    for (const plot of plots) plot.textContent = "This figure needs a browser of 2023 or later.";
  });
  systemDark.addEventListener("change", draw);

  document.querySelector("nav #theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    draw();
  });

  // Tables: sort by a click on a column, filter by what is typed.
  const key = (row, column) => {
    const cell = row.cells[column];
    const number = Number(cell.dataset.sort ?? (cell.textContent.trim() || NaN));
    return Number.isNaN(number) ? cell.textContent : number;
  };
  const compare = (one, other) => {
    const numbers = [typeof one, typeof other].filter((kind) => kind === "number").length;
    if (numbers === 2) return one - other;
    if (numbers === 1) return typeof one === "number" ? -1 : 1;
    return one.localeCompare(other, undefined, { numeric: true });
  };
  for (const table of document.querySelectorAll("table")) {
    const body = table.tBodies[0];
    table.tHead.querySelectorAll("th").forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        table.querySelectorAll("th").forEach((one) => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].map((row) => [key(row, column), row]);
        rows.sort(([one], [other]) => (down ? compare(other, one) : compare(one, other)));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }
  for (const field of document.querySelectorAll(".filter")) {
    const rows = field.parentElement.querySelectorAll("tbody tr");
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
  }

  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const text = button.parentElement.querySelector("pre").textContent;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select and copy by hand";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  // The section that is being read.
  const links = new Map([...document.querySelectorAll("nav li a")].map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((link) => link.classList.remove("here"));
      links.get(entry.target.id)?.classList.add("here");
    }
  }, { rootMargin: "-20% 0px -75% 0px" });
  document.querySelectorAll("section").forEach((section) => watch.observe(section));
})();
