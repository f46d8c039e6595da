//! Threads that share one step after another: thousands of short parallel sections a second.
//!
//! The thread that calls [`Pool::run`] works too. Between sections a worker spins for a moment, so that the next one
//! starts at once, then parks: an idle pool uses no processor time. A worker that comes late finds the section closed
//! and is not waited for, so a section never takes longer than the caller alone would need plus the piece of work
//! that another thread has begun.

use std::{
    any::Any,
    cell::UnsafeCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

/// How long a worker stays awake for the next section.
const SPIN: Duration = Duration::from_micros(60);

/// Looks between two looks at the clock.
const LOOKS: usize = 64;

/// State word: sections opened so far, above this bit.
const EPOCH: u64 = 1 << 32;
/// Workers may enter.
const OPEN: u64 = 1 << 31;
/// Workers inside: the bits below.
const INSIDE: u64 = OPEN - 1;

/// The body of a section; its lifetime is that of [`Pool::run`]'s argument.
type Body = *const (dyn Fn(usize) + Sync);

/// How many tasks of a thread's share are taken, on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Taken(AtomicUsize);

struct Shared {
    /// Epoch, open bit and number of workers inside.
    state: AtomicU64,
    body: UnsafeCell<Option<Body>>,
    /// Who waits for the workers to leave.
    caller: UnsafeCell<Option<Thread>>,
    /// One for each thread, the caller first.
    taken: Vec<Taken>,
    /// Set for each worker while it is parked or about to park.
    sleeping: Vec<AtomicBool>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    spin: Duration,
}

// SAFETY: the cells are written by the caller while the section is closed and nobody is inside, and read by workers
// that are inside, which `state` orders.
unsafe impl Sync for Shared {}
// SAFETY: the body is `Sync`, and is not used after the section that it was given for.
unsafe impl Send for Shared {}

/// The start of values that threads share by disjoint chunks.
struct SharedStart<T>(*mut T);

// SAFETY: each thread takes its own chunks out, and `T` may be used by another thread.
unsafe impl<T: Send> Sync for SharedStart<T> {}

impl<T> SharedStart<T> {
    /// # Safety
    /// `offset` is inside the values.
    unsafe fn at(&self, offset: usize) -> *mut T {
        // SAFETY: this function's contract.
        unsafe { self.0.add(offset) }
    }
}

/// A caller and `threads - 1` workers.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One section at a time.
    turn: Mutex<()>,
}

impl Pool {
    /// A pool in which `threads` threads work: the caller and `threads - 1` workers (at least the caller).
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        Self::with_spin(threads, SPIN)
    }

    /// The pool of one of `ranks` ranks that share this machine's cores: they get equal shares, at least one thread
    /// each. Ranks that outnumber the cores do not spin.
    ///
    /// # Errors
    /// As [`Pool::new`].
    pub fn share(ranks: usize) -> std::io::Result<Self> {
        let cores = cores();
        Self::with_spin((cores / ranks.max(1)).max(1), if ranks <= cores { SPIN } else { Duration::ZERO })
    }

    fn with_spin(threads: usize, spin: Duration) -> std::io::Result<Self> {
        let count = threads.max(1) - 1;
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            body: UnsafeCell::new(None),
            caller: UnsafeCell::new(None),
            taken: (0..=count).map(|_| Taken::default()).collect(),
            sleeping: (0..count).map(|_| AtomicBool::new(false)).collect(),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            spin: if threads <= cores() { spin } else { Duration::ZERO },
        });
        let mut pool = Self { shared, workers: Vec::new(), turn: Mutex::new(()) };
        for index in 0..count {
            let shared = Arc::clone(&pool.shared);
            let builder = thread::Builder::new().name(format!("kernel-{index}"));
            pool.workers.push(builder.spawn(move || shared.work(index))?);
        }
        Ok(pool)
    }

    /// Threads that work, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task` once with each number below `count` and returns when all are done. Each thread has a share of
    /// neighbouring numbers, so that it reads memory in order, and helps with the other shares when its own is done.
    /// Sections of one pool run one after another; a task must not start one of its own.
    ///
    /// # Panics
    /// Continues the panic of a task, after the other threads have left the section.
    pub fn run(&self, count: usize, task: impl Fn(usize) + Sync) {
        if count <= 1 || self.workers.is_empty() {
            (0..count).for_each(task);
            return;
        }
        let (taken, threads) = (&self.shared.taken, self.threads());
        let body = |thread: usize| {
            for share in (thread..threads).chain(0..thread) {
                let (first, end) = (share * count / threads, (share + 1) * count / threads);
                loop {
                    let index = first + taken[share].0.fetch_add(1, Ordering::Relaxed);
                    if index >= end {
                        break;
                    }
                    task(index);
                }
            }
        };
        self.section(&body, count - 1);
    }

    /// Calls `task` once with each chunk of `chunk` values (the last one may be shorter) and its number, as
    /// [`Pool::run`].
    ///
    /// # Panics
    /// As [`Pool::run`]; if `chunk` is 0.
    pub fn run_chunks<T: Send>(&self, values: &mut [T], chunk: usize, task: impl Fn(usize, &mut [T]) + Sync) {
        let length = values.len();
        let start = SharedStart(values.as_mut_ptr());
        self.run(length.div_ceil(chunk), |index| {
            let first = index * chunk;
            // SAFETY: chunks with different numbers do not overlap, each number is given out once, and `values` is
            // borrowed until `run` returns.
            let part = unsafe { std::slice::from_raw_parts_mut(start.at(first), chunk.min(length - first)) };
            task(index, part);
        });
    }

    /// Runs `body` with the thread's number, on the caller and on up to `most` workers at the same time.
    fn section(&self, body: &(dyn Fn(usize) + Sync), most: usize) {
        let turn = lock(&self.turn);
        self.open(body);
        self.wake(most);
        let outcome = catch_unwind(AssertUnwindSafe(|| body(0)));
        self.close();
        let panic = lock(&self.shared.panic).take();
        drop(turn);
        if let Err(payload) = outcome {
            resume_unwind(payload);
        }
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    fn open(&self, body: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime changes. `close` waits until no worker is inside, so none uses the body later.
        let body = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Body>(body) };
        for taken in &self.shared.taken {
            taken.0.store(0, Ordering::Relaxed);
        }
        // SAFETY: the section is closed and nobody is inside: `turn` is held, and the last `close` has waited.
        unsafe {
            *self.shared.body.get() = Some(body);
            *self.shared.caller.get() = Some(thread::current());
        }
        // Closed, nobody inside: the word is the epoch alone, which may wrap around.
        let next = self.shared.state.load(Ordering::Relaxed).wrapping_add(EPOCH);
        // The sleepers' flags are read after this store: both sides are sequentially consistent.
        self.shared.state.store(next | OPEN, Ordering::SeqCst);
    }

    fn wake(&self, most: usize) {
        for (sleeping, worker) in self.shared.sleeping.iter().zip(&self.workers).take(most) {
            if sleeping.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
    }

    /// Lets nobody in any more and waits for those inside.
    fn close(&self) {
        let state = &self.shared.state;
        let mut inside = state.fetch_and(!OPEN, Ordering::AcqRel) & INSIDE;
        let mut looks = 0;
        while inside != 0 {
            looks += 1;
            if looks < 50 * LOOKS && !self.shared.spin.is_zero() {
                std::hint::spin_loop();
            } else {
                // The last one out unparks; the time limit is for the caller's own stray unpark tokens.
                thread::park_timeout(Duration::from_millis(1));
            }
            inside = state.load(Ordering::Acquire) & INSIDE;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of tasks, so joining cannot fail.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn work(&self, index: usize) {
        let mut seen = 0;
        while let Some(epoch) = self.wait(index, seen) {
            seen = epoch;
            if self.enter(epoch) {
                self.help(index + 1);
            }
        }
    }

    /// The number of a section that is open and was not seen before; `None` when the pool is dropped.
    fn wait(&self, index: usize, seen: u64) -> Option<u64> {
        let ready = || {
            let state = self.state.load(Ordering::SeqCst);
            (state & OPEN != 0 && state / EPOCH != seen).then_some(state / EPOCH)
        };
        let begin = Instant::now();
        loop {
            for _ in 0..LOOKS {
                if let Some(epoch) = ready() {
                    return Some(epoch);
                }
                std::hint::spin_loop();
            }
            if begin.elapsed() >= self.spin {
                break;
            }
        }
        self.sleeping[index].store(true, Ordering::SeqCst);
        let epoch = loop {
            if self.stop.load(Ordering::SeqCst) {
                break None;
            }
            if let Some(epoch) = ready() {
                break Some(epoch);
            }
            thread::park();
        };
        self.sleeping[index].store(false, Ordering::SeqCst);
        epoch
    }

    /// Counts this worker in if the section is still open.
    fn enter(&self, epoch: u64) -> bool {
        self.state
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
                (state & OPEN != 0 && state / EPOCH == epoch).then_some(state + 1)
            })
            .is_ok()
    }

    fn help(&self, thread: usize) {
        // SAFETY: this worker is inside, so the caller has set both and does not change them before it has left.
        let (body, caller) = unsafe { (*self.body.get(), (*self.caller.get()).clone()) };
        if let Some(body) = body {
            // SAFETY: the caller keeps the body until this worker has left.
            let body = unsafe { &*body };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(thread))) {
                lock(&self.panic).get_or_insert(payload);
            }
        }
        let state = self.state.fetch_sub(1, Ordering::AcqRel) - 1;
        // Only after the section was closed can the caller be waiting.
        if let (0, Some(caller)) = (state & (OPEN | INSIDE), caller) {
            caller.unpark();
        }
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A panic cannot leave what these locks protect half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
