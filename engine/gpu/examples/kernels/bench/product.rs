//! Products at the shapes of Llama-3.1-8B, whole and of one rank of two, and Llama-3.2-1B.

use engine::model::Activation;
use engine_gpu::kernels::{self, Product};

use super::{Peak, time};
use crate::rig::{Failure, Rig, launched};

/// More than the cache holds several times over.
const ROTATED: usize = 1 << 30;

struct Shape {
    name: &'static str,
    outputs: usize,
    columns: usize,
    gated: bool,
}

const fn shape(name: &'static str, outputs: usize, columns: usize, gated: bool) -> Shape {
    Shape { name, outputs, columns, gated }
}

const SHAPES: [Shape; 14] = [
    shape("8B qkv", 6144, 4096, false),
    shape("8B o", 4096, 4096, false),
    shape("8B gate_up", 28672, 4096, true),
    shape("8B down", 4096, 14336, false),
    shape("8B lm_head", 128_256, 4096, false),
    shape("8B half qkv", 3072, 4096, false),
    shape("8B half o", 4096, 2048, false),
    shape("8B half gate_up", 14336, 4096, true),
    shape("8B half down", 4096, 7168, false),
    shape("8B half lm_head", 64_128, 4096, false),
    shape("1B qkv", 3072, 2048, false),
    shape("1B o", 2048, 2048, false),
    shape("1B gate_up", 16384, 2048, true),
    shape("1B down", 2048, 8192, false),
];

pub fn run(rig: &mut Rig, peak: Peak) -> Result<(), Failure> {
    let random = rig.random.bf16(1 << 22);
    for shape in &SHAPES {
        let bytes = shape.outputs * shape.columns * 2;
        let copies = (ROTATED / bytes).max(1);
        let weights = rig.poisoned(bytes * copies)?;
        // Random data again and again: values decide nothing but power.
        for at in (0..bytes * copies).step_by(random.len() * 2) {
            let piece = &random[..random.len().min((bytes * copies - at) / 2)];
            // SAFETY: inside the weights.
            unsafe { cudarc::driver::result::memcpy_htod_sync(weights.address + at as u64, piece)? };
        }
        let input = rig.upload(&crate::random::Random(7).bf16(64 * shape.columns))?;
        let output = rig.poisoned(64 * shape.outputs * 4)?;
        for count in [1, 2, 4, 8, 16, 32, 64] {
            let product = |copy: usize| Product {
                weight: weights.address + (copy * bytes) as u64,
                input: input.address,
                bias: 0,
                output: output.address,
                outputs: if shape.gated { shape.outputs / 2 } else { shape.outputs } as u32,
                columns: shape.columns as u32,
                count,
                stride: shape.outputs as u32,
                float_output: 0,
                ..Product::default()
            };
            let microseconds = time(rig, copies.max(16), |index| {
                let product = product(index % copies);
                // SAFETY: the buffers above are as large as the arguments say.
                launched(unsafe {
                    if shape.gated {
                        kernels::gated_product(&rig.launcher, &rig.kernels, Activation::Silu, &product)
                    } else {
                        kernels::product(&rig.launcher, &rig.kernels, &product)
                    }
                })
            })?;
            peak.line(&format!("{} M={count}", shape.name), microseconds, bytes);
        }
    }
    Ok(())
}
