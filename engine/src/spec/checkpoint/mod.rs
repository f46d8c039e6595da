//! An EAGLE-3 head's checkpoint, whatever its layout: opened, normalised and checked before the target's weights load.

mod blocks;
mod config;
mod layout;
mod tensors;

use std::path::Path;
use std::sync::Arc;

use super::taps::{self, Taps};
use super::vocabulary::DraftVocabulary;
use crate::files::is_there;
use crate::load::{LoadError, json_object, read_text};
use crate::model::ModelConfig;
use crate::weights::{OpenFile, SafetensorsWeights, WeightSource};

use config::{Shape, read_config};
use layout::HeadWeights;

/// What a head computes differently from the first published ones. Names are those of the configuration's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Toggles {
    /// The residual is the normalised hidden state.
    pub norm_before_residual: bool,
    /// One norm over all taps side by side, before `fc`.
    pub norm_before_fc: bool,
    /// One norm per tap, before `fc`.
    pub fc_norm: bool,
    /// The next draft step reads the output after the final norm.
    pub norm_output: bool,
}

/// A head that fits its target. Weights are still in their file.
#[derive(Clone)]
pub struct HeadCheckpoint {
    /// For messages.
    pub path: String,
    /// The head as a model of one layer; its vocabulary is the draft vocabulary.
    pub config: ModelConfig,
    /// Under the official layout's names (`fc.weight`, `midlayer.*`).
    pub weights: Arc<dyn WeightSource>,
    pub taps: Taps,
    pub vocabulary: DraftVocabulary,
    pub toggles: Toggles,
    /// `fc` has a bias.
    pub fc_bias: bool,
    /// Width of each tap: the target's hidden size.
    pub target_hidden: usize,
    pub target_vocabulary: usize,
    /// The checkpoint has an embedding; otherwise it is the target's.
    pub own_embedding: bool,
    /// The checkpoint has an output projection; otherwise it is the target's.
    pub own_output: bool,
    /// Bytes of the weight files.
    pub bytes: u64,
    /// What is unusual and does not keep the head from running, one sentence each.
    pub warnings: Vec<String>,
}

/// Opens a head's folder and checks it against the target's shape. `taps` overrides the configuration's.
/// Errors: a file that cannot be read or is damaged; another kind of draft model (EAGLE-1 or 2, parallel drafting,
/// latent attention); a head for another target; taps or a draft vocabulary that cannot be right. Each names the file,
/// the reason and what to do.
pub fn open_head(
    folder: &Path,
    target: &ModelConfig,
    taps: Option<&[usize]>,
    open: OpenFile,
) -> Result<HeadCheckpoint, LoadError> {
    let (path, name) = (folder.join("config.json"), folder.display().to_string());
    if !is_there(&path) {
        let what = if is_there(folder) { "has no config.json" } else { "does not exist" };
        return Err(LoadError::File { path: name, message: format!("{what}; give the folder of an EAGLE-3 head") });
    }
    let file = path.display().to_string();
    let keys = json_object(&file, &read_text(&path)?)?;
    let mut shape = read_config(&file, &keys)?;
    let weights = HeadWeights::new(&name, open_weights(folder, &name, open)?)?;
    let refuse = |message: String| LoadError::File { path: name.clone(), message };
    check_target(&mut shape, &weights, target).map_err(refuse)?;
    let boundaries = taps::choose(&shape.tap_ids, taps, target.layers).map_err(refuse)?;
    check_taps(&boundaries, &weights, &shape, target).map_err(refuse)?;
    let vocabulary = DraftVocabulary::read(&weights, shape.model.vocabulary, target.vocabulary, &name)?;
    let mut warnings = std::mem::take(&mut shape.warnings);
    warnings.extend(weights.warnings(&shape.toggles));
    let head = HeadCheckpoint {
        fc_bias: weights.has("fc.bias"),
        own_embedding: weights.has("embed_tokens.weight"),
        own_output: weights.has("lm_head.weight"),
        path: name,
        config: shape.model,
        weights: Arc::new(weights),
        taps: boundaries,
        vocabulary,
        toggles: shape.toggles,
        target_hidden: target.hidden,
        target_vocabulary: target.vocabulary,
        bytes: file_bytes(folder),
        warnings,
    };
    tensors::check(&head)?;
    Ok(head)
}

/// The published heads' `pytorch_model.bin` is a Python pickle: a program, not data.
fn open_weights(folder: &Path, name: &str, open: OpenFile) -> Result<Arc<dyn WeightSource>, LoadError> {
    let pickle = folder.join("pytorch_model.bin").is_file();
    let error = match SafetensorsWeights::open_folder(folder, open) {
        Ok(weights) => return Ok(Arc::new(weights)),
        Err(error) => error,
    };
    if !pickle || folder.join("model.safetensors").exists() {
        return Err(error.into());
    }
    let message = "has its weights in pytorch_model.bin, a Python pickle, which is not read; convert it: python -c \
        \"import torch, safetensors.torch as s; s.save_file(torch.load('pytorch_model.bin', weights_only=True), \
        'model.safetensors')\""
        .to_owned();
    Err(LoadError::File { path: name.to_owned(), message })
}

/// Sizes that must agree with the target's, and the head dimension, which configurations get wrong.
fn check_target(shape: &mut Shape, weights: &HeadWeights, target: &ModelConfig) -> Result<(), String> {
    let hidden = shape.model.hidden;
    if let Some(kind) = weights.other_kind(hidden) {
        return Err(kind);
    }
    if let Some(named) = shape.target_hidden.filter(|named| *named != target.hidden) {
        return Err(format!(
            "is a head for another target: its `target_hidden_size` is {named}, the target's hidden size {}",
            target.hidden
        ));
    }
    if shape.target_vocabulary != target.vocabulary {
        return Err(format!(
            "is a head for another target: its `vocab_size` is {}, the target's vocabulary has {} tokens",
            shape.target_vocabulary, target.vocabulary
        ));
    }
    if hidden != target.hidden && !weights.has("embed_tokens.weight") {
        return Err(format!(
            "is {hidden} wide and has no `embed_tokens.weight`; the target's embedding is {} wide and cannot stand in: \
             the head is for another target, or its checkpoint is incomplete",
            target.hidden
        ));
    }
    if !weights.has("lm_head.weight") && (hidden != target.hidden || shape.model.vocabulary != target.vocabulary) {
        return Err(format!(
            "has no `lm_head.weight`, and the target's ({} by {}) cannot stand in for one of {} by {hidden}",
            target.vocabulary, target.hidden, shape.model.vocabulary
        ));
    }
    shape.set_head_dimension(weights.rows("midlayer.self_attn.q_proj.weight"))
}

/// `fc` joins as many taps as there are, each as wide as the target.
fn check_taps(taps: &Taps, weights: &HeadWeights, shape: &Shape, target: &ModelConfig) -> Result<(), String> {
    let Some(columns) = weights.columns("fc.weight") else {
        return Err("has no `fc.weight`, so it is not an EAGLE-3 head".to_owned());
    };
    let (count, width) = (taps.boundaries.len(), target.hidden);
    if columns == count * width {
        return Ok(());
    }
    if !columns.is_multiple_of(width) && columns.is_multiple_of(count) {
        return Err(format!(
            "is a head for another target: its `fc.weight` joins {count} taps of width {}, the target's hidden size is \
             {width}",
            columns / count
        ));
    }
    Err(format!(
        "joins {columns} values in `fc.weight` ({} by {columns}), but {count} taps of the target give {}; name the taps \
         with --eagle3-taps",
        shape.model.hidden,
        count * width
    ))
}

fn file_bytes(folder: &Path) -> u64 {
    let entries = folder.read_dir().into_iter().flatten().filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let files = entries.filter(|path| path.extension().is_some_and(|end| end == "safetensors"));
    files.filter_map(|path| path.metadata().ok()).map(|metadata| metadata.len()).sum()
}
