//! The format is checked by a small reader of it, written from its description
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::collections::BTreeMap;

use super::*;

/// In order.
type Labels = Vec<(String, String)>;

#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: Vec<(String, Labels, f64)>,
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `{a="b",c="d"}`, and what follows it.
fn labels(text: &str) -> (Labels, &str) {
    let mut found = Labels::new();
    let Some(mut rest) = text.strip_prefix('{') else {
        return (found, text);
    };
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label");
        assert!(is_name(name), "{name}");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().expect("the end of a label") {
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    c => panic!("\\{c} means nothing"),
                }),
                (at, '"') => break at + 1,
                (_, c) => value.push(c),
            }
        };
        found.push((name.to_owned(), value));
        rest = &after[end..];
        match rest.split_at(1) {
            (",", more) => rest = more,
            ("}", more) => return (found, more),
            other => panic!("{other:?} after a label"),
        }
    }
}

fn read(page: &str) -> BTreeMap<String, Family> {
    assert!(page.ends_with('\n') && !page.contains('\r'));
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    let mut helped = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(is_name(name) && !help.is_empty(), "{line}");
            helped = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, helped, "HELP, then TYPE");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            current = name.to_owned();
            let family = Family {
                kind: kind.to_owned(),
                samples: Vec::new(),
            };
            assert!(
                families.insert(current.clone(), family).is_none(),
                "{name} twice"
            );
        } else {
            let end = line.find(['{', ' ']).unwrap();
            let (name, rest) = line.split_at(end);
            let (labels, rest) = labels(rest);
            let family = families.get_mut(&current).expect("TYPE before samples");
            let suffix = name.strip_prefix(&current).expect("samples of one family");
            match family.kind.as_str() {
                "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
                kind => {
                    assert_eq!(suffix, "", "{line}");
                    assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                }
            }
            let value = rest.strip_prefix(' ').unwrap().parse().unwrap();
            family.samples.push((name.to_owned(), labels, value));
        }
    }
    families
}

fn values(family: &Family) -> Vec<f64> {
    family.samples.iter().map(|(_, _, value)| *value).collect()
}

fn check_histogram(family: &Family) -> (f64, f64) {
    let (buckets, rest) = family.samples.split_at(LATENCY_BUCKETS.len() + 1);
    let mut bound = f64::NEG_INFINITY;
    let mut count = 0.0;
    for (name, labels, value) in buckets {
        assert!(name.ends_with("_bucket"));
        assert_eq!(labels[0].0, "le");
        let next: f64 = labels[0].1.trim_start_matches('+').parse().unwrap();
        assert!(next > bound && *value >= count, "{labels:?} {value}");
        (bound, count) = (next, *value);
    }
    assert_eq!(buckets.last().unwrap().1[0].1, "+Inf");
    assert!(rest[0].0.ends_with("_sum") && rest[1].0.ends_with("_count"));
    assert_eq!(rest[1].2, count, "+Inf is the count");
    (rest[0].2, count)
}

#[test]
fn a_page_of_zeros_has_every_line_and_is_well_formed() {
    let families = read(&Metrics::default().render(&Gauges::default()));
    let names: Vec<&str> = families.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "shellward_build_info",
            "shellward_connections",
            "shellward_connections_lost_total",
            "shellward_dispatches_refused_total",
            "shellward_echo_seconds",
            "shellward_input_bytes_total",
            "shellward_input_queue_bytes",
            "shellward_input_queue_max_bytes",
            "shellward_outbox_bytes",
            "shellward_outbox_max_bytes",
            "shellward_output_bytes_total",
            "shellward_requests_refused_total",
            "shellward_slow_readers_closed_total",
            "shellward_start_seconds",
            "shellward_starts_failed_total",
            "shellward_terminals",
            "shellward_worker_crashes_total",
            "shellward_worker_restarts_total",
            "shellward_worker_starts_total",
            "shellward_workers_adopted_total",
            "shellward_workers_unadopted",
        ]
    );
    for (name, family) in &families {
        if family.kind == "histogram" {
            assert_eq!(check_histogram(family), (0.0, 0.0));
        } else if name != "shellward_build_info" {
            assert!(values(family).iter().all(|value| *value == 0.0), "{name}");
        }
    }
    let info = &families["shellward_build_info"].samples[0];
    assert_eq!(
        info.1[0],
        ("version".into(), env!("CARGO_PKG_VERSION").into())
    );
    assert_eq!(info.2, 1.0);
}

#[test]
fn what_was_counted_is_shown() {
    let metrics = Metrics::default();
    metrics.worker_starts.one();
    metrics.worker_crashes.add(2);
    metrics.output_bytes.add(u64::MAX);
    metrics.input_bytes.add(4);
    metrics.slow_readers.add(5);
    metrics.dispatches_refused.add(6);
    metrics.lost_connections.add(7);
    let page = metrics.render(&Gauges {
        starting: 11,
        running: 12,
        unresponsive: 121,
        exited: 13,
        crashed: 131,
        ending: 14,
        connections: 15,
        outbox_sum: 16,
        outbox_max: 17,
        input_sum: 18,
        input_max: 19,
        unadopted: 20,
    });
    assert!(
        page.contains(&format!("shellward_output_bytes_total {}\n", u64::MAX)),
        "whole numbers, not floats"
    );
    let families = read(&page);
    for (name, wanted) in [
        ("worker_starts_total", &[1.0][..]),
        ("worker_crashes_total", &[2.0]),
        ("input_bytes_total", &[4.0]),
        ("slow_readers_closed_total", &[5.0]),
        ("dispatches_refused_total", &[6.0]),
        ("connections_lost_total", &[7.0]),
        ("terminals", &[11.0, 12.0, 121.0, 13.0, 131.0, 14.0]),
        ("connections", &[15.0]),
        ("outbox_bytes", &[16.0]),
        ("outbox_max_bytes", &[17.0]),
        ("input_queue_bytes", &[18.0]),
        ("input_queue_max_bytes", &[19.0]),
        ("workers_unadopted", &[20.0]),
    ] {
        assert_eq!(
            values(&families[&format!("shellward_{name}")]),
            wanted,
            "{name}"
        );
    }
}

#[test]
fn codes_are_a_bounded_set() {
    let metrics = Metrics::default();
    let before = read(&metrics.render(&Gauges::default()));
    for code in REFUSAL_CODES {
        metrics.refused.one(code);
    }
    for code in [0, 7, i32::MIN, i32::MAX] {
        metrics.refused.one(code);
    }
    let after = read(&metrics.render(&Gauges::default()));
    let name = "shellward_requests_refused_total";
    assert_eq!(before[name].samples.len(), after[name].samples.len());
    let mut counts = values(&after[name]);
    assert_eq!(counts.pop(), Some(4.0));
    assert!(counts.iter().all(|count| *count == 1.0));
    let codes: Vec<&str> = after[name]
        .samples
        .iter()
        .map(|(_, labels, _)| labels[0].1.as_str())
        .collect();
    assert_eq!(codes.last(), Some(&"other"));
    assert!(codes.contains(&"401") && codes.contains(&"-32601"));
}

#[test]
fn a_bound_belongs_to_its_bucket_and_everything_is_counted_once() {
    let metrics = Metrics::default();
    for (micros, _) in LATENCY_BUCKETS {
        metrics.echo.observe(Duration::from_micros(micros));
        metrics.echo.observe(Duration::from_micros(micros + 1));
    }
    metrics.echo.observe(Duration::ZERO);
    metrics.echo.observe(Duration::from_nanos(999));
    let families = read(&metrics.render(&Gauges::default()));
    let echo = &families["shellward_echo_seconds"];
    let (_, count) = check_histogram(echo);
    assert_eq!(count, (LATENCY_BUCKETS.len() * 2 + 2) as f64);
    // The two smallest and the first bound itself; then two more with each bound.
    let cumulative: Vec<f64> = values(echo)[..LATENCY_BUCKETS.len()].to_vec();
    let wanted: Vec<f64> = (0..LATENCY_BUCKETS.len())
        .map(|n| (3 + 2 * n) as f64)
        .collect();
    assert_eq!(cumulative, wanted);
    check_histogram(&families["shellward_start_seconds"]);
}

#[test]
fn the_sum_is_exact_and_a_huge_time_is_no_accident() {
    let metrics = Metrics::default();
    metrics.start.observe(Duration::from_micros(1_000_001));
    metrics.start.observe(Duration::from_micros(500));
    let page = metrics.render(&Gauges::default());
    assert!(
        page.contains("shellward_start_seconds_sum 1.000501\n"),
        "{page}"
    );
    metrics.echo.observe(Duration::MAX);
    let families = read(&metrics.render(&Gauges::default()));
    assert_eq!(check_histogram(&families["shellward_echo_seconds"]).1, 1.0);
}

#[test]
fn bounds_and_their_texts_are_the_same_numbers() {
    for (micros, text) in LATENCY_BUCKETS {
        let seconds: f64 = text.parse().unwrap();
        assert_eq!((seconds * 1e6).round(), micros as f64, "{text}");
    }
    assert!(LATENCY_BUCKETS.windows(2).all(|two| two[0].0 < two[1].0));
}

#[test]
fn labels_and_help_are_escaped() {
    let mut page = Page(String::new());
    page.head("x", "a \"quoted\"\nback\\slash", "gauge");
    let nasty = "\"\n\\,}{=# é漢";
    page.sample("x", &[("a", nasty), ("b", "")], 3);
    assert!(
        page.0
            .starts_with("# HELP x a \"quoted\"\\nback\\\\slash\n"),
        "{}",
        page.0
    );
    let families = read(&page.0);
    assert_eq!(
        families["x"].samples,
        [(
            "x".to_owned(),
            vec![
                ("a".to_owned(), nasty.to_owned()),
                ("b".to_owned(), String::new())
            ],
            3.0
        )]
    );
}
