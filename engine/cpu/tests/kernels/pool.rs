//! The pool: every task once, panics that come back, workers that sleep.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use engine_cpu::kernels::Pool;

#[test]
fn every_task_runs_once() {
    for threads in [1, 2, 3, 8] {
        let pool = Pool::new(threads).unwrap();
        for count in [0, 1, 2, 7, 100] {
            for _ in 0..200 {
                let runs: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                pool.run(count, |index| {
                    runs[index].fetch_add(1, Ordering::Relaxed);
                });
                assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "{threads} threads, {count} tasks");
            }
        }
    }
}

#[test]
fn chunks_cover_the_values_without_overlap() {
    let pool = Pool::new(4).unwrap();
    for (length, chunk) in [(0, 3), (10, 3), (12, 3), (5, 100)] {
        let mut values = vec![0_usize; length];
        pool.run_chunks(&mut values, chunk, |index, chunk| chunk.iter_mut().for_each(|value| *value += index + 1));
        assert!(values.iter().enumerate().all(|(at, value)| *value == at / chunk + 1), "{length} by {chunk}");
    }
}

#[test]
fn other_threads_take_part() {
    let pool = Pool::new(2).unwrap();
    let threads = std::sync::Mutex::new(std::collections::HashSet::new());
    let begin = Instant::now();
    while threads.lock().unwrap().len() < 2 {
        assert!(begin.elapsed() < Duration::from_secs(30), "the worker never took a task");
        pool.run(8, |_| {
            threads.lock().unwrap().insert(std::thread::current().id());
            std::thread::sleep(Duration::from_millis(1));
        });
    }
}

#[test]
fn several_callers_take_turns() {
    let (pool, total) = (Pool::new(3).unwrap(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    pool.run(10, |_| {
                        total.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 4000);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    let pool = Pool::new(3).unwrap();
    for bad in 0..20 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.run(20, |index| assert!(index != bad, "task {index} fails"));
        }));
        let message = *result.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(message, format!("task {bad} fails"));
        let done = AtomicUsize::new(0);
        pool.run(20, |_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 20);
    }
}

/// Processor time of this process.
#[cfg(target_os = "linux")]
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = text.rsplit(')').next().unwrap();
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_pool_uses_no_processor_time() {
    // In a process of its own: the other tests of this file use processor time.
    if std::env::var_os("POOL_TEST_CHILD").is_none() {
        let name = "pool::an_idle_pool_uses_no_processor_time";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        assert!(child.args([name, "--exact"]).env("POOL_TEST_CHILD", "1").status().unwrap().success());
        return;
    }
    let pool = Pool::new(4).unwrap();
    pool.run(100, |_| {});
    std::thread::sleep(Duration::from_millis(50));
    let before = processor_time();
    std::thread::sleep(Duration::from_secs(1));
    assert!(processor_time() - before <= Duration::from_millis(20));
    drop(pool);
}
