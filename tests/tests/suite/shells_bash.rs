//! bash with start-up files that hold hooks of their own: what a newcomer's try-out found.

use std::fs;

use shellward_tests::session::Session;
use shellward_tests::{Host, HostBuilder};

const BASH: &str = "/bin/bash";

fn home(bashrc: &str) -> HostBuilder {
    let builder = Host::builder();
    let rc = format!("HISTFILE=\n{bashrc}\n");
    fs::write(builder.folder().join("home/.bashrc"), rc).unwrap();
    builder
}

async fn session(bashrc: &str, prompt: &str) -> Session {
    Session::start(home(bashrc), BASH, prompt).await
}

#[tokio::test]
async fn s13_a_plain_prompt_set_by_hand_loses_nothing() {
    for line in [
        "PS1='new$ '; PROMPT_COMMAND=",
        "export PS1='new$ ' PROMPT_COMMAND=''",
        "PS1='new$ '",
        "PROMPT_COMMAND=; PS1='new$ '",
    ] {
        let mut session = session("PS1='old$ '", "$ ").await;
        let command = session.run(line).await;
        assert_eq!((command.line.as_str(), command.code), (line, Some(0)));
        let command = session.run("false").await;
        assert_eq!(
            (command.line.as_str(), command.code),
            ("false", Some(1)),
            "{line}"
        );
        let command = session.none_but("after").await;
        assert_eq!(command.output, "after\r\n", "{line}");
        session.host.stop();
    }
}

#[tokio::test]
async fn hooks_that_were_unset_come_back_with_the_next_command_at_the_latest() {
    let mut session = session("PS1='old$ '", "$ ").await;
    session
        .terminal
        .line("unset PROMPT_COMMAND PS0; PS1='new$ '")
        .await;
    session.terminal.wait_text("new$ ").await;
    session.terminal.line("PS0=").await;
    session.terminal.line("echo mar''ker").await;
    session.terminal.wait_text("marker").await;
    let open = session
        .commands()
        .iter()
        .filter(|command| !command.is_complete)
        .count();
    assert!(open <= 1, "{:?}", session.commands());
    session.terminal.line("exit 3").await;
    session.terminal.wait_exit().await;
    assert!(session.commands().iter().all(|command| command.is_complete));
    session.host.stop();
}

#[tokio::test]
async fn a_debug_trap_of_the_user_sees_the_users_commands_alone() {
    // The timer that many people have: it must not run while the prompt waits.
    let timer = "timer_start() { timer=${timer:-$SECONDS}; }\n\
                 timer_stop() { timer_show=$((SECONDS-timer)); unset timer; }\n\
                 trap timer_start DEBUG; PROMPT_COMMAND=timer_stop\n\
                 PS1='[${timer_show}] '";
    let mut session = session(timer, "] ").await;
    session.run("true").await;
    session.terminal.line("SECONDS=$((SECONDS+60)); true").await;
    session.next().await;
    let command = session.run("echo ${timer-unset}").await;
    assert_eq!(command.code, Some(0));
    session.host.stop();
    let mut session = self::session(
        "seen=\ntrap 'seen=\"$seen|$BASH_COMMAND\"' DEBUG\nPS1='p> '",
        "p> ",
    )
    .await;
    session.run("true").await;
    session.run("false").await;
    let command = session.run("echo \"${seen#*|true}\"").await;
    assert!(!command.output.contains("shellward"), "{command:?}");
    assert!(command.output.starts_with("|false|echo"), "{command:?}");
    session.host.stop();
}

#[tokio::test]
async fn preexec_of_a_framework_runs_before_the_command() {
    // What bash-preexec does, in miniature.
    let framework = "__bp_imported=defined\nbash_preexec_imported=defined\nprecmd_functions=() preexec_functions=()\n\
        __bp_interactive_mode() { __bp_mode=on; }\n\
        __bp_precmd_invoke_cmd() { local s=$? f; for f in \"${precmd_functions[@]}\"; do (exit $s); \"$f\"; done; __bp_mode=; return $s; }\n\
        __bp_in_prompt_command() { local c; for c in \"${PROMPT_COMMAND[@]}\"; do case $'\\n'$c$'\\n' in *$'\\n'\"$1\"$'\\n'*) return 0;; esac; done; return 1; }\n\
        __bp_preexec_invoke_exec() { [[ $__bp_mode == on ]] || return 0; if __bp_in_prompt_command \"$BASH_COMMAND\"; then __bp_mode=; return 0; fi; __bp_mode=; echo \"BEFORE<$BASH_COMMAND>\"; }\n\
        trap '__bp_preexec_invoke_exec \"$_\"' DEBUG\n\
        PROMPT_COMMAND=(__bp_precmd_invoke_cmd __bp_interactive_mode)\nPS1='p> '";
    let mut session = session(framework, "p> ").await;
    for _ in 0..4 {
        session.terminal.line("echo hi").await;
        let command = session.next().await;
        assert_eq!((command.line.as_str(), command.code), ("echo hi", Some(0)));
        assert!(
            command.output.ends_with("BEFORE<echo hi>\r\nhi\r\n"),
            "{command:?}"
        );
    }
    let command = session.run("echo ${#PROMPT_COMMAND[@]}").await;
    let count: usize = command
        .output
        .lines()
        .last()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(count <= 4, "it does not grow: {command:?}");
    session.host.stop();
}

#[tokio::test]
async fn with_a_ps0_of_ones_own_lines_are_restored_too() {
    let mut session = session("PS0='(run)'\nPS1='p> '", "p> ").await;
    let line = "for i in 1 2\ndo echo $i\ndone";
    let command = session.run(&line.replace('\n', "\r")).await;
    assert_eq!((command.line.as_str(), command.code), (line, Some(0)));
    session.host.stop();
}

#[tokio::test]
async fn the_directory_is_known_when_the_command_has_ended() {
    let mut session = session("PS1='p> '", "p> ").await;
    for directory in ["/usr", "/usr/lib", "/tmp", "/"] {
        session.terminal.line(&format!("cd {directory}")).await;
        let uri = format!("file://{directory}");
        session
            .terminal
            .wait(
                "the end of cd",
                shellward_tests::DEADLINE,
                |folded, _, envelope| {
                    (envelope["action"]["type"] == "terminal/commandFinished").then(|| {
                        assert_eq!(folded.state.cwd.as_deref(), Some(uri.as_str()));
                    })
                },
            )
            .await;
        session.next().await;
    }
    session.host.stop();
}
