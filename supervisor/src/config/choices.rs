//! What the flags that offer a choice can be.

use clap::ValueEnum;
use serde::Deserialize;

/// `--pty`
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PtyMode {
    /// On ptys if a probe says that they work, else on pipes.
    #[default]
    Auto,
    /// Always on pipes; no pty is tried.
    Never,
    /// On ptys, or not at all.
    Require,
}

/// `--marks`
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarksMode {
    /// They are taken out of the output.
    #[default]
    Strip,
    /// They stay in the output.
    Keep,
}

/// `--shell-integration`
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShellIntegration {
    /// Where we have a script for the shell, on a pty.
    #[default]
    Auto,
    /// Never; marks that a shell prints by itself are believed.
    Off,
}

/// `--log`
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// Every line a JSON object.
    Json,
}

/// `--on-exit`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExit {
    /// They end, on TERM and INT as by `shellward shutdown`.
    Dispose,
    /// They run on after TERM and INT, and the next supervisor takes them over; `shellward shutdown`
    /// ends them.
    Keep,
}

/// `--restart`
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Its terminal has exited then.
    #[default]
    Never,
    /// A new shell is started in its terminal; not after the third time in a minute.
    OnCrash,
}

/// `--claims`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claims {
    /// Nobody, while its holder is connected.
    Held,
    /// Anybody.
    Open,
}

/// `--input-from`, `--size-from`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum From {
    /// Every client.
    Anyone,
    /// The client that holds the terminal.
    Holder,
}
