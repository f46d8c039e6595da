use super::*;

fn pace(shape: DraftShape) -> Pace {
    Pace::new(PaceSettings { shape, adaptive: true })
}

/// Runs an engine whose cycles of each width cost `seconds` and accept drafts with these shares, given the one before;
/// returns how often each width was chosen in the last 1,000 steps.
fn run(pace: &mut Pace, seconds: impl Fn(usize) -> f64, shares: &[f64]) -> Vec<usize> {
    let (mut chosen, mut draws) = (vec![0; pace.settings.shape.verify_tokens + 1], 0u64);
    for step in 0..4000 {
        let width = pace.width(1);
        let accepted = shares.iter().take(width - 1).take_while(|share| {
            draws += 1;
            // A low-discrepancy sequence in place of random numbers.
            (draws as f64 * 0.618_033_988_749).fract() < **share
        });
        let accepted = accepted.count();
        let entry = EntryOutput {
            tokens: vec![crate::types::TokenOutput { id: 0, logprobs: None }; accepted + 1],
            drafted: width as u32 - 1,
            accepted: accepted as u32,
            ..EntryOutput::default()
        };
        let timing = StepTiming { draft: 0.1, target: 0.8, follow: 0.1, caught_up: 0.0 };
        let step_of = PacedStep { sequences: 1, width: Some(width), seconds: seconds(width), timing };
        pace.observe(&step_of, std::iter::once(&entry));
        chosen[width] += usize::from(step >= 3000);
    }
    chosen
}

#[test]
fn the_best_width_is_found_and_others_are_looked_at_again() {
    let mut pace = pace(DraftShape::chain(4));
    // 1.7, 2.19, 2.46, 2.6 tokens for 1.2, 1.3, 1.8, 2.5 times the time: three tokens to verify are best.
    let chosen = run(&mut pace, |width| [0.0, 1.0, 1.2, 1.3, 1.8, 2.5][width], &[0.7, 0.7, 0.55, 0.5]);
    assert!(chosen[3] > 950, "{chosen:?}");
    assert!([1, 2, 4, 5].iter().all(|width| (1..40).contains(&chosen[*width])), "{chosen:?}");
    let report = pace.report();
    let line = report.widths.iter().find(|line| line.verify_tokens == 3).unwrap();
    assert!(line.in_use && (line.break_even.unwrap() - 1.3).abs() < 1e-9);
    assert!((line.measured_gain.unwrap() - 2.19 / 1.3).abs() < 0.15, "{line:?}");
    assert_eq!((report.warning, report.verifies > 3000), (None, true));
}

#[test]
fn speculation_that_does_not_pay_goes_off_and_comes_back() {
    let mut pace = pace(DraftShape::chain(3));
    let dear = |width: usize| 1.0 + 0.8 * (width as f64 - 1.0);
    let chosen = run(&mut pace, dear, &[0.4, 0.3, 0.3]);
    assert!(chosen[1] > 950 && chosen[2] + chosen[3] + chosen[4] > 2, "{chosen:?}");
    // A look brings 1.4 to 1.53 tokens, which plain steps would bring in as many seconds.
    let lost: f64 = (2..=4).map(|width| chosen[width] as f64 * (dear(width) - 1.4)).sum();
    assert!(lost < 10.0, "less than one of a hundred seconds is lost by looks: {lost} of {chosen:?}");
    let chosen = run(&mut pace, |width| 1.0 + 0.1 * (width as f64 - 1.0), &[0.9, 0.9, 0.9]);
    assert!(chosen[1] < 50, "it is on again: {chosen:?}");
    let fixed = &mut Pace::new(PaceSettings { shape: DraftShape::chain(3), adaptive: false });
    assert_eq!(run(fixed, dear, &[0.0, 0.0, 0.0])[4], 1000);
}

/// The first step after a stretch of another width may take much longer, for what that left behind.
#[test]
fn what_earlier_steps_left_is_no_part_of_a_cycle() {
    let mut pace = pace(DraftShape::chain(1));
    let entry = EntryOutput { drafted: 1, accepted: 1, ..EntryOutput::default() };
    for (caught_up, seconds) in [(99.0, 100.0), (0.0, 1.0)] {
        let timing = StepTiming { caught_up, ..StepTiming::default() };
        pace.observe(&PacedStep { sequences: 1, width: Some(2), seconds, timing }, std::iter::once(&entry));
    }
    let width = &pace.report().widths[0];
    assert_eq!((width.cycles, width.cycle_seconds), (2, 1.0));
}

#[test]
fn hardly_any_accepted_draft_is_called_suspicious() {
    let mut pace = Pace::new(PaceSettings { shape: DraftShape::chain(3), adaptive: false });
    run(&mut pace, |_| 1.0, &[0.05, 0.0, 0.0]);
    let warning = pace.report().warning.unwrap();
    ["--eagle3-taps", "norm_before_residual", "chat template"].iter().for_each(|part| assert!(warning.contains(part)));
}
