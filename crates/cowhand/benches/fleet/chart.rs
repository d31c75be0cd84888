//! The chart of a run: CPU of a firing over the number of schedules, and the distance of each figure to its target.

use std::fmt::Write as _;

use super::figure::{Figure, number};

const WIDTH: f64 = 900.0;
const NAMES: f64 = 430.0;
const LINE: f64 = 20.0;
/// Height of the upper part with its heading.
const GROWTH: f64 = 260.0;
/// Ends of the scale of distances, as powers of ten.
const LEAST: f64 = -2.0;
const MOST: f64 = 2.0;
const FIRING: &str = "daemon CPU of one firing, ";

pub(crate) fn draw(figures: &[&Figure]) -> String {
    let bars: Vec<(&str, f64)> =
        figures.iter().filter_map(|figure| Some((figure.name.as_str(), figure.distance()?))).collect();
    let height = GROWTH + 70.0 + LINE * bars.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    growth(&mut svg, &points(figures));
    distances(&mut svg, &bars);
    svg.push_str("</svg>\n");
    svg
}

/// Returns the number of schedules and the CPU of a firing.
fn points(figures: &[&Figure]) -> Vec<(f64, f64)> {
    let point = |figure: &&Figure| {
        let schedules = figure.name.strip_prefix(FIRING)?.strip_suffix(" schedules")?.replace(',', "");
        Some((schedules.parse().ok()?, figure.value?))
    };
    figures.iter().filter_map(point).collect()
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(words))
        .unwrap();
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    writeln!(
        svg,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>"
    )
    .unwrap();
}

/// Draws the CPU of a firing. Both scales are logarithmic: a flat line is a cost that does not grow.
fn growth(svg: &mut String, points: &[(f64, f64)]) {
    text(svg, 20.0, 24.0, "start", "Daemon CPU of one firing (ms) over the number of schedules");
    if points.is_empty() {
        text(svg, 20.0, 60.0, "start", "not measured");
        return;
    }
    let most = points.iter().map(|point| point.1).fold(10.0, f64::max).log10().ceil();
    let x = |schedules: f64| 80.0 + (schedules.log10() - 1.0) / 4.0 * (WIDTH - 160.0);
    let y = |cpu: f64| GROWTH - 40.0 - (cpu.max(0.1).log10() + 1.0) / (most + 1.0) * (GROWTH - 90.0);
    line(svg, (x(10.0), y(3.0)), (x(100_000.0), y(3.0)), "#9a9a9a");
    text(svg, x(100_000.0) + 4.0, y(3.0) + 4.0, "start", "target");
    for pair in points.windows(2) {
        line(svg, (x(pair[0].0), y(pair[0].1)), (x(pair[1].0), y(pair[1].1)), "#2d6cdf");
    }
    for (schedules, cpu) in points {
        let (x, y) = (x(*schedules), y(*cpu));
        writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#2d6cdf\"/>").unwrap();
        text(svg, x, y - 8.0, "middle", &number(*cpu));
        text(svg, x, GROWTH - 18.0, "middle", &number(*schedules));
    }
}

/// Draws a bar for each figure with a target. The bar of a figure that meets its target ends left of the line.
fn distances(svg: &mut String, bars: &[(&str, f64)]) {
    let top = GROWTH + 40.0;
    let x = |distance: f64| {
        let power = distance.max(1e-9).log10().clamp(LEAST, MOST);
        NAMES + (power - LEAST) / (MOST - LEAST) * (WIDTH - NAMES - 60.0)
    };
    text(svg, 20.0, GROWTH + 24.0, "start", "Distance to the target (1 = met, logarithmic scale)");
    for (index, (name, distance)) in bars.iter().enumerate() {
        let y = top + LINE * index as f64;
        text(svg, NAMES - 8.0, y + 13.0, "end", name);
        let colour = if *distance <= 1.0 { "#3a9d5d" } else { "#d2553b" };
        let width = (x(*distance) - NAMES).max(1.0);
        writeln!(
            svg,
            "<rect x=\"{NAMES}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"/>",
            y + 2.0
        )
        .unwrap();
        let words = if distance.is_finite() { number(*distance) } else { "∞".to_owned() };
        // Beside the bar, and never on the line of the target.
        text(svg, (NAMES + width).max(x(1.0)) + 4.0, y + 13.0, "start", &words);
    }
    line(svg, (x(1.0), top), (x(1.0), top + LINE * bars.len() as f64), "#555555");
}
