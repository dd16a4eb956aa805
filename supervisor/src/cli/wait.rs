//! `shellward wait`: what scripts and agents use instead of polling.

use std::path::Path;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use super::NoCommandDetection;
use super::client::{Client, NotAvailable};
use super::commands::{NO_COMMAND_YET, PATIENCE, QUIET, entry, locate, report};
use crate::ahp::names;
use crate::config::{ConfigError, time};

/// What timeout(1) exits with.
const TIMED_OUT: u8 = 124;
/// Stands for an exit code that is not known, or that no process can have.
const UNKNOWN: u8 = 1;
/// Without `--timeout`: longer than any terminal lives.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// How long a host may be away. One that is started again by a service manager is back within a
/// second; a stop takes 8 s at most, and a busy machine its time to take many terminals over.
const AWAY_TIME: Duration = Duration::from_secs(30);
/// How often it is looked for meanwhile.
const AWAY_POLL: Duration = Duration::from_millis(100);

/// The flags of `shellward wait`.
#[derive(Debug, Args)]
pub struct Wait {
    /// The terminal
    pub terminal: String,
    /// Wait for the command that runs in it, or that was just sent; its exit code is this one's
    #[arg(long)]
    pub command: bool,
    /// Give up after this time, with exit code 124: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// With --command: if no command runs, do not wait for one to start
    #[arg(long, requires = "command")]
    pub no_wait: bool,
}

impl Wait {
    /// How long to wait at most.
    ///
    /// # Errors
    /// `--timeout` is no time.
    pub(super) fn limit(&self) -> Result<Duration, ConfigError> {
        let given = self.timeout.as_ref().map(|text| time("timeout", text));
        Ok(given.transpose()?.unwrap_or(FOR_EVER).min(FOR_EVER))
    }
}

/// The newest command of a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Newest {
    None,
    Running(String),
    Finished(Option<i64>),
}

/// The terminal is off the list.
#[derive(Debug, thiserror::Error)]
#[error("somebody disposed the terminal")]
struct Disposed;

/// What a wait has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// The command ended.
    Command(Option<i64>),
    /// The terminal ended.
    Terminal(Option<i64>, Option<String>),
}

/// A terminal as far as waiting goes.
#[derive(Debug)]
struct Awaited {
    uri: String,
    /// Whether it tells commands apart.
    detects: bool,
    newest: Newest,
    /// The id of the newest command when we came.
    newest_id: Option<String>,
    /// Whether a line was typed that has started no command so far.
    line_typed: bool,
    end: Option<End>,
}

impl Awaited {
    /// From the terminal's entry in the host's report.
    fn new(uri: &str, entry: &Value) -> Self {
        let last = &entry["lastCommand"];
        let newest = match (last["commandId"].as_str(), last["isComplete"].as_bool()) {
            (Some(id), Some(false)) => Newest::Running(id.to_owned()),
            (Some(_), _) => Newest::Finished(last["exitCode"].as_i64()),
            (None, _) => Newest::None,
        };
        let mut this = Self {
            uri: uri.to_owned(),
            detects: entry["detectsCommands"] == true,
            newest,
            newest_id: last["commandId"].as_str().map(str::to_owned),
            line_typed: entry["lineTyped"] == true,
            end: None,
        };
        if entry.get("exitCode").is_some() {
            this.exited(entry);
        }
        this
    }

    fn exited(&mut self, told: &Value) {
        self.end = Some(End::Terminal(
            told["exitCode"].as_i64(),
            told["signal"].as_str().map(str::to_owned),
        ));
    }

    /// Takes in a message of the host; the end of the command that ran, if it came with it.
    ///
    /// # Errors
    /// [`Disposed`].
    fn take(&mut self, message: &Value) -> anyhow::Result<Option<End>> {
        let params = &message["params"];
        let action = &params["action"];
        if params["channel"].as_str().is_some_and(names::is_root) {
            let listed = action["terminals"].as_array();
            if listed.is_some_and(|list| list.iter().all(|entry| entry["resource"] != *self.uri)) {
                return Err(Disposed.into());
            }
        }
        if params["channel"] != *self.uri {
            return Ok(None);
        }
        match action["type"].as_str() {
            Some("terminal/exited") => self.exited(action),
            Some("terminal/commandDetectionAvailable") => self.detects = true,
            Some("terminal/commandExecuted") => {
                let id = action["commandId"].as_str().unwrap_or_default();
                self.newest = Newest::Running(id.to_owned());
                self.line_typed = false;
            }
            Some("terminal/commandFinished") => {
                let id = action["commandId"].as_str();
                if matches!(&self.newest, Newest::Running(open) if Some(open.as_str()) == id) {
                    let code = action["exitCode"].as_i64();
                    self.newest = Newest::Finished(code);
                    return Ok(Some(End::Command(code)));
                }
            }
            _ => {}
        }
        Ok(None)
    }
}

/// Waits, also over a restart of the host; what to exit with.
pub(super) async fn wait(
    client: &mut Client,
    args: &Wait,
    runtime_dir: Option<&Path>,
) -> anyhow::Result<u8> {
    match wait_for_end(client, args, runtime_dir).await {
        Err(error) if error.is::<Disposed>() => Err(whose_doing(client, error).await),
        other => other,
    }
}

/// A host that ends takes its terminals off the list first, and closes connections seconds later, when
/// all have ended. So it is asked whether it does; where it is gone already, it did.
async fn whose_doing(client: &mut Client, disposed: anyhow::Error) -> anyhow::Error {
    match report(client).await {
        Ok(report) if report["supervisor"]["ending"] == true => NotAvailable::Ended.into(),
        Err(error) if is_lost(&error) => NotAvailable::Ended.into(),
        _ => disposed,
    }
}

async fn wait_for_end(
    client: &mut Client,
    args: &Wait,
    runtime_dir: Option<&Path>,
) -> anyhow::Result<u8> {
    let deadline = Instant::now() + args.limit()?;
    let uri = locate(client, &args.terminal).await?.uri;
    let mut awaited = attach(client, &uri).await?;
    let end = loop {
        let waited = if args.command {
            command_end(client, &mut awaited, deadline, args.no_wait).await
        } else {
            terminal_end(client, &mut awaited, deadline).await
        };
        match waited {
            Err(error) if is_lost(&error) => {}
            other => break other?,
        }
        let running = match awaited.newest {
            Newest::Running(id) if args.command => Some(id),
            _ => None,
        };
        let Some((new, terminal, ended)) =
            come_back(runtime_dir, &uri, running.as_deref(), deadline).await?
        else {
            break None;
        };
        (*client, awaited) = (new, terminal);
        match ended {
            Some(Some(code)) => break Some(End::Command(Some(code))),
            Some(None) => match shells_own_end(client, &mut awaited).await {
                // What its end was is known now, as far as anybody knows it.
                Err(error) if is_lost(&error) => break Some(End::Command(None)),
                end => break Some(end?),
            },
            None => {}
        }
    };
    match end {
        None => {
            let given = args.timeout.as_deref().unwrap_or_default();
            let unit = if given.ends_with(|c: char| c.is_ascii_digit()) {
                " s"
            } else {
                ""
            };
            super::say(&format!("not within {given}{unit}"));
            Ok(TIMED_OUT)
        }
        Some(End::Command(code)) => Ok(exit_code("command", code)),
        Some(End::Terminal(code, signal)) => {
            if let Some(signal) = signal {
                super::say(&format!("the terminal was ended by {signal}"));
            }
            Ok(exit_code("terminal", code))
        }
    }
}

fn is_lost(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(NotAvailable::Lost(_)))
}

/// Subscribes to a terminal.
async fn attach(client: &mut Client, uri: &str) -> anyhow::Result<Awaited> {
    for channel in [names::ROOT, uri] {
        client
            .request("subscribe", json!({"channel": channel}))
            .await?;
    }
    // After the subscriptions: whatever is not in this answer comes as a message behind it.
    let entry = entry(client, uri).await?;
    Ok(Awaited::new(uri, &entry))
}

/// How a command has ended while the host was away: `None` if it runs, `Some(None)` if nobody
/// knows its exit code.
type EndedAway = Option<Option<i64>>;

/// Finds the next host, the terminal there, and what has become of the command that ran; nothing
/// once `deadline` has passed.
///
/// # Errors
/// [`NotAvailable::NotBack`].
async fn come_back(
    runtime_dir: Option<&Path>,
    uri: &str,
    running: Option<&str>,
    deadline: Instant,
) -> anyhow::Result<Option<(Client, Awaited, EndedAway)>> {
    let give_up = Instant::now() + AWAY_TIME;
    let until = deadline.min(give_up);
    let mut why = None;
    loop {
        let found = timeout_at(until, async {
            let mut client = Client::connect(runtime_dir.map(Path::to_owned)).await?;
            match look_again(&mut client, uri, running).await {
                Ok((awaited, ended)) => Ok((client, awaited, ended)),
                Err(error) if error.is::<NotAvailable>() => Err(error),
                Err(error) => Err(NotAvailable::NotBack(format!(
                    "the host was started again, and the terminal is not there: {error:#}"
                ))
                .into()),
            }
        });
        match found.await {
            Ok(Ok(found)) => return Ok(Some(found)),
            Ok(Err(error)) if matches!(error.downcast_ref(), Some(NotAvailable::NotBack(_))) => {
                return Err(error);
            }
            Ok(Err(error)) => why = Some(format!("{error:#}")),
            Err(_) => {}
        }
        if Instant::now() + AWAY_POLL >= until {
            break;
        }
        sleep(AWAY_POLL).await;
    }
    if deadline <= give_up {
        tokio::time::sleep_until(deadline).await;
        return Ok(None);
    }
    let why = why.unwrap_or_else(|| "the host does not answer".to_owned());
    Err(NotAvailable::NotBack(format!(
        "the host went away and is not back after {} s: {why}",
        AWAY_TIME.as_secs()
    ))
    .into())
}

/// The terminal at another host, and what has become of the command that ran in it.
async fn look_again(
    client: &mut Client,
    uri: &str,
    running: Option<&str>,
) -> anyhow::Result<(Awaited, EndedAway)> {
    let awaited = attach(client, uri).await?;
    let Some(id) = running else {
        return Ok((awaited, None));
    };
    if awaited.newest_id.as_deref() == Some(id) {
        let ended = match awaited.newest {
            Newest::Finished(code) => Some(code),
            _ => None,
        };
        return Ok((awaited, ended));
    }
    // Others have run since; what is shown has it, unless too much was printed.
    let result = client.request("subscribe", json!({"channel": uri})).await?;
    let code = result["snapshot"]["state"]["content"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|part| part["commandId"] == id)
        .and_then(|part| part["exitCode"].as_i64());
    Ok((awaited, Some(code)))
}

async fn terminal_end(
    client: &mut Client,
    awaited: &mut Awaited,
    deadline: Instant,
) -> anyhow::Result<Option<End>> {
    while awaited.end.is_none() {
        match client.next(deadline).await? {
            Some(message) => drop(awaited.take(&message)?),
            None => return Ok(None),
        }
    }
    Ok(awaited.end.take())
}

async fn command_end(
    client: &mut Client,
    awaited: &mut Awaited,
    deadline: Instant,
    no_wait: bool,
) -> anyhow::Result<Option<End>> {
    // What was just sent has perhaps not started yet; so `read` does it, too.
    let give_up = Instant::now() + if no_wait { Duration::ZERO } else { PATIENCE };
    loop {
        let running = matches!(awaited.newest, Newest::Running(_));
        if !running && awaited.end.is_some() {
            break;
        }
        let until = if running {
            deadline
        } else if awaited.line_typed {
            // On a busy machine a shell takes its time to start what was typed.
            deadline.min(give_up)
        } else {
            deadline.min(give_up).min(Instant::now() + QUIET)
        };
        match client.next(until).await? {
            Some(message) => match awaited.take(&message)? {
                Some(End::Command(None)) => {
                    return shells_own_end(client, awaited).await.map(Some);
                }
                Some(end) => return Ok(Some(end)),
                None => {}
            },
            None if running || Instant::now() >= deadline => return Ok(None),
            None => break,
        }
    }
    match awaited.newest {
        Newest::Finished(_) if awaited.line_typed && awaited.end.is_none() => bail!(
            "what was typed last has started no command: an empty line, a syntax error, or the \
             shell wants more; see what it shows with `shellward read`"
        ),
        Newest::Finished(None) if awaited.end.is_some() => Ok(awaited.end.take()),
        Newest::Finished(code) => Ok(Some(End::Command(code))),
        _ if !awaited.detects => Err(NoCommandDetection.into()),
        Newest::None if awaited.line_typed => bail!(
            "{NO_COMMAND_YET}. If you did, the shell wants more, or a start-up file has put another shell in its place"
        ),
        _ => bail!("{NO_COMMAND_YET}"),
    }
}

/// A command that ended without a code: if the shell ended with it (`exit 5`), it has the shell's.
async fn shells_own_end(client: &mut Client, awaited: &mut Awaited) -> anyhow::Result<End> {
    let deadline = Instant::now() + QUIET;
    while awaited.end.is_none() {
        match client.next(deadline).await? {
            Some(message) => drop(awaited.take(&message)?),
            None => break,
        }
    }
    Ok(awaited.end.take().unwrap_or(End::Command(None)))
}

/// An exit code as ours.
fn exit_code(whose: &str, code: Option<i64>) -> u8 {
    match code.map(u8::try_from) {
        Some(Ok(code)) => code,
        Some(Err(_)) => {
            super::say(&format!(
                "the {whose}'s exit code is {}, which no process can have; {UNKNOWN} stands for it",
                code.unwrap_or_default()
            ));
            UNKNOWN
        }
        None => {
            super::say(&format!(
                "the {whose} has ended, but how is not known; {UNKNOWN} stands for it"
            ));
            UNKNOWN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(action: Value) -> Value {
        json!({"method":"action","params":{"channel":"t:/x","action":action}})
    }

    #[test]
    fn a_wait_ends_with_the_command_it_waits_for() {
        let entry = json!({"state":"running","lastCommand":{"commandId":"4","isComplete":false,"exitCode":null}});
        let mut awaited = Awaited::new("t:/x", &entry);
        assert_eq!(awaited.newest, Newest::Running("4".into()));
        let finished = |id: &str| {
            action(json!({"type":"terminal/commandFinished","commandId":id,"exitCode":7}))
        };
        assert_eq!(awaited.take(&finished("3")).unwrap(), None);
        assert_eq!(
            awaited.take(&finished("4")).unwrap(),
            Some(End::Command(Some(7)))
        );
        assert_eq!(awaited.newest, Newest::Finished(Some(7)));
        let started = json!({"type":"terminal/commandExecuted","commandId":"5","commandLine":"x","timestamp":1});
        assert_eq!(awaited.take(&action(started)).unwrap(), None);
        let unknown = json!({"type":"terminal/commandFinished","commandId":"5"});
        assert_eq!(
            awaited.take(&action(unknown)).unwrap(),
            Some(End::Command(None))
        );
    }

    #[test]
    fn the_end_of_the_terminal_is_seen_and_its_disposal_is_an_error() {
        let entry = json!({"state":"exited","exitCode":128,"signal":"SIGHUP","lastCommand":null});
        let end = Some(End::Terminal(Some(128), Some("SIGHUP".into())));
        assert_eq!(Awaited::new("t:/x", &entry).end, end);
        let mut awaited = Awaited::new("t:/x", &json!({"state":"running"}));
        let list = |uri: &str| json!({"method":"action","params":{"channel":"ahp-root://","action":{"type":"root/terminalsChanged","terminals":[{"resource":uri}]}}});
        assert!(awaited.take(&list("t:/x")).is_ok());
        let exited = json!({"type":"terminal/exited","exitCode":128,"signal":"SIGHUP"});
        assert_eq!(awaited.take(&action(exited)).unwrap(), None);
        assert_eq!(awaited.end, end);
        assert!(awaited.take(&list("t:/other")).is_err());
    }

    #[test]
    fn exit_codes_are_passed_on_if_a_process_can_have_them() {
        assert_eq!(exit_code("command", Some(0)), 0);
        assert_eq!(exit_code("command", Some(255)), 255);
        assert_eq!(exit_code("command", Some(256)), UNKNOWN);
        assert_eq!(exit_code("command", Some(-1)), UNKNOWN);
        assert_eq!(exit_code("command", None), UNKNOWN);
    }
}
