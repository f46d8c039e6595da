//! Attention at the shapes of Llama-3.1-8B and, with rotation and append, SmolLM2-135M.

use engine::backend::{Blocks, HeadGroups, Segment, StepInput, StepLimits};
use engine_gpu::kernels::{self, Angles, Attend, AttentionSpace, CachePlace, Fresh, HeadNorm, Near};
use engine_gpu::step::{AttentionGeometry, PAGE, StepCapacity, StepImage, StepLayout};

use super::{Peak, time};
use crate::rig::{Failure, Memory, Rig, launched};

/// Heads of a model; `fresh`: attention rotates and appends the step's rows.
#[derive(Clone, Copy)]
struct Heads {
    queries: usize,
    cached: usize,
    width: usize,
    fresh: bool,
    /// Kernels for short contexts may be chosen.
    near: bool,
}

const LLAMA: Heads = Heads { queries: 32, cached: 8, width: 128, fresh: false, near: true };
const SMOL: Heads = Heads { queries: 9, cached: 3, width: 64, fresh: true, near: true };
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
        one(rig, peak, name, LLAMA, [sequences, rows, context])?;
    }
    for sequences in [1, 4, 8, 16, 24, 32, 48, 64] {
        let name = format!("decode {sequences} x 512, appends");
        one(rig, peak, &name, Heads { fresh: true, ..LLAMA }, [sequences, 1, 512])?;
    }
    for [sequences, rows] in [[2, 4], [4, 2], [2, 8], [3, 4], [4, 4], [8, 2]] {
        for (name, heads) in [("verify", Heads { fresh: true, ..LLAMA }), ("SmolLM2 verify", SMOL)] {
            let name = format!("{name} {rows} of {sequences} x 512");
            one(rig, peak, &name, heads, [sequences, rows, 512])?;
            // As a step of a longer context would be attended.
            one(rig, peak, &format!("{name}, any context"), Heads { near: false, ..heads }, [sequences, rows, 512])?;
        }
    }
    for (name, rows, context) in [
        ("SmolLM2 decode of 144", 1, 144),
        ("SmolLM2 decode of 512", 1, 512),
        ("SmolLM2 decode of 4096", 1, 4096),
        ("SmolLM2 verify 4 of 144", 4, 144),
        ("SmolLM2 verify 4 of 512", 4, 512),
    ] {
        one(rig, peak, name, SMOL, [1, rows, context])?;
        one(rig, peak, &format!("{name}, appended"), Heads { fresh: false, ..SMOL }, [1, rows, context])?;
    }
    Ok(())
}

/// `sequences` of `rows` new rows each, behind `context` positions.
fn step([sequences, rows, context]: [usize; 3]) -> StepInput {
    let pages_each = (context + rows).div_ceil(PAGE);
    let mut step = StepInput::default();
    for sequence in 0..sequences {
        let pages = sequence * pages_each..(sequence + 1) * pages_each;
        step.segments.push(Segment { first_row: sequence * rows, rows, start: context, pages, tree: None });
        step.positions.extend((context..context + rows).map(|position| position as u32));
    }
    step.tokens.resize(sequences * rows, 0);
    step.pages.extend(0..(sequences * pages_each) as u32);
    step
}

/// A step's arrays on the device.
struct Uploaded {
    image: StepImage,
    layout: StepLayout,
    memory: Memory,
}

fn upload(rig: &Rig, geometry: &AttentionGeometry, step: &StepInput) -> Result<Uploaded, Failure> {
    let rows = step.rows();
    let limits = StepLimits { rows, segments: step.segments.len(), pages: step.pages.len(), mask_words: 0 };
    let layout = StepLayout::new(StepCapacity::new(&limits, geometry));
    let mut image = StepImage::new(layout, *geometry);
    image.fill(step, rows)?;
    let mut words = image.words().to_vec();
    words.resize(layout.words(), 0);
    let memory = rig.upload(&words)?;
    Ok(Uploaded { image, layout, memory })
}

impl Heads {
    /// Rotation of all columns by `angles`, and where keys and values stand in a row; none if rows are appended already.
    fn fresh(self, angles: &Memory) -> Option<Fresh> {
        let Self { queries, cached, width, fresh, .. } = self;
        let (cosines, sines) = (angles.address, angles.address);
        fresh.then(|| Fresh {
            angles: Angles { cosines, sines, pairs: width as u32 / 2, interleaved: 0 },
            norm: HeadNorm::default(),
            key_offset: (queries * width) as u32,
            value_offset: ((queries + cached) * width) as u32,
        })
    }
}

fn one(
    rig: &mut Rig,
    peak: Peak,
    name: &str,
    heads: Heads,
    [sequences, rows, context]: [usize; 3],
) -> Result<(), Failure> {
    let Heads { queries, cached, width, near: may_near, .. } = heads;
    let groups = HeadGroups { query_heads: queries, group: queries / cached, offset: 0 };
    let geometry = AttentionGeometry::new(&groups, cached, rig.gpu.multiprocessors as usize);
    let step = step([sequences, rows, context]);
    let total_rows = step.rows();
    let uploaded = upload(rig, &geometry, &step)?;
    let row = (queries + 2 * cached) * width;
    let source = rig.random_bf16(total_rows * row)?;
    let elements = step.pages.len() * cached * PAGE * width;
    let random = rig.random.bf16(elements);
    let caches =
        (0..LAYERS).map(|_| Ok((rig.upload(&random)?, rig.upload(&random)?))).collect::<Result<Vec<_>, Failure>>()?;
    let output = rig.poisoned(total_rows * queries * width * 2)?;
    let workspace = rig.poisoned(AttentionSpace::workspace_bytes(&geometry, total_rows, width))?;
    let arrivals = rig.filled(AttentionSpace::arrivals_bytes(&geometry, total_rows), 0)?;
    let angles = rig.random_f32((context + rows) * width / 2)?;
    let fresh = heads.fresh(&angles);
    let passes = geometry.near(&step, total_rows);
    let near = if passes.one_row { Some(Near::OneRow) } else { passes.rows.then_some(Near::Rows) };
    let (heads, padded) = (cached as u32, width as u32);
    let microseconds = time(rig, LAYERS, |layer| {
        let (keys, values) = (caches[layer].0.address, caches[layer].1.address);
        let attend = Attend {
            step: uploaded.layout.addresses(uploaded.memory.address),
            geometry,
            rows: total_rows as u32,
            whole_items: uploaded.image.whole_items() as u32,
            source: source.address,
            query: Blocks { row, offset: 0, count: queries, stride: width, width },
            groups,
            cache: CachePlace { keys, values, heads, padded },
            scale: (width as f32).sqrt().recip(),
            output: output.address,
            space: AttentionSpace { workspace: workspace.address, arrivals: arrivals.address },
            fresh,
            near: near.filter(|_| fresh.is_some() && may_near),
        };
        // SAFETY: the buffers above are as large as the arguments say.
        launched(unsafe { kernels::attend(&rig.launcher, &rig.kernels, &attend) })
    })?;
    peak.line(name, microseconds, 2 * elements * 2);
    if context == 0 {
        let products = 4.0 * (rows * (rows + 1) / 2 * queries * width) as f64;
        println!("{:<34} {:>9.1} TFLOP/s", "", products / microseconds / 1e6);
    }
    Ok(())
}
