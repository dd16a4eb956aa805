//! `createTerminal`: addresses, directories, sizes, names.

use std::fs;

use shellward_tests::{Host, ROOT, Raw, Term, Value, json, term};

#[tokio::test]
async fn a_taken_uri_is_refused() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    for client in [&raw, &other] {
        let error = client
            .request(
                "createTerminal",
                term::create_params(client, &terminal.uri, json!({})),
            )
            .await
            .unwrap_err();
        assert_eq!(error.code, -32003, "{error:?}");
    }
    assert_eq!(terminal.output_of("echo fine").await.trim(), "fine");
    terminal.line("exit").await;
    terminal.wait_exit().await;
    let error = raw
        .request(
            "createTerminal",
            term::create_params(&raw, &terminal.uri, json!({})),
        )
        .await
        .unwrap_err();
    assert_eq!(error.code, -32003, "exited is still there: {error:?}");
    host.stop();
}

#[tokio::test]
async fn two_creations_of_one_uri_at_once_give_one_terminal() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let uri = term::new_uri();
    let mine = raw
        .start_request("createTerminal", term::create_params(&raw, &uri, json!({})))
        .await;
    let theirs = other
        .start_request(
            "createTerminal",
            term::create_params(&other, &uri, json!({})),
        )
        .await;
    let results = [raw.response(mine).await, other.response(theirs).await];
    let made = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(made, 1, "{results:?}");
    let error = results.into_iter().find_map(Result::err).unwrap();
    assert_eq!(error.code, -32003, "{error:?}");
    assert_eq!(host.workers().len(), 1);
    host.stop();
}

#[tokio::test]
async fn any_scheme_the_client_likes_is_a_terminal() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for uri in [
        "agenthost-terminal:/6f1c1f4e-0a8d-4a55-b0a1-1f0f6d3b2a10",
        "agenthost-terminal://shell/one",
        "agenthost-terminal://bang/one",
        "ahp-terminal:/one",
        "ahp-terminal:two",
        "terminal:x",
        "urn:uuid:7",
        "https://example.com/t?q=1#f",
    ] {
        raw.request("createTerminal", term::create_params(&raw, uri, json!({})))
            .await
            .unwrap_or_else(|error| panic!("{uri}: {error:?}"));
        let mut terminal = Term::subscribe(&raw, uri).await;
        assert_eq!(terminal.output_of("echo hi").await.trim(), "hi", "{uri}");
        raw.request("disposeTerminal", json!({"channel": uri}))
            .await
            .unwrap();
    }
    host.stop();
}

#[tokio::test]
async fn schemes_of_other_channel_kinds_are_refused() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for scheme in [
        "ahp-root",
        "ahp-session",
        "ahp-chat",
        "ahp-changeset",
        "ahp-otlp",
        "ahp-resource-watch",
        "ahp-canvas",
        "ahp-automations",
        "AHP-Session",
    ] {
        for uri in [format!("{scheme}:/x"), format!("{scheme}://x/y")] {
            let error = raw
                .request("createTerminal", term::create_params(&raw, &uri, json!({})))
                .await
                .expect_err(&uri);
            assert_eq!(error.code, -32602, "{uri}: {error:?}");
        }
    }
    for uri in ["", ROOT] {
        let error = raw
            .request("createTerminal", term::create_params(&raw, uri, json!({})))
            .await
            .expect_err(uri);
        assert_eq!(error.code, -32602, "{uri:?}: {error:?}");
    }
    assert_eq!(host.workers().len(), 0);
    host.stop();
}

#[tokio::test]
async fn the_title_is_the_name_else_the_base_name_of_the_shell() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for (name, title) in [
        (json!({"name": "build"}), "build"),
        (json!({}), "dash"),
        (json!({"name": null}), "dash"),
        (json!({"name": ""}), "dash"),
        (json!({"name": "\u{7}\n"}), "dash"),
    ] {
        let terminal = Term::create_with(&raw, name.clone()).await;
        assert_eq!(terminal.snapshot["state"]["title"], title, "{name}");
    }
    host.stop();
}

#[tokio::test]
async fn a_file_uri_is_decoded_and_comes_back_encoded() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for name in [
        "a b",
        "a#b",
        "a%20b",
        "a?b",
        "ünï-漢",
        "a'b\"c",
        "a;b&c",
        "a[b]",
    ] {
        let folder = host.folder().join(name);
        fs::create_dir(&folder).unwrap();
        let encoded: String = folder
            .to_str()
            .unwrap()
            .bytes()
            .map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' => {
                    char::from(byte).to_string()
                }
                other => format!("%{other:02X}"),
            })
            .collect();
        for cwd in [format!("file://{encoded}"), folder.display().to_string()] {
            let mut terminal = Term::create_with(&raw, json!({"cwd": cwd})).await;
            let pwd = terminal.output_of("pwd").await;
            assert_eq!(
                pwd.trim_end_matches(['\r', '\n']),
                folder.to_str().unwrap(),
                "{cwd}"
            );
            let uri = terminal.snapshot["state"]["cwd"]
                .as_str()
                .expect("cwd in state")
                .to_owned();
            assert!(uri.starts_with("file:///") && uri.is_ascii(), "{uri}");
            assert!(!uri.contains([' ', '#', '?']), "{uri}");
            // What the state says leads to the same directory.
            let mut again = Term::create_with(&raw, json!({"cwd": uri})).await;
            let pwd = again.output_of("pwd").await;
            assert_eq!(
                pwd.trim_end_matches(['\r', '\n']),
                folder.to_str().unwrap(),
                "{uri}"
            );
            for uri in [&terminal.uri, &again.uri] {
                raw.request("disposeTerminal", json!({"channel": uri}))
                    .await
                    .unwrap();
            }
        }
    }
    host.stop();
}

#[tokio::test]
async fn other_schemes_and_hosts_are_no_directory() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for cwd in [
        json!("http://localhost/tmp"),
        json!("vscode-remote://ssh/tmp"),
        json!("file://otherhost/tmp"),
        json!("file:///tmp/%00x"),
        json!("/tmp/\u{0}x"),
        json!(7),
        json!({"path": "/tmp"}),
    ] {
        let error = raw
            .request(
                "createTerminal",
                term::create_params(&raw, &term::new_uri(), json!({"cwd": cwd})),
            )
            .await
            .expect_err(&cwd.to_string());
        assert_eq!(error.code, -32602, "{cwd}: {error:?}");
    }
    assert_eq!(host.workers().len(), 0);
    let mut terminal = Term::create_with(&raw, json!({"cwd": "file://localhost/tmp"})).await;
    assert_eq!(terminal.output_of("pwd").await.trim(), "/tmp");
    host.stop();
}

#[tokio::test]
async fn without_a_directory_it_starts_in_the_hosts_own() {
    let builder = Host::builder().dash();
    let folder = builder.folder().join("work dir");
    fs::create_dir(&folder).unwrap();
    let host = builder
        .option("--directory", folder.to_str().unwrap())
        .start();
    let raw = Raw::open(&host).await;
    let expected = format!("file://{}", folder.to_str().unwrap().replace(' ', "%20"));
    assert_eq!(raw.welcome["defaultDirectory"], expected.as_str());
    let mut terminal = Term::create(&raw).await;
    assert_eq!(
        terminal.output_of("pwd").await.trim(),
        folder.to_str().unwrap()
    );
    assert_eq!(terminal.snapshot["state"]["cwd"], expected.as_str());
    host.stop();
}

#[tokio::test]
async fn a_size_is_set_before_the_shell_asks() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for (members, cols, rows) in [
        (json!({"cols": 100, "rows": 30}), 100, 30),
        (json!({"cols": 1, "rows": 1}), 1, 1),
        (json!({"cols": 1000, "rows": 1000}), 1000, 1000),
        (json!({"cols": 132}), 132, 24),
        (json!({"rows": 50}), 80, 50),
        (json!({"cols": null, "rows": null}), 80, 24),
    ] {
        let mut terminal = Term::create_with(&raw, members.clone()).await;
        let state = &terminal.snapshot["state"];
        assert_eq!(
            (&state["cols"], &state["rows"]),
            (&json!(cols), &json!(rows)),
            "{members}"
        );
        let size = terminal.output_of("stty size").await;
        let size: String = size
            .chars()
            .filter(|c| *c == ' ' || c.is_ascii_digit())
            .collect();
        assert_eq!(size, format!("{rows} {cols}"), "{members}");
        let variables = terminal.output_of("echo $COLUMNS:$LINES").await;
        let variables: String = variables
            .chars()
            .filter(|c| *c == ':' || c.is_ascii_digit())
            .collect();
        assert_eq!(variables, format!("{cols}:{rows}"), "{members}");
    }
    host.stop();
}

#[tokio::test]
async fn create_terminal_with_params_of_the_wrong_type_is_bad_params() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for more in [
        json!({"name": 5}),
        json!({"name": ["x"]}),
        json!({"cols": "80"}),
    ] {
        let error = raw
            .request(
                "createTerminal",
                term::create_params(&raw, &term::new_uri(), more.clone()),
            )
            .await
            .expect_err(&more.to_string());
        assert_eq!(error.code, -32602, "{more}: {error:?}");
    }
    host.stop();
}

#[tokio::test]
async fn dispose_of_an_unknown_terminal_is_not_found() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for uri in ["ahp-terminal:/nope", "x:y"] {
        let error = raw
            .request("disposeTerminal", json!({"channel": uri}))
            .await
            .expect_err(uri);
        assert_eq!(error.code, -32008, "{error:?}");
    }
    host.stop();
}

#[tokio::test]
async fn the_shell_is_interactive_and_has_its_controlling_terminal() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    assert_eq!(
        terminal
            .output_of("case $- in *i*) echo interactive;; esac")
            .await
            .trim(),
        "interactive"
    );
    assert_eq!(
        terminal.output_of("echo works > /dev/tty").await.trim(),
        "works"
    );
    let ids = terminal
        .output_of("ps -o pid=,pgid=,sid= -p $$ | tr -s ' '")
        .await;
    let ids: Vec<&str> = ids.split_whitespace().collect();
    assert!(
        ids.len() == 3 && ids[0] == ids[1] && ids[1] == ids[2],
        "{ids:?}"
    );
    assert!(
        terminal
            .output_of("stty -a | tr ' ' '\\n' | grep iutf8")
            .await
            .trim()
            == "iutf8",
        "IUTF8 is on"
    );
    host.stop();
}

#[tokio::test]
async fn signals_that_the_host_ignores_are_default_in_the_shell() {
    // The host's own starter ignored them, as nohup and some service managers do.
    let host = Host::builder()
        .dash()
        .run_with(&[
            "/bin/bash",
            "-c",
            "trap '' HUP INT PIPE QUIT TSTP; exec \"$0\" \"$@\"",
        ])
        .start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let ignored = terminal.output_of("grep SigIgn /proc/self/status").await;
    assert_eq!(
        ignored.split_whitespace().last(),
        Some("0000000000000000"),
        "{ignored}"
    );
    let blocked = terminal.output_of("grep SigBlk /proc/self/status").await;
    assert_eq!(
        blocked.split_whitespace().last(),
        Some("0000000000000000"),
        "{blocked}"
    );
    host.stop();
}

#[tokio::test]
async fn values_of_the_wrong_kind_do_not_reach_the_list() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mark = raw.mark();
    let error = raw
        .request(
            "createTerminal",
            json!({"channel": term::new_uri(), "claim": {"kind": "x"}}),
        )
        .await
        .unwrap_err();
    assert_eq!(error.code, -32602);
    raw.settle().await;
    assert_eq!(raw.actions_since(mark, ROOT), Vec::<Value>::new());
    host.stop();
}
