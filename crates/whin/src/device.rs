//! Where to compute: the names that a user can ask for, and what this machine has.

use std::str::FromStr;
use std::sync::LazyLock;

use whin_kernels::WeightKind;
use whin_kernels::cpu::{Cpu, Isa, isa};

use crate::memory;
use crate::{Error, ErrorKind, Result};

/// A place to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// The best that this machine has.
    Auto,
    /// The processor, with its best instruction set or the named one.
    Cpu(Option<&'static str>),
    /// The processor without any optimisation: slow, and the definition of what is right.
    Reference,
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if let Some(set) = name.strip_prefix("cpu:") {
            let found = instruction_sets().iter().find(|known| **known == set);
            return found.map(|set| Self::Cpu(Some(set))).ok_or_else(|| {
                let here = instruction_sets().join(", ");
                unavailable(name, &format!("this processor has the instruction sets {here}"))
            });
        }
        match name.split(':').next().unwrap_or(name) {
            "auto" if name == "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu(None)),
            "reference" if name == "reference" => Ok(Self::Reference),
            "metal" | "vulkan" | "cuda" => {
                Err(unavailable(name, "this version computes on the processor only"))
            }
            _ => Err(Error::new(
                ErrorKind::InvalidArguments,
                format!(
                    "device {name:?}: there are auto, cpu, cpu:<instruction set>, reference, metal, vulkan, cuda"
                ),
            )),
        }
    }
}

fn unavailable(name: &str, why: &str) -> Error {
    Error::new(
        ErrorKind::DeviceUnavailable,
        format!("device {name}: {why}; use --device auto or --device cpu"),
    )
}

/// A device that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What to pass as `--device`.
    pub id: String,
    /// The name its maker gave it.
    pub name: String,
    /// Bytes of memory, where the system says.
    pub memory: Option<u64>,
    /// Bytes of memory that are free, where the system says.
    pub available: Option<u64>,
    /// What else there is to know.
    pub detail: String,
}

/// The devices of this machine.
pub fn devices() -> Vec<DeviceInfo> {
    let threads = available_threads();
    vec![DeviceInfo {
        id: "cpu".to_owned(),
        name: processor_name(),
        memory: memory::total(),
        available: memory::available(),
        detail: format!("{threads} threads, {}", instruction_sets().join(", ")),
    }]
}

/// Threads that this process may run at once, by the system's word.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn processor_name() -> String {
    let mut system = sysinfo::System::new().ok();
    let brand = system.as_mut().and_then(|system| {
        system.refresh_cpu_list(sysinfo::CpuRefreshKind::nothing());
        Some(system.cpus().first()?.brand().trim().to_owned())
    });
    brand.filter(|brand| !brand.is_empty()).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The instruction sets of this processor that there are kernels for, the best first.
pub fn instruction_sets() -> &'static [&'static str] {
    static FOUND: LazyLock<Vec<&str>> = LazyLock::new(|| {
        fn name<I: Isa>() -> Option<&'static str> {
            I::detect().map(|_| I::NAME)
        }
        let found = [
            #[cfg(target_arch = "x86_64")]
            name::<isa::amx::Amx>(),
            #[cfg(target_arch = "x86_64")]
            name::<isa::avx512::Avx512>(),
            #[cfg(target_arch = "x86_64")]
            name::<isa::avxvnni::AvxVnni>(),
            #[cfg(target_arch = "x86_64")]
            name::<isa::avx2::Avx2>(),
            #[cfg(target_arch = "aarch64")]
            name::<isa::i8mm::I8mm>(),
            #[cfg(target_arch = "aarch64")]
            name::<isa::dotprod::DotProd>(),
            #[cfg(target_arch = "aarch64")]
            name::<isa::neon::Neon>(),
            name::<isa::scalar::Scalar>(),
        ];
        found.into_iter().flatten().collect()
    });
    &FOUND
}

/// The best of [`instruction_sets`].
pub(crate) fn best_instruction_set() -> &'static str {
    instruction_sets().first().copied().unwrap_or("scalar")
}

/// What is done with an instruction set that is known by its name.
pub(crate) trait WithIsa {
    type Out;

    fn run<I: Isa>(self) -> Self::Out;
}

/// Does it with one of [`instruction_sets`].
pub(crate) fn with_instruction_set<W: WithIsa>(name: &str, with: W) -> W::Out {
    match name {
        #[cfg(target_arch = "x86_64")]
        "amx" => with.run::<isa::amx::Amx>(),
        #[cfg(target_arch = "x86_64")]
        "avx512" => with.run::<isa::avx512::Avx512>(),
        #[cfg(target_arch = "x86_64")]
        "avxvnni" => with.run::<isa::avxvnni::AvxVnni>(),
        #[cfg(target_arch = "x86_64")]
        "avx2" => with.run::<isa::avx2::Avx2>(),
        #[cfg(target_arch = "aarch64")]
        "i8mm" => with.run::<isa::i8mm::I8mm>(),
        #[cfg(target_arch = "aarch64")]
        "dotprod" => with.run::<isa::dotprod::DotProd>(),
        #[cfg(target_arch = "aarch64")]
        "neon" => with.run::<isa::neon::Neon>(),
        _ => with.run::<isa::scalar::Scalar>(),
    }
}

/// Floating-point operations a second, two a multiplication, that `threads` threads do in products with matrices kept
/// as `kind`, where memory plays no part: measured now, in a tenth of a second. None for the reference.
///
/// # Errors
/// [`OutOfMemory`](ErrorKind::OutOfMemory) or [`DeviceFailed`](ErrorKind::DeviceFailed).
pub fn peak_flops(device: Device, kind: WeightKind, threads: usize) -> Result<Option<f64>> {
    struct Peak(WeightKind, usize);

    impl WithIsa for Peak {
        type Out = Result<f64>;

        fn run<I: Isa>(self) -> Result<f64> {
            Ok(Cpu::<I>::new(self.1)?.peak_flops(self.0)?)
        }
    }

    let name = match device {
        Device::Auto | Device::Cpu(None) => best_instruction_set(),
        Device::Cpu(Some(name)) => name,
        Device::Reference => return Ok(None),
    };
    with_instruction_set(name, Peak(kind, threads)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_or_refused_with_the_reason() {
        assert_eq!("auto".parse::<Device>().unwrap(), Device::Auto);
        assert_eq!("cpu".parse::<Device>().unwrap(), Device::Cpu(None));
        assert_eq!("cpu:scalar".parse::<Device>().unwrap(), Device::Cpu(Some("scalar")));
        for name in ["cuda", "cuda:0", "metal", "vulkan", "cpu:mmx"] {
            let error = name.parse::<Device>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeviceUnavailable);
            assert!(error.to_string().contains(name), "{error}");
        }
        for name in ["", "gpu", "auto:1", "reference:x"] {
            assert_eq!(name.parse::<Device>().unwrap_err().kind(), ErrorKind::InvalidArguments, "{name}");
        }
    }

    #[test]
    fn the_processor_is_always_there() {
        let devices = devices();
        assert_eq!(devices[0].id, "cpu");
        assert!(!devices[0].name.is_empty());
    }
}
