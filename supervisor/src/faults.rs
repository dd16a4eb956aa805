//! Faults on purpose, for tests: points where this program can be stopped, killed or made to fail.
//!
//! With the feature `faults` they are those of `tests/fault-points`. Without it, as in every
//! release, they are nothing at all.

#[cfg(feature = "faults")]
pub(crate) use shellward_fault_points::{check, hit, passed_on};

/// A point that has been reached.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) const fn hit(_point: &str) {}

/// The same at an operation that can fail.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) const fn check(_point: &str) -> std::io::Result<()> {
    Ok(())
}

/// The one variable that a worker's environment holds then.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) const fn passed_on() -> Option<(&'static str, &'static str)> {
    None
}
