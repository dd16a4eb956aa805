//! Everything that knows the Agent Host Protocol's types: the only module that names `ahp` and
//! `ahp_types`. Pure: text and plain values in, text and plain values out.

pub mod action;
pub mod claim;
pub mod document;
pub mod envelope;
pub mod names;
pub mod params;
pub mod root;
pub mod rpc;
pub mod version;
pub mod view;

pub use action::HostAction;
pub use claim::Claim;
pub use document::TerminalDocument;
pub use rpc::RpcError;
pub use version::Profile;
