//! An interactive shell as a person uses it: commands, each with its line, output and code.

use ahp_types::state::TerminalContentPart;

use crate::{DEADLINE, Host, HostBuilder, Raw, Term};

/// A shell with our script, and what became of its commands.
pub struct Session {
    pub host: Host,
    pub raw: Raw,
    pub terminal: Term,
    /// What stands in every prompt.
    prompt: String,
    /// Commands that were looked at.
    seen: usize,
}

/// One command, as the state has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub line: String,
    pub output: String,
    pub code: Option<i64>,
    pub is_complete: bool,
}

impl Session {
    /// A host whose terminals run `shell`, and one of them, at a prompt that holds `prompt`.
    pub async fn start(builder: HostBuilder, shell: &str, prompt: &str) -> Self {
        let host = builder.option("--shell", shell).start();
        let raw = Raw::open(&host).await;
        let mut terminal = Term::create(&raw).await;
        let detects = |state: &ahp_types::state::TerminalState| {
            state.supports_command_detection == Some(true)
        };
        if !detects(&terminal.folded.state) {
            terminal
                .wait(
                    "that commands can be told apart",
                    DEADLINE,
                    |folded, _, _| detects(&folded.state).then_some(()),
                )
                .await;
        }
        let mut session = Self {
            host,
            raw,
            terminal,
            prompt: prompt.to_owned(),
            seen: 0,
        };
        session.ready().await;
        session
    }

    /// Waits for a prompt after the last command: shells throw away what is typed before it, or
    /// read it too early.
    pub async fn ready(&mut self) {
        let prompt = self.prompt.clone();
        let at_prompt = |state: &ahp_types::state::TerminalState| matches!(state.content.last(), Some(TerminalContentPart::Unclassified(part)) if part.value.contains(&prompt));
        if !at_prompt(&self.terminal.folded.state) {
            let what = format!("the prompt {prompt:?}");
            self.terminal
                .wait(&what, DEADLINE, |folded, _, _| {
                    at_prompt(&folded.state).then_some(())
                })
                .await;
        }
    }

    /// Types half a line and Ctrl-C, and waits for the prompt that follows. What is typed before
    /// it the kernel throws away.
    pub async fn interrupt(&mut self, half: &str) {
        let from = self.terminal.seen.len();
        self.keys(half).await;
        if !half.is_empty() {
            // Its last character, because shells colour what stands there.
            let last = half.chars().next_back();
            self.terminal
                .wait("the echo of half a line", DEADLINE, |_, seen, _| {
                    (seen[from..].contains(last?)).then_some(())
                })
                .await;
        }
        self.prompt_after("\u{3}").await;
    }

    /// Types Enter at an empty prompt and waits for the next one.
    pub async fn enter(&mut self) {
        self.prompt_after("\r").await;
    }

    async fn prompt_after(&mut self, key: &str) {
        let from = self.terminal.seen.len();
        self.keys(key).await;
        let prompt = self.prompt.clone();
        self.terminal
            .wait("the next prompt", DEADLINE, |_, seen, _| {
                seen[from..].contains(&prompt).then_some(())
            })
            .await;
    }

    /// Every command so far.
    pub fn commands(&self) -> Vec<Command> {
        self.terminal
            .folded
            .state
            .content
            .iter()
            .filter_map(|part| match part {
                TerminalContentPart::Command(part) => Some(Command {
                    line: part.command_line.clone(),
                    output: part.output.clone(),
                    code: part.exit_code,
                    is_complete: part.is_complete,
                }),
                _ => None,
            })
            .collect()
    }

    /// Types a line and Enter, and waits for the end of the command it starts.
    pub async fn run(&mut self, line: &str) -> Command {
        self.terminal.line(line).await;
        self.next().await
    }

    /// Types as it is.
    pub async fn keys(&mut self, keys: &str) {
        self.terminal.input(keys).await;
    }

    /// Waits for the end of the next command.
    pub async fn next(&mut self) -> Command {
        let wanted = self.seen;
        let what = format!("the end of command {wanted}");
        let complete = |state: &ahp_types::state::TerminalState| {
            state
                .content
                .iter()
                .filter(
                    |part| matches!(part, TerminalContentPart::Command(part) if part.is_complete),
                )
                .count()
                > wanted
        };
        if !complete(&self.terminal.folded.state) {
            self.terminal
                .wait(&what, DEADLINE, |folded, _, _| {
                    complete(&folded.state).then_some(())
                })
                .await;
        }
        self.seen += 1;
        self.ready().await;
        self.commands().swap_remove(wanted)
    }

    /// Runs one more command, which must be the next one: nothing typed before was one.
    pub async fn none_but(&mut self, marker: &str) -> Command {
        let command = self.run(&format!("echo {marker}")).await;
        assert_eq!(
            command.line,
            format!("echo {marker}"),
            "another command came before"
        );
        command
    }
}
