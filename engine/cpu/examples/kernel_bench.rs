//! Speed of the kernels on this machine, beside the read bandwidth measured in the same run.
//!
//! `cargo run --release -p engine-cpu --example kernel_bench -- [threads] [scalar|avx2|avx512-vnni]`

use std::{
    borrow::Cow,
    hint::black_box,
    time::{Duration, Instant},
};

use engine::{
    backend::MatrixPart,
    weights::{TensorView, WeightType},
};
use engine_cpu::kernels::{Compute, Isa, Pool, Precision, QuantMatrix};

/// Time for one figure.
const BUDGET: Duration = Duration::from_millis(400);

/// More than any cache holds.
const READ_BYTES: usize = 256 << 20;

/// The shapes of SmolLM2-135M: name, format, rows, columns.
const LAYER: [(&str, WeightType, usize, usize); 4] = [
    ("query_key_value", WeightType::Q4_1, 960, 576),
    ("attention_output", WeightType::Q4_1, 576, 576),
    ("gate_up", WeightType::Q4_1, 3072, 576),
    ("down", WeightType::Q4_1, 576, 1536),
];
const HEAD: (&str, WeightType, usize, usize) = ("head", WeightType::Q8_0, 49152, 576);
const LAYERS: usize = 30;

/// One matrix large enough to come from memory, in each format.
const WIDE: (usize, usize) = (8192, 4096);
const KINDS: [WeightType; 11] = [
    WeightType::Q4_0,
    WeightType::Q4_1,
    WeightType::Q5_0,
    WeightType::Q5_1,
    WeightType::Q8_0,
    WeightType::Q4K,
    WeightType::Q5K,
    WeightType::Q6K,
    WeightType::F16,
    WeightType::Bf16,
    WeightType::F32,
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.next().map_or(cores, |text| text.parse().expect("the number of threads"));
    let isa = match arguments.next() {
        None => Isa::best(),
        Some(name) => {
            Isa::available().into_iter().find(|isa| isa.name() == name).expect("an available instruction set")
        }
    };
    let compute = |precision| Compute::with_isa(Pool::new(threads).expect("threads"), precision, isa);
    let (fast, exact) = (compute(Precision::Fast), compute(Precision::Exact));
    let bandwidth = read_bandwidth(fast.pool());
    println!("{} with {threads} threads; read bandwidth {bandwidth:.1} GB/s", isa.name());
    decode_step(&fast, "fast", bandwidth);
    decode_step(&exact, "exact", bandwidth);
    println!("{:<24} {:>6} {:>5} {:>10} {:>8} {:>6} {:>8}", "matrix", "mode", "rows", "us", "GB/s", "read", "GFLOP/s");
    for (name, kind, rows, columns) in LAYER.into_iter().chain([HEAD]) {
        let matrix = [matrix(kind, rows, columns)];
        for batch in [1, 8, 512] {
            let batch = if rows > 10_000 { batch.min(8) } else { batch };
            line(name, "fast", &fast, &matrix, batch, bandwidth);
        }
    }
    for kind in KINDS {
        let matrix = [matrix(kind, WIDE.0, WIDE.1)];
        for batch in [1, 8, 64] {
            line(&format!("{kind:?}"), "fast", &fast, &matrix, batch, bandwidth);
            if kind.block_elements() > 1 {
                line(&format!("{kind:?}"), "exact", &exact, &matrix, batch, bandwidth);
            }
        }
    }
}

/// Bytes that pass for random ones, with scales that are normal numbers.
fn matrix(kind: WeightType, rows: usize, columns: usize) -> QuantMatrix {
    let count = rows * columns / kind.block_elements() * kind.block_bytes();
    let bytes: Vec<u8> = (0..count).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 & 0x3b).collect();
    let tensor = TensorView { kind, shape: vec![rows, columns], bytes: Cow::Owned(bytes) };
    QuantMatrix::pack(&MatrixPart::whole(tensor)).expect("a format of weights")
}

/// Fastest of the runs that fit the budget, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    run();
    let (begin, mut best) = (Instant::now(), f64::INFINITY);
    while begin.elapsed() < BUDGET {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

/// GB/s at which all threads together read memory.
fn read_bandwidth(pool: &Pool) -> f64 {
    let words: Vec<u64> = (0..READ_BYTES as u64 / 8).collect();
    let pieces: Vec<&[u64]> = words.chunks(1 << 17).collect();
    let seconds = best(|| {
        pool.run(pieces.len(), |index| {
            let mut sums = [0_u64; 32];
            for chunk in pieces[index].as_chunks::<32>().0 {
                for (sum, word) in sums.iter_mut().zip(chunk) {
                    *sum = sum.wrapping_add(*word);
                }
            }
            black_box(sums);
        });
    });
    READ_BYTES as f64 / seconds / 1e9
}

/// All products of one decode step, with weights of their own for each layer.
fn decode_step(compute: &Compute, mode: &str, bandwidth: f64) {
    let layers: Vec<_> =
        (0..LAYERS).map(|_| LAYER.map(|(_, kind, rows, columns)| [matrix(kind, rows, columns)])).collect();
    let head = [matrix(HEAD.1, HEAD.2, HEAD.3)];
    let bytes: usize = layers.iter().flatten().chain([&head]).map(|matrix| matrix[0].bytes()).sum();
    for batch in [1, 2, 4, 8, 16] {
        let input = values(batch * 1536);
        let mut output = vec![0.0; batch * HEAD.2];
        let seconds = best(|| {
            for matrix in layers.iter().flatten().chain([&head]) {
                let (rows, columns) = (matrix[0].rows(), matrix[0].columns());
                compute.linear(&input[..batch * columns], matrix, None, &mut output[..batch * rows]);
            }
        });
        let rate = bytes as f64 / seconds / 1e9;
        println!(
            "products of a {mode} decode step, {batch:>2} rows: {:.2} ms, {:.1} tokens/s, {rate:.1} GB/s = {:.0} % of the read bandwidth",
            seconds * 1e3,
            batch as f64 / seconds,
            rate / bandwidth * 100.0
        );
    }
}

fn values(count: usize) -> Vec<f32> {
    (0..count).map(|at| (at * 37 % 101) as f32 / 50.0 - 1.0).collect()
}

fn line(name: &str, mode: &str, compute: &Compute, matrix: &[QuantMatrix; 1], batch: usize, bandwidth: f64) {
    let (rows, columns) = (matrix[0].rows(), matrix[0].columns());
    let input = values(batch * columns);
    let mut output = vec![0.0; batch * rows];
    let seconds = best(|| compute.linear(&input, matrix, None, &mut output));
    let rate = matrix[0].bytes() as f64 / seconds / 1e9;
    println!(
        "{:<24} {mode:>6} {batch:>5} {:>10.1} {rate:>8.1} {:>4.0} % {:>8.1}",
        format!("{name} {rows}x{columns}"),
        seconds * 1e6,
        rate / bandwidth * 100.0,
        2.0 * (batch * rows * columns) as f64 / seconds / 1e9
    );
}
