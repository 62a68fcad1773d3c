//! What the fuzzers have in common. What they do with their inputs is in `targets`, how these are changed in `mutate`.

pub mod mutate;
pub mod targets;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `target` on `data`, and ends the process where a panic escapes from it.
///
/// libFuzzer's own hook would end it at any panic, also one that is caught, as those of the `tokenizers` crate are.
pub fn run(target: targets::Target, data: &[u8]) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let trace = std::backtrace::Backtrace::capture();
            LAST_PANIC.set(format!("{panic}\n{trace}"));
        }));
    });
    if catch_unwind(AssertUnwindSafe(|| target(data))).is_err() {
        eprintln!("a panic escapes: {}", LAST_PANIC.take());
        std::process::abort();
    }
}

/// The fuzzer of the target with this name: every fourth change is libFuzzer's own, the others know the form of the file.
#[macro_export]
macro_rules! fuzzer {
    ($name:ident) => {
        libfuzzer_sys::fuzz_target!(|data: &[u8]| $crate::run($crate::targets::$name, data));

        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            let changed = $crate::mutate::mutate(stringify!($name), &data[..size], u64::from(seed));
            if seed.is_multiple_of(4) || changed.len() > max_size {
                return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
            }
            data[..changed.len()].copy_from_slice(&changed);
            changed.len()
        });
    };
}
