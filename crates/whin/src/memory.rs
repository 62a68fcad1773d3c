//! How much memory the machine has, and how to say it.

use sysinfo::{MemoryRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate, RefreshKind, System};

/// What this process may have at most, and how much of that is left, in bytes.
struct Limit {
    total: u64,
    left: u64,
}

/// Bytes that can be had without pushing others out, the limits of the process counted in; none where the system does
/// not say.
pub fn available() -> Option<u64> {
    let (system, own) = read()?;
    let left = limits(&system, own).map(|limit| limit.left);
    (system.total_memory() > 0).then(|| left.fold(system.available_memory(), u64::min))
}

/// Bytes of memory that the machine has, or that the limits of the process leave of it; none where the system does not
/// say.
pub fn total() -> Option<u64> {
    let (system, own) = read()?;
    let totals = limits(&system, own).map(|limit| limit.total);
    Some(totals.fold(system.total_memory(), u64::min)).filter(|_| system.total_memory() > 0)
}

/// The machine, and this process in it.
fn read() -> Option<(System, Pid)> {
    let memory = MemoryRefreshKind::nothing().with_ram();
    let mut system = System::new_with_specifics(RefreshKind::nothing().with_memory(memory)).ok()?;
    let own = Pid::from_u32(std::process::id());
    let kind = ProcessRefreshKind::nothing().without_tasks().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), false, kind);
    Some((system, own))
}

/// The limit of the control group and that of the address space, where there are any.
fn limits(system: &System, own: Pid) -> impl Iterator<Item = Limit> {
    let process = system.process(own);
    let group = process.and_then(|process| process.cgroup_limits()).or_else(|| system.cgroup_limits());
    // A control group counts files in the page cache as used, though they give way: what is left is its limit less
    // what its processes hold themselves.
    let group = group
        .map(|group| Limit { total: group.total_memory, left: group.total_memory.saturating_sub(group.rss) });
    let addresses = process
        .zip(address_space())
        .map(|(process, total)| Limit { total, left: total.saturating_sub(process.virtual_memory()) });
    group.into_iter().chain(addresses)
}

/// Bytes of addresses that this process may have (`ulimit -v`); none without a limit, or where the system has none.
fn address_space() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
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
