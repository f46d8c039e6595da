//! The figures of `archway bench allreduce` as lines.

use super::allreduce::Report;
use crate::plot::{Chart, Line};

/// Times by message, then times with residual and norm by rows, one chart for each width.
pub fn charts(report: &Report) -> Vec<Chart> {
    let machine = format!("{} x {}", report.ranks, report.stack.gpu);
    let mut charts = vec![sums(report, &machine)];
    let mut widths: Vec<u32> = report.norms.iter().map(|norm| norm.width).collect();
    widths.sort_unstable();
    widths.dedup();
    charts.extend(widths.into_iter().map(|width| norms(report, &machine, width)));
    charts.retain(|chart| !chart.lines.is_empty());
    charts
}

/// One figure on its way into a line: name, whether it is ours, and its point.
type Figure = (String, bool, (f64, f64));

fn sums(report: &Report, machine: &str) -> Chart {
    let dtype = report.sums.first().map_or("", |sum| sum.dtype);
    let own = report
        .sums
        .iter()
        .map(|sum| (sum.algorithm.to_owned(), sum.algorithm != "nccl", (sum.bytes as f64, sum.times.graph)));
    let peers = report.peers.iter().flat_map(|peers| &peers.sums);
    let peers = peers.map(|sum| (sum.name.clone(), false, (sum.bytes as f64, sum.microseconds)));
    Chart {
        title: format!("All-reduce over {machine}, {dtype}, recorded graphs"),
        x: "bytes of a rank's message".to_owned(),
        y: "microseconds".to_owned(),
        bytes: true,
        lines: lines(own.chain(peers)),
    }
}

fn norms(report: &Report, machine: &str, width: u32) -> Chart {
    let own = report.norms.iter().filter(|norm| norm.width == width).map(|norm| {
        let name = format!("{} {}", norm.algorithm, if norm.fused { "fused" } else { "and norm" });
        (name, norm.algorithm != "nccl", (f64::from(norm.rows), norm.times.graph))
    });
    let peers = report.peers.iter().flat_map(|peers| &peers.norms).filter(|norm| norm.width == width);
    let peers = peers.map(|norm| (norm.name.clone(), false, (f64::from(norm.rows), norm.microseconds)));
    Chart {
        title: format!("With residual and norm of {width} columns, {machine}, bf16"),
        x: "rows".to_owned(),
        y: "microseconds".to_owned(),
        bytes: false,
        lines: lines(own.chain(peers)),
    }
}

/// Figures of one name are a line, in the order in which names come up.
fn lines(figures: impl Iterator<Item = Figure>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for (name, ours, point) in figures {
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, ours, points: vec![point] }),
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn figures_of_a_name_become_a_line() {
        let figure = |name: &str, x: f64| (name.to_owned(), true, (x, 1.0));
        let lines = lines([figure("a", 2.0), figure("b", 1.0), figure("a", 1.0)].into_iter());
        let found: Vec<(&str, usize)> = lines.iter().map(|line| (line.name.as_str(), line.points.len())).collect();
        assert_eq!(found, [("a", 2), ("b", 1)]);
        assert_eq!(lines[0].points, [(1.0, 1.0), (2.0, 1.0)]);
    }
}
