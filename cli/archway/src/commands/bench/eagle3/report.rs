//! What `archway bench eagle3` concludes from its runs, and how it is shown.

use anyhow::Result;
use engine_server::service::Service;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::report;
use super::{Arguments, Measure};
use crate::numbers::Summary;

/// The measured runs of both kinds.
pub(super) struct Runs {
    pub prompts: usize,
    pub plain: Vec<Measure>,
    pub speculative: Vec<Measure>,
    pub equal_answers: usize,
}

#[derive(Serialize)]
pub(super) struct Report {
    model: String,
    prompts: usize,
    batch_size: usize,
    plain: Vec<Measure>,
    speculative: Vec<Measure>,
    plain_tokens_per_second: Summary,
    speculative_tokens_per_second: Summary,
    tokens_per_verify: f64,
    /// Ratio of the medians.
    speed_up: f64,
    /// Answers that are the same in both kinds of runs.
    equal_answers: usize,
    /// Measured times by width.
    speculation: Value,
    break_even: BreakEven,
    simulated: Option<Simulated>,
}

/// Tokens per verify at which speculation is as fast as plain decoding.
#[derive(Serialize)]
struct BreakEven {
    /// From the plan: for one sequence, from shapes, bandwidth and measured sums. None for a machine without a bandwidth, or
    /// several sequences.
    predicted: Option<f64>,
    /// The time of a cycle over that of a plain token, from the runs' rates.
    measured: f64,
    /// Predicted over measured, less one.
    difference: Option<f64>,
}

impl BreakEven {
    fn new(predicted: Option<f64>, measured: f64) -> Self {
        Self { predicted, measured, difference: predicted.map(|predicted| predicted / measured.max(1e-9) - 1.0) }
    }
}

/// What another acceptance would give with the measured times.
#[derive(Serialize)]
struct Simulated {
    simulated: bool,
    accept_length: f64,
    tokens_per_second: f64,
    speed_up: f64,
}

impl Report {
    pub fn new(arguments: &Arguments, service: &Service, runs: Runs) -> Self {
        let Runs { prompts, plain, speculative, equal_answers } = runs;
        let rates = |runs: &[Measure]| Summary::of(&runs.iter().map(|run| run.tokens_per_second).collect::<Vec<_>>());
        let (plain_rate, rate) = (rates(&plain), rates(&speculative));
        let lengths: Vec<f64> = speculative.iter().filter_map(|run| run.tokens_per_verify).collect();
        let tokens_per_verify = Summary::of(&lengths).median;
        let simulated = arguments.simulate_accept_length.map(|accept_length| {
            let tokens_per_second = rate.median / tokens_per_verify.max(1.0) * accept_length;
            let speed_up = tokens_per_second / plain_rate.median;
            Simulated { simulated: true, accept_length, tokens_per_second, speed_up }
        });
        let document = service.plan.document();
        let predicted = document["prediction"]["break_even"].as_f64().filter(|_| arguments.batch_size == 1);
        let measured = tokens_per_verify.max(1.0) * plain_rate.median / rate.median.max(1e-9);
        Self {
            model: service.model.path.clone(),
            prompts,
            batch_size: arguments.batch_size,
            speed_up: rate.median / plain_rate.median,
            plain_tokens_per_second: plain_rate,
            speculative_tokens_per_second: rate,
            tokens_per_verify,
            equal_answers,
            plain,
            speculative,
            speculation: document["speculation"].clone(),
            break_even: BreakEven::new(predicted, measured),
            simulated,
        }
    }

    /// On stdout: as JSON, or for people.
    pub fn print(&self, json: bool) -> Result<()> {
        if json {
            return report::json(self);
        }
        report::title("EAGLE-3", '=');
        report::row("Median plain (tokens/s)", self.plain_tokens_per_second.median);
        report::row("Median speculative (tokens/s)", self.speculative_tokens_per_second.median);
        report::row("Median tokens per verify", self.tokens_per_verify);
        report::row("Speed-up", self.speed_up);
        println!("{:<40}{} of {}", "Equal answers:", self.equal_answers, self.prompts);
        print_widths(&self.speculation);
        print_break_even(&self.break_even);
        if let Some(Simulated { accept_length, tokens_per_second, speed_up, .. }) = &self.simulated {
            println!(
                "SIMULATED, not measured: with {accept_length} tokens per verify and the measured times, \
                 {tokens_per_second:.1} tokens/s, speed-up {speed_up:.2}"
            );
        }
        Ok(())
    }
}

fn print_break_even(BreakEven { predicted, measured, difference }: &BreakEven) {
    let predicted = predicted.zip(*difference).map_or_else(String::new, |(predicted, difference)| {
        format!("; the plan predicted {predicted:.3}, {:+.1} %", 100.0 * difference)
    });
    println!("Break-even: {measured:.3} tokens per verify{predicted}");
}

/// What each width costs: where the time goes, and what would be needed for it to pay.
fn print_widths(speculation: &Value) {
    let Some(widths) = speculation["widths"].as_array().filter(|widths| !widths.is_empty()) else { return };
    println!(
        "By width, means of the latest cycles; break-even and gain over those that verify 1, which draft nothing:"
    );
    println!("sequences  verify  cycles  cycle ms  draft ms  target ms  follow ms  tokens  break-even  gain");
    for line in widths {
        let milliseconds = |key: &str| line[key].as_f64().unwrap_or(0.0) * 1e3;
        // A JSON value prints itself without the width of its column.
        let count = |key: &str| line[key].to_string();
        let number = |key: &str| line[key].as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        println!(
            "{:>9} {:>7} {:>7} {:>9.2} {:>9.2} {:>10.2} {:>10.2} {:>7} {:>11} {:>5}{}",
            count("sequences"),
            count("verify_tokens"),
            count("cycles"),
            milliseconds("cycle_seconds"),
            milliseconds("draft_seconds"),
            milliseconds("target_seconds"),
            milliseconds("follow_seconds"),
            number("tokens_per_cycle"),
            number("break_even"),
            number("measured_gain"),
            if line["in_use"] == json!(true) { "  in use" } else { "" }
        );
    }
}
