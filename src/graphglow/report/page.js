"use strict";
(() => {
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;
  // The buttons are named: Plotly's own set has one that sends the chart's data to a server.
  const buttons = ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"];
  const config = { responsive: true, displaylogo: false, plotlyServerURL: "", modeBarButtons: [buttons], displayModeBar: touch ? false : "hover" };
  const drawn = new Set();

  // All that must change in a chart when the page turns dark, in the colours of the style sheet.
  const probe = document.body.appendChild(Object.assign(document.createElement("span"), { hidden: true }));
  function colour(name) {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  }
  function template() {
    const [ink, soft, line, card, glow] = ["ink", "soft", "line", "card", "glow"].map(colour);
    const clear = "rgba(0,0,0,0)";
    const small = { color: soft, size: 12 };
    const font = { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink };
    const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line, tickfont: small, title: { font: small, standoff: 8 }, automargin: true };
    return {
      layout: {
        paper_bgcolor: clear,
        plot_bgcolor: clear,
        font,
        xaxis: axis,
        yaxis: axis,
        legend: { font: { color: ink, size: 12 }, bgcolor: clear },
        hoverlabel: { bgcolor: card, bordercolor: soft, font, align: "left" },
        modebar: { bgcolor: clear, color: soft, activecolor: glow },
      },
    };
  }

  // Theme: the system's until the button is used.
  const button = document.getElementById("theme");
  const theme = () => root.dataset.theme || (prefersDark.matches ? "dark" : "light");
  function showTheme() {
    button.setAttribute("aria-pressed", String(theme() === "dark"));
    for (const plot of drawn) Plotly.relayout(plot, { template: template() });
  }
  button.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    showTheme();
  });
  prefersDark.addEventListener("change", showTheme);

  // Charts are drawn when they come near the window; all of them, and light, on paper.
  function draw(plot) {
    if (drawn.has(plot)) return;
    drawn.add(plot);
    const { data, layout } = figures[plot.id];
    layout.template = template();
    if (touch) layout.dragmode = false;
    Plotly.newPlot(plot, data, layout, config);
  }
  const plots = [...document.querySelectorAll(".plot")];
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "600px" });
  plots.forEach((plot) => near.observe(plot));
  let onScreen;
  addEventListener("beforeprint", () => {
    onScreen = theme();
    root.dataset.theme = "light";
    plots.forEach(draw);
    showTheme();
  });
  addEventListener("afterprint", () => {
    root.dataset.theme = onScreen;
    showTheme();
  });

  // What the tables show.
  for (const box of document.querySelectorAll("[data-shows]")) {
    const show = () => { root.dataset[box.dataset.shows] = box.checked ? "on" : "off"; };
    box.addEventListener("change", show);
    show();
  }

  // Sorting: numbers from the greatest, text from A, then the other way, then as it was.
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const given = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const sorter = head.querySelector("button");
      if (!sorter) return;
      const numeric = head.classList.contains("number");
      const turns = numeric ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
      sorter.addEventListener("click", () => {
        const turn = turns[(turns.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
        heads.forEach((other) => { if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none"); });
        head.setAttribute("aria-sort", turn);
        const sign = turn === "ascending" ? 1 : -1;
        const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
        const order = turn === "none" ? given : [...given].sort((a, b) => {
          const [one, other] = [key(a), key(b)];
          if (!numeric) return sign * one.localeCompare(other);
          if (one === "" || other === "") return (one === "") - (other === ""); // missing: last
          return sign * (Number(one) - Number(other));
        });
        body.append(...order);
      });
    });
  }
  showTheme();
})();
