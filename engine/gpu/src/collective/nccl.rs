//! NCCL, through a table of its functions of our own: the bindings do not find `libnccl.so.2`, the only name that most
//! installations have.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaStream};
use libloading::Library as Handle;

use crate::kernels::{Element, Reduce};
use crate::library::{Library, require};

type Communicator = *mut c_void;
type AllReduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Communicator, *mut c_void) -> c_int;

type AllGather = unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Communicator, *mut c_void) -> c_int;

/// `ncclSum`, and `ncclDataType_t`'s numbers.
const SUM: c_int = 0;
const UINT8: c_int = 1;
const FLOAT16: c_int = 6;
const FLOAT32: c_int = 7;
const BFLOAT16: c_int = 9;

/// The functions that are used. The library is never unloaded.
struct Functions {
    all_reduce: AllReduce,
    all_gather: AllGather,
    /// The same arguments as a sum's, with the root in place of the operation.
    broadcast: AllReduce,
    abort: unsafe extern "C" fn(Communicator) -> c_int,
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
                all_gather: *handle.get(b"ncclAllGather\0").map_err(missing)?,
                broadcast: *handle.get(b"ncclBroadcast\0").map_err(missing)?,
                abort: *handle.get(b"ncclCommAbort\0").map_err(missing)?,
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

/// How long an abort waits for a call that is being launched.
const ABORT_PATIENCE: Duration = Duration::from_secs(1);

/// One rank's communicator.
pub struct NcclRank {
    functions: Arc<Functions>,
    /// Null once it was aborted.
    communicator: Mutex<Communicator>,
    /// Outlives the communicator, which has memory of it.
    _context: Arc<CudaContext>,
}

// SAFETY: a communicator may be used by any one thread at a time, which the lock ensures.
unsafe impl Send for NcclRank {}
// SAFETY: as above.
unsafe impl Sync for NcclRank {}

impl NcclRank {
    /// A communicator per GPU, in order. Errors: NCCL is missing, or does not come up.
    pub fn all(contexts: &[Arc<CudaContext>]) -> Result<Vec<Arc<Self>>, String> {
        let functions = Arc::new(Functions::load()?);
        let devices: Vec<c_int> = contexts.iter().map(|context| context.ordinal() as c_int).collect();
        let mut communicators = vec![null_mut(); devices.len()];
        // SAFETY: as many places as devices.
        let code =
            unsafe { (functions.init_all)(communicators.as_mut_ptr(), devices.len() as c_int, devices.as_ptr()) };
        functions.check("ncclCommInitAll", code)?;
        let rank = |(communicator, context): (Communicator, &Arc<CudaContext>)| {
            let communicator = Mutex::new(communicator);
            Arc::new(Self { functions: Arc::clone(&functions), communicator, _context: Arc::clone(context) })
        };
        Ok(communicators.into_iter().zip(contexts).map(rank).collect())
    }

    /// Makes a call with the communicator, unless that was aborted.
    fn call(&self, name: &str, call: impl FnOnce(&Functions, Communicator) -> c_int) -> Result<(), String> {
        let communicator = self.communicator.lock().unwrap_or_else(PoisonError::into_inner);
        if communicator.is_null() {
            return Err(format!("{name}: the communicator was aborted"));
        }
        self.functions.check(name, call(&self.functions, *communicator))
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
        let (count, stream) = ((bytes / element.bytes()) as usize, stream.cu_stream().cast());
        self.call("ncclAllReduce", |functions, communicator| {
            // SAFETY: this function's contract.
            unsafe { (functions.all_reduce)(input, output, count, format, SUM, communicator, stream) }
        })
    }

    /// Puts the messages of all ranks, `bytes` each, one after the other.
    ///
    /// # Safety
    /// Input is memory of the communicator's GPU of the message's size, and output of as many as there are ranks, until
    /// the stream has run it.
    pub unsafe fn all_gather(&self, input: u64, output: u64, bytes: u64, stream: &CudaStream) -> Result<(), String> {
        let (input, output) = (input as *const c_void, output as *mut c_void);
        let (bytes, stream) = (bytes as usize, stream.cu_stream().cast());
        self.call("ncclAllGather", |functions, communicator| {
            // SAFETY: this function's contract.
            unsafe { (functions.all_gather)(input, output, bytes, UINT8, communicator, stream) }
        })
    }

    /// Copies `bytes` bytes of rank `root` to all ranks, in place.
    ///
    /// # Safety
    /// As for [`NcclRank::all_reduce`].
    pub unsafe fn broadcast(&self, data: u64, bytes: u64, root: usize, stream: &CudaStream) -> Result<(), String> {
        let (input, output) = (data as *const c_void, data as *mut c_void);
        let (bytes, stream) = (bytes as usize, stream.cu_stream().cast());
        self.call("ncclBroadcast", |functions, communicator| {
            // SAFETY: this function's contract.
            unsafe { (functions.broadcast)(input, output, bytes, UINT8, root as c_int, communicator, stream) }
        })
    }

    /// Ends what waits on the device, and every later call. A call that another thread is launching just now is given a
    /// moment to come back.
    pub fn abort(&self) {
        let until = Instant::now() + ABORT_PATIENCE;
        let mut communicator = loop {
            match self.communicator.try_lock() {
                Ok(communicator) => break communicator,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::yield_now(),
                Err(TryLockError::WouldBlock) => return,
            }
        };
        let communicator = std::mem::replace(&mut *communicator, null_mut());
        if !communicator.is_null() {
            // SAFETY: made by `all`, and nobody has it any more.
            let _ = unsafe { (self.functions.abort)(communicator) };
        }
    }
}

impl Drop for NcclRank {
    fn drop(&mut self) {
        let communicator = *self.communicator.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !communicator.is_null() {
            // SAFETY: made by `all`, destroyed once.
            let _ = unsafe { (self.functions.destroy)(communicator) };
        }
    }
}
