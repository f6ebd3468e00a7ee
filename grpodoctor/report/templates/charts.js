"use strict";
(async () => {
  if (!("DecompressionStream" in window)) return; // a note on the page says so
  const unpack = async (id) => {
    const packed = atob(document.getElementById(id).textContent);
    const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const themed = () => ({
    "font.color": color("--faint"),
    "xaxis.gridcolor": color("--line"),
    "xaxis.linecolor": color("--line"),
    "yaxis.gridcolor": color("--line"),
    "yaxis.linecolor": color("--line"),
    "hoverlabel.bgcolor": color("--card"),
    "hoverlabel.font.color": color("--ink"),
  });

  const library = document.createElement("script");
  library.textContent = await unpack("packed-library");
  document.head.append(library);
  const charts = JSON.parse(await unpack("packed-charts"));
  const elements = charts.map(({ id }) => document.getElementById(id));
  const config = { displaylogo: false, displayModeBar: false, doubleClick: "reset", responsive: true };
  for (const [at, { data, layout }] of charts.entries()) {
    await Plotly.newPlot(elements[at], data, layout, config);
    await Plotly.relayout(elements[at], themed());
  }
  for (const note of document.querySelectorAll(".chart-note")) note.remove();

  // Charts over steps share one axis: a change of its range in one applies to all.
  const linked = elements.filter((element) => element.layout.meta?.axis);
  const starts = new Map(linked.map((element) => [element, [...element.layout.xaxis.range]]));
  let isFollowing = false;
  const show = async (range, except) => {
    isFollowing = true;
    const others = linked.filter((element) => element !== except);
    await Promise.all(others.map((each) => Plotly.relayout(each, { "xaxis.range": [...range] })));
    isFollowing = false;
  };
  const zoomed = (element) => (change) => {
    const isStepChange = Object.keys(change).some((key) => key.startsWith("xaxis."));
    if (isStepChange && !isFollowing) show(element.layout.xaxis.range, element);
  };
  const pressed = (element) => (event) => {
    const [low, high] = element.layout.xaxis.range;
    const width = high - low;
    const ranges = {
      ArrowLeft: [low - width / 10, high - width / 10],
      ArrowRight: [low + width / 10, high + width / 10],
      "+": [low + width / 4, high - width / 4],
      "-": [low - width / 2, high + width / 2],
      0: starts.get(element),
    };
    const range = ranges[event.key];
    if (range === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    show(range);
  };
  for (const element of linked) {
    element.tabIndex = 0;
    element.role = "group";
    element.ariaLabel =
      "Interactive chart. Arrow keys move along the steps, plus and minus zoom, 0 shows all steps.";
    element.on("plotly_relayout", zoomed(element));
    element.addEventListener("keydown", pressed(element));
  }

  const restyle = (change) => {
    for (const element of elements) Plotly.relayout(element, { ...themed(), ...change });
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => restyle({}));
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printed");
    restyle({ width: 660 });
  });
  addEventListener("afterprint", () => {
    document.documentElement.classList.remove("printed");
    restyle({ width: null, autosize: true });
  });
})();
