//! From the flags to a head that fits its target, before weights load.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use engine::executor::Speculation;
use engine::model::ModelConfig;
use engine::plan::{DraftReport, SpeculationShape};
use engine::spec::{DraftShape, HeadCheckpoint, open_head};
use engine_cpu::map_file;

use crate::settings::{Options, Speculative, SpeculativeConfig};

/// Drafted tokens unless the user says otherwise: what most servers draft.
const STEPS: u32 = 3;

/// The shape that is asked for and the draft model's folder, which `plan` can do without.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub shape: DraftShape,
    pub folder: Option<String>,
}

/// What the flags ask for; nothing without speculation. Errors: flags that contradict each other.
pub fn asked(options: &Options) -> Result<Option<Asked>> {
    let config: SpeculativeConfig = options.speculative_config.clone().unwrap_or_default();
    let one = |flag: &str, left: Option<String>, right: Option<String>| match (left, right) {
        (Some(left), Some(right)) if left != right => {
            bail!("--{flag} is {left}, but --speculative-config says {right}; give one")
        }
        (left, right) => Ok(left.or(right)),
    };
    let number = |value: Option<u32>| value.map(|value| value.to_string());
    let folder = one("speculative-draft-model-path", options.speculative_draft_model_path.clone(), config.model)?;
    let steps =
        one("speculative-num-steps", number(options.speculative_num_steps), number(config.num_speculative_tokens))?;
    let steps = steps.and_then(|steps| steps.parse::<u32>().ok());
    let sizes = [steps, options.speculative_eagle_topk, options.speculative_num_draft_tokens];
    let algorithm = options.speculative_algorithm.or(config.method);
    let mentioned = folder.is_some() || sizes.iter().any(Option::is_some) || options.eagle3_taps.is_some();
    match algorithm {
        Some(Speculative::None) => {
            ensure!(
                !mentioned,
                "--speculative-algorithm none contradicts the other flags of speculation; leave them out"
            );
            Ok(None)
        }
        None if !mentioned => Ok(None),
        Some(Speculative::Eagle3) | None => Ok(Some(Asked { shape: shape(sizes)?, folder })),
    }
}

/// A chain unless branches are asked for.
fn shape([steps, topk, tokens]: [Option<u32>; 3]) -> Result<DraftShape> {
    let topk = topk.unwrap_or(1);
    if topk > 1 && (steps.is_none() || tokens.is_none()) {
        bail!("a tree of {topk} branches needs --speculative-num-steps and --speculative-num-draft-tokens too");
    }
    let steps = steps.unwrap_or_else(|| tokens.map_or(STEPS, |tokens| tokens.saturating_sub(1)));
    let tokens = tokens.unwrap_or(steps.saturating_add(1));
    DraftShape::new(steps as usize, topk as usize, tokens as usize).map_err(anyhow::Error::msg)
}

/// Opens the head that the flags name and checks it against its target.
pub fn open(options: &Options, target: &ModelConfig) -> Result<Option<Speculation>> {
    let Some(Asked { shape, folder }) = asked(options)? else { return Ok(None) };
    let folder =
        folder.context("no draft model is given; set --speculative-draft-model-path to an EAGLE-3 head's folder")?;
    let taps: Option<Vec<usize>> =
        options.eagle3_taps.as_ref().map(|taps| taps.iter().map(|boundary| *boundary as usize).collect());
    let head = open_head(Path::new(&folder), target, taps.as_deref(), map_file)?;
    Ok(Some(Speculation { head: Arc::new(head), shape }))
}

/// The same with the head's matrices in blocks of eight bits.
pub fn in_blocks(speculation: Speculation) -> Speculation {
    let head = Arc::unwrap_or_clone(speculation.head).in_blocks();
    Speculation { head: Arc::new(head), ..speculation }
}

/// What the plan must know of a head on a CPU: keys and values of `element` bytes.
pub fn planned(speculation: &Speculation, element: usize) -> SpeculationShape {
    let (head, shape) = (&*speculation.head, speculation.shape);
    SpeculationShape {
        verify_tokens: shape.verify_tokens,
        steps: shape.steps,
        draft_hidden: head.config.hidden,
        draft_vocabulary: head.config.vocabulary,
        draft_bytes: head.bytes,
        draft_cache_bytes: cache_bytes(head, element),
    }
}

/// Bytes of one token in the head's cache, over all ranks.
fn cache_bytes(head: &HeadCheckpoint, element: usize) -> u64 {
    match head.config.attention {
        engine::model::Attention::Grouped { key_value_heads, head_dimension, .. } => {
            (2 * key_value_heads * head_dimension * element) as u64
        }
        engine::model::Attention::Latent(_) => 0,
    }
}

/// The head as the plan shows it.
pub fn report(speculation: &Speculation) -> DraftReport {
    let (head, shape) = (&*speculation.head, speculation.shape);
    DraftReport {
        path: head.path.clone(),
        taps: head.taps.boundaries.clone(),
        taps_rule: head.taps.to_string(),
        draft_vocabulary: head.config.vocabulary,
        shape,
        warnings: head.warnings.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_by(change: impl FnOnce(&mut Options)) -> Result<Option<Asked>, String> {
        let mut options = Options::default();
        change(&mut options);
        asked(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn both_servers_ways_mean_the_same() {
        let sglang = asked_by(|options| {
            options.speculative_algorithm = Some(Speculative::Eagle3);
            options.speculative_draft_model_path = Some("head".to_owned());
            options.speculative_num_steps = Some(4);
        });
        let vllm = asked_by(|options| {
            options.speculative_config = Some(SpeculativeConfig {
                method: Some(Speculative::Eagle3),
                model: Some("head".to_owned()),
                num_speculative_tokens: Some(4),
            });
        });
        let expected = Asked { shape: DraftShape::chain(4), folder: Some("head".to_owned()) };
        assert_eq!((sglang.unwrap(), vllm.unwrap()), (Some(expected.clone()), Some(expected)));
        assert_eq!(asked_by(|_| {}).unwrap(), None);
        let tree = asked_by(|options| {
            options.speculative_num_steps = Some(5);
            options.speculative_eagle_topk = Some(4);
            options.speculative_num_draft_tokens = Some(8);
        });
        assert_eq!(tree.unwrap().unwrap().shape, DraftShape::new(5, 4, 8).unwrap());
        let only_tokens = asked_by(|options| options.speculative_num_draft_tokens = Some(6));
        assert_eq!(only_tokens.unwrap().unwrap().shape, DraftShape::chain(5));
    }

    #[test]
    fn contradictions_are_said() {
        let none = asked_by(|options| {
            options.speculative_algorithm = Some(Speculative::None);
            options.speculative_num_steps = Some(3);
        });
        assert!(none.unwrap_err().contains("contradicts"));
        let tree = asked_by(|options| options.speculative_eagle_topk = Some(4));
        assert!(tree.unwrap_err().contains("--speculative-num-steps"));
        let two = asked_by(|options| {
            options.speculative_num_steps = Some(3);
            options.speculative_config =
                Some(SpeculativeConfig { num_speculative_tokens: Some(4), ..SpeculativeConfig::default() });
        });
        assert!(two.unwrap_err().contains("--speculative-num-steps is 3, but --speculative-config says 4"));
        let chain = asked_by(|options| {
            options.speculative_num_steps = Some(3);
            options.speculative_num_draft_tokens = Some(8);
        });
        assert!(chain.unwrap_err().contains("verifies 4"));
    }
}
