// Reports the point of a chart that a reader clicks: Streamlit reports none while dragging selects
// steps, and none of a line without markers.
const MARK_PIXELS = 8; // half the size of a mark, and some room

export default function ({ data, setTriggerValue }) {
  let attended = null;
  const clicked = ({ points, event }) => {
    // All curves of the panel have a point at this step. The mark of a finding lies on its curve.
    const top = event.clientY - attended.getBoundingClientRect().top;
    const away = ({ y, yaxis, data: { meta } }) =>
      Math.abs(yaxis._offset + yaxis.d2p(y) - top) - (meta?.findings ? MARK_PIXELS : 0);
    const [nearest] = [...points].sort((one, other) => away(one) - away(other));
    const { x, customdata, data: { meta } } = nearest;
    setTriggerValue("point", { x, meta: meta ?? {}, customdata: customdata ?? [] });
  };
  const neglect = () => attended?.removeListener?.("plotly_click", clicked);
  const attend = ({ target }) => {
    const chart = target.closest?.(`.st-key-${data.chart} .js-plotly-plot`);
    if (!chart) return;
    neglect();
    attended = chart;
    chart.on("plotly_click", clicked);
  };
  // Streamlit draws a chart anew when its data grows, so the chart is looked up at each click.
  document.addEventListener("pointerdown", attend, true);
  return () => {
    document.removeEventListener("pointerdown", attend, true);
    neglect();
  };
}
