//! What is compared before anything is timed.

use super::norm::{NormCase, check_norms};
use super::sums::{SumCase, check_sums};
use super::{MeasureError, Rank};
use crate::collective::Algorithm;
use crate::kernels::{Element, NormOutput, Shots};

/// Compares every algorithm, format and output with a reference. Gives how many calls were compared on this rank.
/// Errors: the first mismatch.
pub fn check_everything(rank: &Rank) -> Result<usize, MeasureError> {
    Ok(check_sums(rank, &sums())? + check_norms(rank, &norms())?)
}

/// Every algorithm and format, at lengths that end within and at packets, at unaligned places, in and out of place.
fn sums() -> Vec<SumCase> {
    let lengths = [1, 3, 7, 8, 9, 50, 2048, 7168, 32_769, 524_291, 1_700_003];
    let mut cases = Vec::new();
    for algorithm in Algorithm::ALL.into_iter().chain([Algorithm::MultimemSimulated]) {
        for element in Element::ALL {
            for (number, &elements) in lengths.iter().enumerate() {
                let (in_place, shift) = (number % 2 == 1, if number % 3 == 2 { 1 } else { 0 });
                cases.push(SumCase { algorithm, element, elements, in_place, shift });
            }
        }
    }
    // More than a window or a buffer: these go in pieces.
    let (element, elements) = (Element::Bf16, (20 << 20) + 3);
    cases.extend([Algorithm::TwoShot, Algorithm::MultimemSimulated].map(|algorithm| SumCase {
        algorithm,
        element,
        elements,
        in_place: true,
        shift: 0,
    }));
    cases
}

fn norms() -> Vec<NormCase> {
    let mut cases = Vec::new();
    let shapes = [(1, 4096), (8, 7168), (3, 576), (5, 1001), (140, 2880), (2, 12_288)];
    for shots in [Shots::One, Shots::Two] {
        for element in Element::ALL {
            for (rows, width) in shapes.into_iter().filter(|(_, width)| element != Element::F32 || *width <= 6144) {
                cases.push(NormCase { shots, element, output: NormOutput::Element, rows, width });
            }
        }
        for element in [Element::Bf16, Element::F16] {
            for output in [NormOutput::Fp8Tensor, NormOutput::Fp8Token, NormOutput::Nvfp4] {
                for (rows, width) in [(1, 4096), (9, 2880), (3, 576)] {
                    cases.push(NormCase { shots, element, output, rows, width });
                }
            }
        }
    }
    cases
}
