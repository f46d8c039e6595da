//! Rotary position embedding from a table of cosines and sines.

use engine::backend::RopeTable;

/// `[positions, pairs]` each.
pub struct Rope {
    cosines: Vec<f32>,
    sines: Vec<f32>,
    pairs: usize,
    interleaved: bool,
}

impl Rope {
    pub fn new(table: &RopeTable) -> Self {
        let pairs = table.frequencies.len();
        let (mut cosines, mut sines) = (Vec::new(), Vec::new());
        for position in 0..table.positions {
            for frequency in &table.frequencies {
                let (sine, cosine) = (position as f64 * frequency).sin_cos();
                cosines.push((cosine * table.factor) as f32);
                sines.push((sine * table.factor) as f32);
            }
        }
        Self { cosines, sines, pairs, interleaved: table.interleaved }
    }

    /// Rotates a block of twice as many values as there are pairs.
    pub fn rotate(&self, position: usize, block: &mut [f32]) {
        let from = position * self.pairs;
        let angles = self.cosines[from..from + self.pairs].iter().zip(&self.sines[from..from + self.pairs]);
        for (pair, (cosine, sine)) in angles.enumerate() {
            let (first, second) = if self.interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + self.pairs) };
            let (left, right) = (block[first], block[second]);
            block[first] = left * cosine - right * sine;
            block[second] = right * cosine + left * sine;
        }
    }
}
