//! NCCL, through a table of its functions of our own: the bindings do not find `libnccl.so.2`, the only name that most
//! installations have.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use libloading::Library as Handle;

use crate::kernels::{Element, Reduce};
use crate::library::{Library, require};

type Communicator = *mut c_void;
type AllReduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Communicator, *mut c_void) -> c_int;

/// `ncclSum`, and `ncclDataType_t`'s numbers.
const SUM: c_int = 0;
const FLOAT16: c_int = 6;
const FLOAT32: c_int = 7;
const BFLOAT16: c_int = 9;

/// The functions that are used. The library is never unloaded.
struct Functions {
    all_reduce: AllReduce,
    destroy: unsafe extern "C" fn(Communicator) -> c_int,
    text: unsafe extern "C" fn(c_int) -> *const c_char,
    init_all: unsafe extern "C" fn(*mut Communicator, c_int, *const c_int) -> c_int,
    _handle: Handle,
}

impl Functions {
    fn load() -> Result<Self, String> {
        let found = require(Library::Nccl).map_err(ToString::to_string)?;
        // SAFETY: the library was loaded from this file before, so its initialisers have run.
        let handle = unsafe { Handle::new(&found.path) }.map_err(|error| error.to_string())?;
        let missing = |error: libloading::Error| format!("{}: {error}", found.path.display());
        // SAFETY: these are the functions' signatures in every release of NCCL 2.
        unsafe {
            Ok(Self {
                all_reduce: *handle.get(b"ncclAllReduce\0").map_err(missing)?,
                destroy: *handle.get(b"ncclCommDestroy\0").map_err(missing)?,
                text: *handle.get(b"ncclGetErrorString\0").map_err(missing)?,
                init_all: *handle.get(b"ncclCommInitAll\0").map_err(missing)?,
                _handle: handle,
            })
        }
    }

    fn check(&self, call: &str, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NCCL gives a string that lives as long as the library.
        let text = unsafe { CStr::from_ptr((self.text)(code)) };
        Err(format!("{call}: {}", text.to_string_lossy()))
    }
}

/// One rank's communicator.
pub struct NcclRank {
    functions: Arc<Functions>,
    communicator: Communicator,
}

// SAFETY: a communicator may be used by any one thread at a time.
unsafe impl Send for NcclRank {}

impl NcclRank {
    /// A communicator per GPU, in order. Errors: NCCL is missing, or does not come up.
    pub fn all(contexts: &[Arc<CudaContext>]) -> Result<Vec<Self>, String> {
        let functions = Arc::new(Functions::load()?);
        let devices: Vec<c_int> = contexts.iter().map(|context| context.ordinal() as c_int).collect();
        let mut communicators = vec![null_mut(); devices.len()];
        // SAFETY: as many places as devices.
        let code =
            unsafe { (functions.init_all)(communicators.as_mut_ptr(), devices.len() as c_int, devices.as_ptr()) };
        functions.check("ncclCommInitAll", code)?;
        let rank = |communicator| Self { functions: Arc::clone(&functions), communicator };
        Ok(communicators.into_iter().map(rank).collect())
    }

    /// Puts a sum into the stream.
    ///
    /// # Safety
    /// Input and output are memory of the communicator's GPU of the message's size, until the stream has run it.
    pub unsafe fn all_reduce(&self, message: &Reduce, stream: &CudaStream) -> Result<(), String> {
        let Reduce { element, input, output, bytes } = *message;
        let format = match element {
            Element::Bf16 => BFLOAT16,
            Element::F16 => FLOAT16,
            Element::F32 => FLOAT32,
        };
        let (input, output) = (input as *const c_void, output as *mut c_void);
        let count = (bytes / element.bytes()) as usize;
        let (communicator, stream) = (self.communicator, stream.cu_stream().cast());
        // SAFETY: this function's contract.
        let code = unsafe { (self.functions.all_reduce)(input, output, count, format, SUM, communicator, stream) };
        self.functions.check("ncclAllReduce", code)
    }
}

impl Drop for NcclRank {
    fn drop(&mut self) {
        // SAFETY: made by `all`, destroyed once.
        let _ = unsafe { (self.functions.destroy)(self.communicator) };
    }
}
