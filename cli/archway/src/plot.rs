//! Lines over logarithmic axes, as SVG: what benchmarks plot.

use std::fmt::Write as _;

/// Size of a chart, and of the room around its lines, in pixels.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 60.0;
/// Colours of lines, told apart with any usual sight: Okabe and Ito, "Color Universal Design", 2008.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

/// One chart: both axes are logarithmic, x in powers of two.
pub struct Chart {
    pub title: String,
    pub x: String,
    pub y: String,
    /// The x axis counts bytes.
    pub bytes: bool,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub name: String,
    /// Ours are drawn thick, others' dashed.
    pub ours: bool,
    /// Ascending in x; all of it positive.
    pub points: Vec<(f64, f64)>,
}

/// Smallest and largest, in logarithms.
#[derive(Clone, Copy)]
struct Range {
    from: f64,
    to: f64,
}

impl Range {
    /// Whole steps around all values; none where there is nothing to draw.
    fn around(values: impl Iterator<Item = f64>) -> Option<Self> {
        let logarithms: Vec<f64> = values.filter(|value| *value > 0.0 && value.is_finite()).map(f64::log2).collect();
        let from = logarithms.iter().copied().reduce(f64::min)?;
        let to = logarithms.iter().copied().reduce(f64::max)?;
        Some(Self { from: from.floor(), to: to.ceil().max(from.floor() + 1.0) })
    }

    fn share(self, value: f64) -> f64 {
        (value.log2() - self.from) / (self.to - self.from)
    }

    /// Powers of two, at most a dozen.
    fn ticks(self) -> impl Iterator<Item = f64> {
        let step = ((self.to - self.from) / 12.0).ceil().max(1.0);
        let count = ((self.to - self.from) / step).floor() as usize;
        (0..=count).map(move |number| (self.from + number as f64 * step).exp2())
    }
}

/// All charts below each other.
pub fn svg(charts: &[Chart]) -> String {
    let height = HEIGHT * charts.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, chart) in charts.iter().enumerate() {
        let _ = writeln!(text, "<g transform=\"translate(0 {})\">", HEIGHT * number as f64);
        draw(&mut text, chart);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

fn draw(text: &mut String, chart: &Chart) {
    let points = || chart.lines.iter().flat_map(|line| line.points.iter());
    label(text, (LEFT, TOP - 16.0), "start", &format!("<tspan font-weight=\"bold\">{}</tspan>", escaped(&chart.title)));
    let ranges = (Range::around(points().map(|point| point.0)), Range::around(points().map(|point| point.1)));
    let (Some(x), Some(y)) = ranges else { return };
    axes(text, chart, x, y);
    for (number, line) in chart.lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let style = if line.ours { "stroke-width=\"2.5\"" } else { "stroke-width=\"1.5\" stroke-dasharray=\"6 3\"" };
        let places: Vec<String> = line
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", across(x.share(point.0)), down(y.share(point.1))))
            .collect();
        let _ = writeln!(text, "<polyline fill=\"none\" stroke=\"{colour}\" {style} points=\"{}\"/>", places.join(" "));
        let at = TOP + 10.0 + 18.0 * number as f64;
        let (from, to) = (WIDTH - RIGHT + 12.0, WIDTH - RIGHT + 36.0);
        let _ = writeln!(text, "<line x1=\"{from}\" x2=\"{to}\" y1=\"{at}\" y2=\"{at}\" stroke=\"{colour}\" {style}/>");
        label(text, (to + 6.0, at + 4.0), "start", &escaped(&line.name));
    }
}

fn axes(text: &mut String, chart: &Chart, x: Range, y: Range) {
    for tick in x.ticks() {
        let at = across(x.share(tick));
        let _ = writeln!(text, "<path d=\"M{at:.1} {TOP}V{}\" stroke=\"#ddd\"/>", HEIGHT - BOTTOM);
        let shown = if chart.bytes { size(tick) } else { format!("{tick}") };
        label(text, (at, HEIGHT - BOTTOM + 18.0), "middle", &shown);
    }
    for tick in y.ticks() {
        let at = down(y.share(tick));
        let _ = writeln!(text, "<path d=\"M{LEFT} {at:.1}H{}\" stroke=\"#ddd\"/>", WIDTH - RIGHT);
        label(text, (LEFT - 8.0, at + 4.0), "end", &format!("{tick}"));
    }
    label(text, ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - BOTTOM + 40.0), "middle", &escaped(&chart.x));
    let middle = (TOP + HEIGHT - BOTTOM) / 2.0;
    let _ = writeln!(
        text,
        "<text transform=\"translate(18 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        escaped(&chart.y)
    );
}

fn across(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

fn down(share: f64) -> f64 {
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}

fn label(text: &mut String, (x, y): (f64, f64), anchor: &str, content: &str) {
    let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>");
}

fn size(bytes: f64) -> String {
    match bytes {
        1_048_576.0.. => format!("{} MiB", bytes / 1_048_576.0),
        1024.0.. => format!("{} KiB", bytes / 1024.0),
        _ => format!("{bytes} B"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        let line = |name: &str, ours| Line { name: name.to_owned(), ours, points: points.clone() };
        Chart {
            title: "1 < 2 & more".to_owned(),
            x: "bytes".to_owned(),
            y: "us".to_owned(),
            bytes: true,
            lines: vec![line("one_shot", true), line("peer", false)],
        }
    }

    #[test]
    fn points_stand_where_their_logarithms_say() {
        let text = svg(&[chart(vec![(4096.0, 2.0), (65_536.0, 4.0), (1_048_576.0, 8.0)])]);
        // Left and right edge, and the middle of both axes between them.
        assert!(text.contains("points=\"70.0,400.0 370.0,220.0 670.0,40.0\""), "{text}");
        assert!(text.contains(">4 KiB<") && text.contains(">1 MiB<"), "{text}");
        assert!(text.contains("1 &lt; 2 &amp; more") && text.contains("stroke-dasharray"), "{text}");
    }

    #[test]
    fn every_opened_element_is_closed() {
        let text = svg(&[chart(vec![(1.0, 1.0)]), chart(Vec::new())]);
        for element in ["svg", "g", "text", "tspan"] {
            let opened = text.matches(&format!("<{element} ")).count() + text.matches(&format!("<{element}>")).count();
            assert_eq!(opened, text.matches(&format!("</{element}>")).count(), "{element}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
