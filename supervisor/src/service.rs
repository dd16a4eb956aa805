//! What the service manager is told (sd_notify(3)). Where there is none, nothing is.
//!
//! The variable that names its socket stays with this process: workers start with an empty
//! environment, and shells do not get it (`worker/src/environment/names.rs`).

use sd_notify::NotifyState;

/// Clients can connect.
pub(crate) fn ready() {
    tell(&NotifyState::Ready);
}

/// The host is about to end.
pub(crate) fn stopping() {
    tell(&NotifyState::Stopping);
}

fn tell(state: &NotifyState) {
    // A manager that does not listen ends us when its patience has; clients are served until then.
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::warn!(%error, "the service manager could not be told: {state}");
    }
}
