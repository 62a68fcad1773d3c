//! How much memory the machine has, and how to say it.

use sysinfo::{MemoryRefreshKind, RefreshKind, System};

/// Bytes that can be had without pushing others out, the limit of the control group counted in; none where the
/// system does not say.
pub fn available() -> Option<u64> {
    let system = read()?;
    let free = system.available_memory();
    // A control group counts files in the page cache as used, though they give way: what is left is its limit less
    // what its processes hold themselves.
    let left = system.cgroup_limits().map(|limits| limits.total_memory.saturating_sub(limits.rss));
    (system.total_memory() > 0).then_some(left.map_or(free, |left| left.min(free)))
}

/// Bytes of memory that the machine has, or that the control group leaves of it; none where the system does not say.
pub fn total() -> Option<u64> {
    let system = read()?;
    let total = system.total_memory();
    (total > 0).then(|| system.cgroup_limits().map_or(total, |limits| limits.total_memory.min(total)))
}

fn read() -> Option<System> {
    let memory = MemoryRefreshKind::nothing().with_ram();
    System::new_with_specifics(RefreshKind::nothing().with_memory(memory)).ok()
}

/// Bytes a second that `threads` threads read from memory, measured now: it takes a second and 640 MiB.
///
/// # Errors
/// [`OutOfMemory`](crate::ErrorKind::OutOfMemory) or [`DeviceFailed`](crate::ErrorKind::DeviceFailed).
pub fn bandwidth(threads: usize) -> crate::Result<f64> {
    Ok(whin_kernels::cpu::read_bandwidth(threads)?)
}

/// The most memory that this process has had at once, in bytes; none where the system does not say.
pub fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// A size for people: `13.2 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{size:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_read_well() {
        assert_eq!(super::size(0), "0 bytes");
        assert_eq!(super::size(1536), "1.5 KiB");
        assert_eq!(super::size(3 << 40), "3.0 TiB");
        assert!(super::total() >= super::available());
    }
}
