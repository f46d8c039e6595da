//! Which kernel families the plan uses, with what the record says of them.

use capdb::resolve::Resolved;

use super::machine::Machine;
use super::report::KernelLine;
use crate::model::{Attention, ModelConfig};

pub(super) fn kernels(config: &ModelConfig, machine: &Machine) -> Vec<KernelLine> {
    let attention = match config.attention {
        Attention::Grouped { .. } => "paged",
        Attention::Latent(_) => "mla",
    };
    let format = config.quantization.as_ref().map(format_id);
    match machine {
        Machine::Cpu(_) => {
            let line = |operation: &str, kernel: &str| KernelLine {
                operation: operation.to_owned(),
                kernel: kernel.to_owned(),
                support: "native".to_owned(),
                at: "engine-cpu".to_owned(),
            };
            vec![
                line("attention", if attention == "mla" { "latent attention" } else { "paged attention" }),
                line("matrix products", format.unwrap_or("plain weights")),
            ]
        }
        Machine::Gpu(gpu) => {
            let mut lines = vec![line(&gpu.resolved, "attention", "attention", attention)];
            if let Some(format) = format {
                lines.push(line(&gpu.resolved, "matrix products", "quantization", format));
            }
            lines
        }
    }
}

/// The record's word for a checkpoint's format.
fn format_id(quantization: &crate::model::QuantizationConfig) -> &'static str {
    match (quantization.method.as_str(), quantization.weight_bits) {
        ("gguf", _) => "gguf",
        ("mxfp4", _) => "mxfp4",
        (method, 4) if method.contains("nvfp4") || method.contains("modelopt") => "nvfp4",
        (_, 4) => "int4_weight_only",
        ("fp8", _) => "fp8",
        (_, 8) => "int8",
        _ => "plain",
    }
}

fn line(resolved: &Resolved, operation: &str, table: &str, id: &str) -> KernelLine {
    let pointer = format!("/{table}/{id}");
    let support = resolved.value.pointer(&format!("{pointer}/support")).and_then(|value| value.as_str());
    KernelLine {
        operation: operation.to_owned(),
        kernel: id.to_owned(),
        support: support.unwrap_or("not in the record").to_owned(),
        at: resolved.origin(&pointer).map_or_else(|| "no entry".to_owned(), ToString::to_string),
    }
}
