// Panels: curves, stacked shares and reliability diagrams by Bokeh, bars as plain elements.
"use strict";
const charts = {
  numColours: 10, // of style.css
  dashes: ["solid", [6, 4], [2, 3], [8, 3, 2, 3], [12, 4], [1, 4]],
  eventColours: { restart: "soft", skipped: "curve-1", alarm: "bad" },
  mostMarkers: 60,

  // Colour by figure where one run is shown, by run where there are several; the figure is a dash then.
  look(mark, numRuns) {
    const number = numRuns > 1 ? mark.run : mark.place;
    const dash = numRuns > 1 ? mark.place : 0;
    return { colour: dom.colour(`curve-${number % charts.numColours}`), dash: charts.dashes[dash % charts.dashes.length] };
  },

  name(mark, report) {
    return report.runs.length > 1 ? `${report.runs[mark.run].name}: ${mark.label}` : mark.label;
  },

  // The panel's element; Bokeh's views to be removed later go to `views`.
  draw(panel, report, state, views) {
    const body = dom.make("div", { class: "chart" });
    const section = dom.make(
      "section",
      { class: "panel", id: `panel-${panel.name}`, "data-kind": panel.kind },
      dom.make("h3", {}, panel.title, panel.unit && panel.kind !== "bars" ? dom.make("span", { class: "unit" }, panel.unit) : null),
      panel.note ? dom.make("p", { class: "note" }, panel.note) : null,
    );
    section.dataset.marks = "0";
    section.append(body);
    if (panel.kind === "bars") {
      body.append(charts.bars(panel, report));
      section.dataset.marks = String(panel.marks.reduce((sum, mark) => sum + mark.values.length, 0));
      return section;
    }
    section.finish = async () => {
      const { figure, chips, count } = charts.figure(panel, report, state);
      views.push(await Bokeh.Plotting.show(figure, body));
      body.addEventListener("dblclick", () => {
        [figure.x_range, figure.y_range].forEach((range) => range.setv(range.whole));
      });
      body.setAttribute("role", "img");
      body.setAttribute("aria-label", charts.described(panel, report));
      section.append(dom.make("div", { class: "chips" }, chips));
      section.dataset.marks = String(count);
    };
    return section;
  },

  // What a chart shows, for those who do not see it.
  described(panel, report) {
    const curves = panel.marks.map((mark) => [charts.name(mark, report), panel.kind === "curves" ? mark.last : "", mark.best ? `(${mark.best.text})` : ""].filter(Boolean).join(" "));
    return `${panel.title}${panel.unit ? `, ${panel.unit}` : ""}: ${curves.join("; ")}`;
  },

  figure(panel, report, state) {
    const isLog = state.log && panel.log;
    const isPlane = panel.kind === "reliability";
    const marks = panel.marks.map((mark) => charts.columns(mark, panel, state, isLog));
    const scale = isPlane ? { unit: "predicted", factor: 1 } : charts.timeScale(marks, state);
    if (!isPlane) marks.forEach((mark) => (mark.x = mark.x.map((x) => x / scale.factor)));
    const { xRange, yRange } = charts.ranges(panel, marks, isLog);
    const isTouch = window.matchMedia("(pointer: coarse)").matches;
    const figure = Bokeh.Plotting.figure({
      height: 250,
      sizing_mode: "stretch_width",
      tools: isTouch ? "" : "box_zoom",
      toolbar_location: null,
      x_range: xRange,
      y_range: yRange,
      y_axis_type: isLog ? "log" : "linear",
      background_fill_alpha: 0,
      border_fill_alpha: 0,
      outline_line_color: null,
      min_border_right: 12,
    });
    [xRange, yRange].forEach((range) => (range.whole = { start: range.start, end: range.end }));
    charts.style(figure, panel, state, scale, isPlane);
    if (isPlane) charts.diagonal(figure);
    else charts.events(figure, report, state, scale, isLog, yRange);
    const chips = [];
    let count = 0;
    const drawn = panel.kind === "shares" ? charts.stacked(marks) : marks;
    drawn.forEach((mark) => {
      const look = charts.look(mark, panel.kind === "shares" ? 1 : report.runs.length);
      const renderers = charts.render(figure, panel, mark, look, report);
      count += mark.x.length;
      chips.push(charts.chip(mark, look, renderers, panel, report));
    });
    return { figure, chips, count };
  },

  // Columns to draw, without what a logarithmic axis has no place for.
  columns(mark, panel, state, isLog) {
    if (panel.kind === "reliability") return { ...mark, x: mark.predicted, y: mark.actual };
    const keep = mark.value.map((value) => value !== null && (!isLog || value > 0));
    const pick = (row) => row.filter((_, index) => keep[index]);
    const floor = isLog ? Math.min(...mark.value.filter((value) => value > 0)) : -Infinity;
    const low = pick(mark.low).map((value) => (isLog && !(value > 0) ? floor : value));
    return {
      ...mark,
      x: pick(state.time ? mark.minutes : mark.step),
      y: pick(mark.value),
      step: pick(mark.step),
      minutes: pick(mark.minutes),
      mean: mark.mean.length ? pick(mark.mean) : [],
      low,
      high: pick(mark.high),
    };
  },

  timeScale(marks, state) {
    if (!state.time) return { unit: "step", factor: 1 };
    const longest = Math.max(0, ...marks.flatMap((mark) => mark.x.slice(-1)));
    if (longest > 3 * 24 * 60) return { unit: "days", factor: 24 * 60 };
    return longest > 3 * 60 ? { unit: "hours", factor: 60 } : { unit: "minutes", factor: 1 };
  },

  // Around all points, a single one among them; shares begin at 0.
  ranges(panel, marks, isLog) {
    if (panel.kind === "reliability") {
      return { xRange: new Bokeh.Range1d({ start: -0.03, end: 1.03 }), yRange: new Bokeh.Range1d({ start: -0.03, end: 1.03 }) };
    }
    const all = (rows) => marks.flatMap(rows).filter((value) => value !== null && Number.isFinite(value));
    const [left, right] = charts.extent(all((mark) => mark.x));
    let [low, high] = charts.extent(all((mark) => [...mark.y, ...mark.low, ...mark.high]));
    if (panel.kind === "shares") [low, high] = [0, 1];
    else if (isLog) {
      const room = Math.max(1.05, (high / low) ** 0.06);
      [low, high] = [low / room, high * room];
    } else {
      const isAboveZero = low >= 0;
      if (isAboveZero && panel.from_zero) low = 0;
      const room = 0.06 * (high - low) || Math.abs(high) * 0.1 || (panel.share ? 0.1 : 0.5);
      [low, high] = [low - room, high + room];
      if (isAboveZero && (panel.share || panel.from_zero || low < 0)) low = 0;
    }
    const side = 0.02 * (right - left) || Math.max(1, Math.abs(right) * 0.1);
    return {
      xRange: new Bokeh.Range1d({ start: left - side, end: right + side }),
      yRange: new Bokeh.Range1d({ start: low, end: high }),
    };
  },

  extent(values) {
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    return low <= high ? [low, high] : [0, 1];
  },

  style(figure, panel, state, scale, isPlane) {
    const font = "system-ui, sans-serif";
    for (const axis of [figure.xaxis, figure.yaxis]) {
      axis.axis_line_color = dom.colour("line");
      axis.major_tick_line_color = dom.colour("line");
      axis.minor_tick_line_color = null;
      axis.major_label_text_color = dom.colour("soft");
      axis.major_label_text_font = font;
      axis.axis_label_text_font = font;
      axis.axis_label_text_font_style = "normal";
      axis.axis_label_text_font_size = "11px";
      axis.axis_label_text_color = dom.colour("soft");
    }
    figure.xgrid.grid_line_color = null;
    figure.ygrid.grid_line_color = dom.colour("line");
    const percent = () => new Bokeh.NumeralTickFormatter({ format: "0[.]0%" });
    figure.xaxis.axis_label = isPlane ? "across: expected; up: came true" : scale.unit;
    if (isPlane) figure.xaxis.formatter = percent();
    else if (!state.time) figure.xaxis.formatter = new Bokeh.NumeralTickFormatter({ format: "0[.]0a" });
    if (panel.share) figure.yaxis.formatter = percent();
    else if (panel.name === "learning_rate") figure.yaxis.formatter = new Bokeh.PrintfTickFormatter({ format: "%.3g" });
    else if (panel.marks.some((mark) => mark.value.some((value) => value >= 10000))) {
      figure.yaxis.formatter = new Bokeh.NumeralTickFormatter({ format: "0[.]0a" });
    }
  },

  diagonal(figure) {
    figure.line([0, 1], [0, 1], { line_color: dom.colour("soft"), line_dash: [4, 4], line_width: 1.5 });
  },

  // Restarts, skipped steps and alarms as upright lines behind the curves.
  events(figure, report, state, scale, isLog, yRange) {
    for (const run of report.runs) {
      for (const event of run.events) {
        if (event.step === null) continue;
        const location = (state.time ? event.minutes : event.step) / scale.factor;
        figure.add_layout(
          new Bokeh.Span({
            location,
            dimension: "height",
            level: "underlay",
            line_color: dom.colour(charts.eventColours[event.kind]),
            line_dash: event.kind === "restart" ? [5, 4] : "solid",
            line_alpha: event.kind === "skipped" ? 0.35 : 0.7,
            line_width: 1.2,
          }),
        );
      }
    }
  },

  // Shares one upon the other; a single point is as wide as it takes to be seen.
  stacked(marks) {
    const sums = new Map();
    return marks.map((mark) => {
      const low = mark.step.map((step) => sums.get(step) || 0);
      const high = mark.step.map((step, index) => low[index] + mark.y[index]);
      mark.step.forEach((step, index) => sums.set(step, high[index]));
      return { ...mark, areaLow: low, areaHigh: high };
    });
  },

  render(figure, panel, mark, look, report) {
    const name = charts.name(mark, report);
    const data = { x: mark.x, y: mark.y };
    if (panel.kind === "reliability") {
      data.count = mark.count;
      const most = Math.max(...mark.count);
      data.size = mark.count.map((count) => 4 + 12 * Math.sqrt(count / most));
    } else {
      Object.assign(data, { step: mark.step, time: mark.minutes.map(text.duration) });
    }
    if (panel.kind === "shares") return charts.area(figure, mark, look, name, data);
    const source = new Bokeh.ColumnDataSource({ data });
    const renderers = [];
    if (mark.low && mark.low.length && mark.low.length === mark.x.length) {
      const band = new Bokeh.ColumnDataSource({ data: { x: mark.x, low: mark.low, high: mark.high } });
      renderers.push(
        figure.varea({ field: "x" }, { field: "low" }, { field: "high" }, { source: band, fill_color: look.colour, fill_alpha: 0.16 }),
      );
      if (mark.x.length === 1) {
        renderers.push(figure.segment(mark.x, mark.low, mark.x, mark.high, { line_color: look.colour, line_width: 2 }));
      }
    }
    const isNoisy = mark.mean && mark.mean.length > 0;
    const line = { source, line_color: look.colour, line_dash: look.dash, line_width: 1.8, line_alpha: panel.kind === "reliability" ? 0.5 : 1 };
    if (isNoisy) {
      renderers.push(figure.line(mark.x, mark.mean, { ...line, source: undefined, line_width: 2.2 }));
      Object.assign(line, { line_width: 1, line_alpha: mark.low.length ? 0 : 0.28, line_dash: "solid" });
    }
    renderers.push(figure.line({ field: "x" }, { field: "y" }, line));
    const isFew = mark.x.length <= charts.mostMarkers && !isNoisy;
    const dots = {
      source,
      size: panel.kind === "reliability" ? { field: "size" } : mark.x.length < 4 ? 9 : isFew ? 5 : 9, // unseen where there are many: what the pointer finds
      fill_color: look.colour,
      line_color: panel.kind === "reliability" ? dom.colour("card") : null,
      fill_alpha: isFew || panel.kind === "reliability" ? 0.9 : 0,
    };
    const scatter = figure.scatter({ field: "x" }, { field: "y" }, dots);
    renderers.push(scatter);
    renderers.push(...charts.best(figure, mark, look));
    figure.add_tools(charts.hover([scatter], name, panel));
    return renderers;
  },

  area(figure, mark, look, name, data) {
    const half = mark.x.length === 1 ? Math.max(0.5, Math.abs(mark.x[0]) * 0.05) : 0;
    const widened = (row) => (half ? [row[0], row[0]] : row);
    const area = new Bokeh.ColumnDataSource({
      data: { x: half ? [mark.x[0] - half, mark.x[0] + half] : mark.x, low: widened(mark.areaLow), high: widened(mark.areaHigh) },
    });
    const middle = mark.areaLow.map((low, index) => (low + mark.areaHigh[index]) / 2);
    const source = new Bokeh.ColumnDataSource({ data: { ...data, middle } });
    const filled = figure.varea({ field: "x" }, { field: "low" }, { field: "high" }, { source: area, fill_color: look.colour, fill_alpha: 0.75 });
    const dots = figure.scatter({ field: "x" }, { field: "middle" }, { source, size: 9, fill_alpha: 0, line_alpha: 0 });
    figure.add_tools(charts.hover([dots], name, { kind: "shares", share: true }));
    return [filled, dots];
  },

  best(figure, mark, look) {
    if (!mark.best) return [];
    const index = mark.step.indexOf(mark.best.step);
    const x = index >= 0 ? mark.x[index] : charts.between(mark, mark.best.step);
    if (x === null) return [];
    return [
      figure.scatter([x], [mark.best.value], { marker: "star", size: 15, fill_color: look.colour, line_color: dom.colour("card"), line_width: 1 }),
    ];
  },

  // Where a step lies on the axis that is shown: between the points of its curve.
  between(mark, step) {
    const after = mark.step.findIndex((one) => one >= step);
    if (after < 0) return null;
    if (after === 0) return mark.x[0];
    const part = (step - mark.step[after - 1]) / (mark.step[after] - mark.step[after - 1]);
    return mark.x[after - 1] + part * (mark.x[after] - mark.x[after - 1]);
  },

  hover(renderers, name, panel) {
    const value = panel.share ? "@y{0.0%}" : "@y{0,0.[0000]}";
    const rows =
      panel.kind === "reliability"
        ? [["expected", "@x{0.0%}"], ["came true", "@y{0.0%}"], ["positions", "@count{0,0}"]]
        : [["step", "@step{0,0}"], ["time", "@time"], ["value", value]];
    renderers.forEach((renderer) => (renderer.name = name));
    return new Bokeh.HoverTool({ renderers, tooltips: [["curve", "$name"], ...rows], visible: false, point_policy: "snap_to_data" });
  },

  // A legend entry that hides and shows its curve.
  chip(mark, look, renderers, panel, report) {
    const best = mark.best ? mark.best.text : "";
    const last = panel.kind === "curves" ? mark.last : "";
    const dash = Array.isArray(look.dash) ? look.dash.join(" ") : "";
    const key = dom.svg(
      "svg",
      { width: 22, height: 10, "aria-hidden": "true" },
      dom.svg("line", { x1: 1, y1: 5, x2: 21, y2: 5, stroke: look.colour, "stroke-width": panel.kind === "shares" ? 8 : 3, "stroke-dasharray": dash }),
    );
    const button = dom.make(
      "button",
      {
        class: "chip",
        type: "button",
        "aria-pressed": "true",
        onclick: () => {
          const isShown = button.getAttribute("aria-pressed") !== "true";
          button.setAttribute("aria-pressed", String(isShown));
          renderers.forEach((renderer) => (renderer.visible = isShown));
        },
      },
      key,
      dom.make("span", {}, charts.name(mark, report)),
      last ? dom.make("b", {}, last) : null,
      best ? dom.make("span", { class: "best" }, "\u2605 ", best) : null,
    );
    return button;
  },

  // Categories with a bar a run.
  bars(panel, report) {
    const categories = [...new Set(panel.marks.flatMap((mark) => mark.categories))];
    return dom.make(
      "div",
      { class: "bars" },
      categories.map((category) => [
        dom.make("div", { class: "category" }, category),
        panel.marks.map((mark) => {
          const index = mark.categories.indexOf(category);
          if (index < 0) return null;
          const look = charts.look(mark, report.runs.length);
          const value = mark.values[index];
          const fill = dom.make("i", {});
          fill.style.width = `${Math.max(0.5, 100 * Math.min(1, value || 0))}%`;
          fill.style.background = look.colour;
          return dom.make(
            "div",
            { class: "bar" },
            dom.make("div", { class: "track" }, fill),
            dom.make("b", {}, text.number(value, panel.share)),
            dom.make(
              "span",
              { class: "unit" },
              report.runs.length > 1 ? `${report.runs[mark.run].name}, ` : "",
              text.counted(mark.counts[index], "position"),
            ),
          );
        }),
      ]),
    );
  },
};
