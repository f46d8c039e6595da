//! Bias, penalties and masks, bit for bit.

use engine_gpu::kernels::{self, LogitsChange, SampleRow};

use super::Report;
use crate::rig::{Failure, Rig, launched};

const VOCABULARY: usize = 1000;
const ROWS: usize = 5;
const CHANGES: usize = 300;

pub fn run(rig: &mut Rig, report: &mut Report) -> Result<(), Failure> {
    let mut logits: Vec<f32> = rig.random.values(ROWS * VOCABULARY).iter().map(|value| 10.0 * value).collect();
    let (mut rows, mut changes) = (Vec::new(), Vec::new());
    for row in 0..ROWS {
        rows.push(SampleRow {
            repetition: 1.0 + 0.3 * row as f32,
            frequency: 0.25 * row as f32,
            presence: 0.1,
            first_change: changes.len() as u32,
            // The last row has none.
            changes: if row + 1 < ROWS { CHANGES as u32 } else { 0 },
            ..SampleRow::default()
        });
        for index in 0..CHANGES {
            changes.push(LogitsChange {
                // Each token once; the last are not in the vocabulary.
                token: (index * 7 + row) as u32 % 1021,
                bias: rig.random.value(),
                outputs: rig.random.below(3) as u32,
                flags: rig.random.below(4) as u32,
            });
        }
    }
    let device = [rig.upload(&logits)?, rig.upload(&rows)?, rig.upload(&changes)?];
    let addresses = [device[0].address, device[1].address, device[2].address];
    let (vocabulary, count) = (VOCABULARY as u32, ROWS as u32);
    // SAFETY: the buffers above are as large as the arguments say.
    launched(unsafe { kernels::adjust_logits(&rig.launcher, &rig.kernels, addresses, vocabulary, count) })?;
    for (row, how) in rows.iter().enumerate() {
        let mine = &changes[how.first_change as usize..][..how.changes as usize];
        for change in mine.iter().filter(|change| (change.token as usize) < VOCABULARY) {
            let logit = &mut logits[row * VOCABULARY + change.token as usize];
            *logit = changed(*logit, change, how);
        }
    }
    report.equal("adjust_logits", "all rows", &device[0].read::<f32>()?, &logits);
    Ok(())
}

/// As the engine's sampler does it.
fn changed(logit: f32, change: &LogitsChange, row: &SampleRow) -> f32 {
    let mut logit = logit + change.bias;
    if change.flags & LogitsChange::OCCURRED != 0 {
        logit = if logit > 0.0 { logit / row.repetition } else { logit * row.repetition };
    }
    if change.outputs > 0 {
        logit -= row.frequency * change.outputs as f32;
        logit -= row.presence;
    }
    if change.flags & LogitsChange::MASKED != 0 { f32::NEG_INFINITY } else { logit }
}
