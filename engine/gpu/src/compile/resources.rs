//! What a kernel takes of a multiprocessor, as the assembler reports it.

use serde::{Deserialize, Serialize};

/// 32-bit registers that a block may have, on every architecture since 3.5 (CUDA programming guide, technical
/// specifications per compute capability).
pub const REGISTERS_PER_BLOCK: u32 = 64 * 1024;

/// One kernel's resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelResources {
    pub kernel: String,
    /// Of a thread.
    pub registers: u32,
    /// Bytes of local memory that a thread spills registers to: stores and loads.
    pub spilled: u32,
    /// Bytes of a thread's stack.
    pub stack: u32,
    /// Bytes of static shared memory.
    pub shared: u32,
}

/// Reads the log of `--ptxas-options=--verbose`.
pub(super) fn parse(log: &str) -> Vec<KernelResources> {
    let mut kernels: Vec<KernelResources> = Vec::new();
    for line in log.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            kernels.push(KernelResources { kernel, ..KernelResources::default() });
        }
        let Some(kernel) = kernels.last_mut() else { continue };
        if line.contains("bytes stack frame") {
            kernel.stack = number_before(line, " bytes stack frame");
            kernel.spilled = number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
        }
        if line.contains("Used ") {
            kernel.registers = number_before(line, " registers");
            kernel.shared = number_before(line, " bytes smem");
        }
    }
    kernels
}

/// The number in front of `words`; 0 where they are not in the line.
fn number_before(line: &str, words: &str) -> u32 {
    let number = line.find(words).map(|at| &line[..at]);
    number.and_then(|text| text.rsplit([' ', ',']).next()).and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_assembler_s_report() {
        let log = "ptxas info    : 0 bytes gmem\n\
                   ptxas info    : Compiling entry function 'sample' for 'sm_90a'\n\
                   ptxas info    : Function properties for sample\n    \
                   16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n\
                   ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 33032 bytes smem\n\
                   ptxas info    : Compiling entry function 'argmax' for 'sm_90a'\n\
                   ptxas info    : Function properties for argmax\n    \
                   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                   ptxas info    : Used 22 registers, used 1 barriers, 392 bytes cmem[0]\n";
        let sample = KernelResources { kernel: "sample".into(), registers: 40, spilled: 20, stack: 16, shared: 33032 };
        let argmax = KernelResources { kernel: "argmax".into(), registers: 22, ..KernelResources::default() };
        assert_eq!(parse(log), [sample, argmax]);
    }
}
