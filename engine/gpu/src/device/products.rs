//! Matrix products of many rows through cuBLASLt, one prepared plan for each shape.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUdeviceptr;
use engine::backend::BackendError;

use super::DeviceError;
use super::memory::{Account, Allocation, Purpose};
use crate::library::{Library, require};

/// What cuBLASLt may use beside inputs and outputs; NVIDIA's own recommendation for large GPUs.
const WORKSPACE: usize = 32 << 20;

/// `output[rows, out] = input[rows, in] * weight[out, in]^T`, bf16 in, sums in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    pub rows: usize,
    pub input: usize,
    pub out: usize,
    /// Elements from one row of the output to the next.
    pub stride: usize,
    /// The output is f32 instead of bf16.
    pub wide: bool,
    /// One value per output, of the output's type, is added.
    pub bias: bool,
}

/// cuBLASLt on one stream.
pub struct Products {
    handle: sys::cublasLtHandle_t,
    workspace: Allocation,
    stream: Arc<CudaStream>,
    plans: HashMap<Shape, Plan>,
}

struct Plan {
    description: sys::cublasLtMatmulDesc_t,
    weight: sys::cublasLtMatrixLayout_t,
    input: sys::cublasLtMatrixLayout_t,
    output: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Products {
    /// Errors: no cuBLASLt, no room for its workspace.
    pub fn new(stream: &Arc<CudaStream>, account: &Account) -> Result<Self, BackendError> {
        require(Library::CublasLt).map_err(|missing| DeviceError::Missing(missing.clone()))?;
        let workspace = Allocation::new(account, WORKSPACE, Purpose::Workspace, "cuBLASLt's workspace")?;
        let handle = result::create_handle().map_err(|error| failed("cublasLtCreate", error))?;
        Ok(Self { handle, workspace, stream: Arc::clone(stream), plans: HashMap::new() })
    }

    /// Launches one product. The pointers are to device memory of the shape's sizes, on 16 bytes; `bias` is there where
    /// the shape says so.
    pub fn multiply(
        &mut self,
        shape: Shape,
        weight: CUdeviceptr,
        input: CUdeviceptr,
        output: CUdeviceptr,
        bias: Option<CUdeviceptr>,
    ) -> Result<(), BackendError> {
        if !self.plans.contains_key(&shape) {
            let plan = Plan::new(self.handle, shape).map_err(|error| failed("matrix product", error))?;
            self.plans.insert(shape, plan);
        }
        let plan = &self.plans[&shape];
        if let Some(bias) = bias {
            use sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)
                .map_err(|error| failed("matrix product", error))?;
        }
        let (one, zero) = (1.0_f32, 0.0_f32);
        // SAFETY: descriptions and layouts live in `plans`; the caller gives memory of the shape's sizes; scalars are
        // read before the call returns, because the pointer mode is the host's.
        let launched = unsafe {
            result::matmul(
                self.handle,
                plan.description,
                (&raw const one).cast(),
                (&raw const zero).cast(),
                weight as *const c_void,
                plan.weight,
                input as *const c_void,
                plan.input,
                output as *const c_void,
                plan.output,
                output as *mut c_void,
                plan.output,
                &raw const plan.algorithm,
                self.workspace.pointer() as *mut c_void,
                WORKSPACE,
                self.stream.cu_stream().cast(),
            )
        };
        launched.map_err(|error| failed("matrix product", error))
    }
}

impl Plan {
    /// cuBLASLt counts columns first: what is `[rows, columns]` here is a transposed matrix there, so the weight is
    /// taken transposed and nothing is moved.
    fn new(handle: sys::cublasLtHandle_t, shape: Shape) -> Result<Self, CublasError> {
        use sys::cublasLtMatmulDescAttributes_t::{CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_TRANSA};
        use sys::cudaDataType_t::{CUDA_R_16BF, CUDA_R_32F};
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        let description = result::create_matmul_desc(compute, CUDA_R_32F)?;
        set(description, CUBLASLT_MATMUL_DESC_TRANSA, &1_i32)?;
        if shape.bias {
            set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, &sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS)?;
        }
        let (rows, columns, out) = (shape.rows as u64, shape.input as u64, shape.out as u64);
        let weight = result::create_matrix_layout(CUDA_R_16BF, columns, out, columns as i64)?;
        let input = result::create_matrix_layout(CUDA_R_16BF, columns, rows, columns as i64)?;
        let kind = if shape.wide { CUDA_R_32F } else { CUDA_R_16BF };
        let output = result::create_matrix_layout(kind, out, rows, shape.stride as i64)?;
        let algorithm = choose(handle, description, [weight, input, output])?;
        Ok(Self { description, weight, input, output, algorithm })
    }
}

/// Sets an attribute whose type is `T` in cuBLASLt's documentation.
fn set<T>(
    description: sys::cublasLtMatmulDesc_t,
    attribute: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> Result<(), CublasError> {
    // SAFETY: the value is of the attribute's type, and read during the call.
    unsafe {
        result::set_matmul_desc_attribute(description, attribute, std::ptr::from_ref(value).cast(), size_of::<T>())
    }
}

/// The library's first choice with our workspace.
fn choose(
    handle: sys::cublasLtHandle_t,
    description: sys::cublasLtMatmulDesc_t,
    [weight, input, output]: [sys::cublasLtMatrixLayout_t; 3],
) -> Result<sys::cublasLtMatmulAlgo_t, CublasError> {
    use sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    let preference = result::create_matmul_pref()?;
    let room = WORKSPACE;
    // SAFETY: everything was just made; the attribute is a size, read during the call.
    unsafe {
        let value = (&raw const room).cast();
        let attribute = CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        result::set_matmul_pref_attribute(preference, attribute, value, size_of::<usize>())?;
        let found = result::get_matmul_algo_heuristic(handle, description, weight, input, output, output, preference);
        result::destroy_matmul_pref(preference)?;
        Ok(found?.algo)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once; a failure leaves nothing to do.
        unsafe {
            let _ = result::destroy_matmul_desc(self.description);
            for layout in [self.weight, self.input, self.output] {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        self.plans.clear();
        // SAFETY: made by `new`, destroyed once. It waits for the device; after a fault it may fail.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

fn failed(operation: &'static str, error: CublasError) -> BackendError {
    BackendError::Device { operation, message: format!("cuBLASLt: {error}") }
}
