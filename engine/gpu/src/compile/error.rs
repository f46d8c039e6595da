use std::path::PathBuf;

/// Why there is no compiled kernel.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    #[error("{0}")]
    NoCompiler(String),
    #[error("the pack of kernels has no {unit} for {target}, and there is no compiler to make it: {missing}")]
    NotInPack { unit: String, target: String, missing: String },
    #[error("NVRTC {version} does not compile {unit} for {target}:\n{log}")]
    Rejected { unit: String, target: String, version: String, log: String },
    #[error("NVRTC: {call} failed: {error}")]
    Compiler { call: &'static str, error: String },
    #[error("{path}: {error}")]
    File { path: PathBuf, error: std::io::Error },
    #[error("{path} is not a pack of kernels: {what}")]
    Pack { path: PathBuf, what: String },
    #[error(transparent)]
    Kernel(#[from] crate::kernels::KernelError),
}

impl From<CompileError> for engine::backend::BackendError {
    fn from(error: CompileError) -> Self {
        Self::Device { operation: "load kernels", message: error.to_string() }
    }
}
