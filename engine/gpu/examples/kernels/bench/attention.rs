//! Attention at the shape of Llama-3.1-8B.

use engine::backend::{Blocks, HeadGroups, Segment, StepInput, StepLimits};
use engine_gpu::kernels::{self, Attend, AttentionSpace, CachePlace};
use engine_gpu::step::{AttentionGeometry, PAGE, StepCapacity, StepImage, StepLayout};

use super::{Peak, time};
use crate::rig::{Failure, Rig, launched};

const QUERIES: usize = 32;
const CACHED: usize = 8;
const WIDTH: usize = 128;
/// Layers whose caches are read in turn.
const LAYERS: usize = 16;

pub fn run(rig: &mut Rig, peak: Peak) -> Result<(), Failure> {
    for (name, sequences, rows, context) in [
        ("decode 1 x 512", 1, 1, 512),
        ("decode 1 x 4096", 1, 1, 4096),
        ("decode 1 x 32768", 1, 1, 32768),
        ("decode 8 x 512", 8, 1, 512),
        ("decode 32 x 512", 32, 1, 512),
        ("verify 8 of 512", 1, 8, 512),
        ("verify 16 of 512", 1, 16, 512),
        ("prompt of 2048", 1, 2048, 0),
    ] {
        one(rig, peak, name, [sequences, rows, context])?;
    }
    Ok(())
}

fn one(rig: &mut Rig, peak: Peak, name: &str, [sequences, rows, context]: [usize; 3]) -> Result<(), Failure> {
    let groups = HeadGroups { query_heads: QUERIES, group: QUERIES / CACHED, offset: 0 };
    let geometry = AttentionGeometry::new(&groups, CACHED, rig.gpu.multiprocessors as usize);
    let pages_each = (context + rows).div_ceil(PAGE);
    let mut step = StepInput::default();
    for sequence in 0..sequences {
        let pages = sequence * pages_each..(sequence + 1) * pages_each;
        step.segments.push(Segment { first_row: sequence * rows, rows, start: context, pages, tree: None });
    }
    let total_rows = sequences * rows;
    step.tokens.resize(total_rows, 0);
    step.positions.resize(total_rows, 0);
    step.pages.extend(0..(sequences * pages_each) as u32);
    let limits = StepLimits { rows: total_rows, segments: sequences, pages: step.pages.len(), mask_words: 0 };
    let layout = StepLayout::new(StepCapacity::new(&limits, &geometry));
    let mut image = StepImage::new(layout, geometry);
    image.fill(&step, total_rows)?;
    let mut words = image.words().to_vec();
    words.resize(layout.words(), 0);
    let device_step = rig.upload(&words)?;
    let row = (QUERIES + 2 * CACHED) * WIDTH;
    let source = rig.random_bf16(total_rows * row)?;
    let elements = sequences * pages_each * CACHED * PAGE * WIDTH;
    let random = rig.random.bf16(elements);
    let caches =
        (0..LAYERS).map(|_| Ok((rig.upload(&random)?, rig.upload(&random)?))).collect::<Result<Vec<_>, Failure>>()?;
    let output = rig.poisoned(total_rows * QUERIES * WIDTH * 2)?;
    let workspace = rig.poisoned(AttentionSpace::workspace_bytes(&geometry, total_rows, WIDTH))?;
    let arrivals = rig.filled(AttentionSpace::arrivals_bytes(&geometry, total_rows), 0)?;
    let microseconds = time(rig, LAYERS, |layer| {
        let (keys, values) = &caches[layer];
        let attend = Attend {
            step: layout.addresses(device_step.address),
            geometry,
            rows: total_rows as u32,
            whole_items: image.whole_items() as u32,
            source: source.address,
            query: Blocks { row, offset: 0, count: QUERIES, stride: WIDTH, width: WIDTH },
            groups,
            cache: CachePlace {
                keys: keys.address,
                values: values.address,
                heads: CACHED as u32,
                padded: WIDTH as u32,
            },
            scale: (WIDTH as f32).sqrt().recip(),
            output: output.address,
            space: AttentionSpace { workspace: workspace.address, arrivals: arrivals.address },
        };
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::attend(&rig.launcher, &rig.kernels, &attend) })
    })?;
    peak.line(name, microseconds, 2 * elements * 2);
    if context == 0 {
        let products = 4.0 * (rows * (rows + 1) / 2 * QUERIES * WIDTH) as f64;
        println!("{:<34} {:>9.1} TFLOP/s", "", products / microseconds / 1e6);
    }
    Ok(())
}
