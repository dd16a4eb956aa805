//! A small AHP client: opens a terminal, runs a command, prints what it shows, ends it.
//!
//!     small_client ws://127.0.0.1:9190/?tkn=TOKEN 'echo hi'

use ahp::ahp_types::actions::{StateAction, TerminalInputAction};
use ahp::ahp_types::commands::{CreateTerminalParams, DisposeTerminalParams};
use ahp::ahp_types::state::{TerminalClaim, TerminalClientClaim};
use ahp::{Client, ClientConfig, SubscriptionEvent};
use ahp_ws::WebSocketTransport;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(url), Some(command)) = (words.next(), words.next()) else {
        anyhow::bail!("usage: small_client URL COMMAND");
    };
    let transport = WebSocketTransport::connect(&url).await?;
    let client = Client::connect(transport, ClientConfig::default()).await?;
    let me = "small-client";
    client
        .initialize(me.into(), vec!["1.0.0".into(), "0.9.0".into()], vec![])
        .await?;

    let terminal = "ahp-terminal:/small-client";
    let create = CreateTerminalParams {
        channel: terminal.into(),
        claim: TerminalClaim::Client(TerminalClientClaim {
            client_id: me.into(),
        }),
        meta: None,
        name: Some("small client".into()),
        cwd: None,
        cols: None,
        rows: None,
    };
    let _: () = client.request("createTerminal", create).await?;
    let (_snapshot, mut events) = client.subscribe(terminal.into()).await?;

    // The shell ends after the command, so the end of the terminal is the end of its output.
    let data = format!("{command}; exit\r");
    client
        .dispatch(
            terminal.into(),
            StateAction::TerminalInput(TerminalInputAction { data }),
        )
        .await?;
    while let Some(event) = events.recv().await {
        if let SubscriptionEvent::Action(envelope) = event {
            match envelope.action {
                StateAction::TerminalData(output) => print!("{}", output.data),
                StateAction::TerminalExited(exit) => {
                    println!("\nexit code {:?}", exit.exit_code);
                    break;
                }
                _ => {}
            }
        }
    }
    let dispose = DisposeTerminalParams {
        channel: terminal.into(),
        meta: None,
    };
    let _: () = client.request("disposeTerminal", dispose).await?;
    client.shutdown().await;
    Ok(())
}
