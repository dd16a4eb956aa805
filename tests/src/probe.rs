//! What a probe's answer has to look like, and where it has to be seen.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::builder::binaries;
use crate::{Host, ROOT, Raw, json};

/// Every answer there is.
const RESULTS: [&str; 8] = [
    "works",
    "no-pty",
    "binding-missing",
    "binding-abi",
    "crashed",
    "hung",
    "refused",
    "never",
];

/// Checks the shape of the object and that the answer is `result`; gives it back.
#[track_caller]
pub fn assert_answer(probe: &Value, result: &str) -> Value {
    let members = probe
        .as_object()
        .unwrap_or_else(|| panic!("no object: {probe}"));
    assert_eq!(probe["result"], result, "{probe:#}");
    assert!(RESULTS.contains(&result), "{probe}");
    let sentence = probe["sentence"].as_str().expect("a sentence");
    assert!(
        sentence.split_whitespace().count() >= 2 && !sentence.chars().any(char::is_control),
        "{sentence:?}"
    );
    match result {
        "works" | "never" => assert!(probe["nextStep"].is_null(), "{probe}"),
        _ => {
            let step = probe["nextStep"].as_str().expect("a next step");
            assert!(step.split_whitespace().count() >= 3, "{step:?}");
        }
    }
    if let Some(signal) = members.get("signal") {
        assert_eq!(result, "crashed", "{probe}");
        assert!(
            signal.as_str().is_some_and(|name| name.starts_with("SIG")),
            "{probe}"
        );
    }
    if let Some(errno) = members.get("errno") {
        assert!(errno.as_u64().is_some_and(|errno| errno > 0), "{probe}");
    }
    if let Some(words) = members.get("words") {
        assert!(
            words.as_str().is_some_and(|words| !words.is_empty()),
            "{probe}"
        );
    }
    assert!(
        probe["binding"].is_null() || probe["binding"].is_string(),
        "{probe}"
    );
    for name in ["nextStep", "binding"] {
        assert!(members.contains_key(name), "{name} in {probe}");
    }
    for name in members.keys() {
        assert!(
            [
                "result", "sentence", "nextStep", "signal", "errno", "words", "binding"
            ]
            .contains(&name.as_str()),
            "{name} is not documented: {probe}"
        );
    }
    probe.clone()
}

/// The answer as `ps --json` and the root show it, which is one and the same.
#[track_caller]
pub fn shown(host: &Host) -> Value {
    host.ps()["supervisor"]["probe"].clone()
}

/// `_meta["shellward.probe"]` of a fresh snapshot of the root.
pub async fn in_root(raw: &Raw) -> Value {
    let root = raw
        .request("subscribe", json!({"channel": ROOT}))
        .await
        .unwrap();
    root["snapshot"]["state"]["_meta"]["shellward.probe"].clone()
}

/// `shellward probe WORDS…` where no host is; `prefix` are words to run it with.
pub fn alone(prefix: &[&str], runtime_dir: &Path, words: &[&str]) -> Output {
    let mut all: Vec<String> = prefix.iter().map(|word| (*word).to_owned()).collect();
    all.push(binaries().join("shellward").display().to_string());
    all.push("probe".to_owned());
    all.extend(words.iter().map(|word| (*word).to_owned()));
    Command::new(&all[0])
        .args(&all[1..])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("SHELLWARD_RUNTIME_DIR", runtime_dir)
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .expect("shellward probe")
}
